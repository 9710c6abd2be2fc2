"""
What a run would cost
=====================

Before anything is sent, the planner forecasts rounds, bytes and time of every solver with every way of averaging.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA

found = DecentralizedPCA(5, n_nodes=20, random_state=0).plan(load_digits().data)
print(found.reason)
lines = [line for line in found.forecasts if line.seconds < float("inf")][:10]

plt.barh([f"{line.solver}, {line.averaging}" for line in lines][::-1], [line.seconds for line in lines][::-1])
plt.xscale("log")
plt.minorticks_off()
plt.xlabel("seconds, with 20 ms a round")
plt.tight_layout()
plt.show()
