"""
Rounds on different networks
============================

The result is the same on every connected network; the number of rounds is not.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA

X = load_digits().data
networks = ("complete", "star", "erdos_renyi", "grid", "cycle", "path")
rounds = [
    DecentralizedPCA(n_components=3, n_nodes=16, topology=name, random_state=0).fit(X).traffic_.rounds
    for name in networks
]
for name, count in zip(networks, rounds, strict=True):
    print(f"{name:>12} {count:4d} rounds")

plt.barh(networks, rounds)
plt.xlabel("rounds until three components are certified to 1e-6")
plt.tight_layout()
plt.show()
