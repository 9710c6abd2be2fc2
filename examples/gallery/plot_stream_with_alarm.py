"""
A stream, and an alarm when it changes
======================================

Batches arrive at four nodes. After each of them all nodes have the components of everything so far, and samples that
do not fit them raise an alarm.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigenmesh import StreamingPCA

rng = np.random.default_rng(0)
spread = np.array([6.0, 5.0, 4.0, *np.linspace(2, 0.5, 17)])
alarms, beyond = [], []
pca = StreamingPCA(3, n_nodes=4, on_alarm=alarms.append)
for batch in range(30):
    X = rng.standard_normal((100, 20)) * spread
    if batch >= 25:
        X[:, 12] += 5 * rng.standard_normal(100)
    pca.partial_fit(X, nodes=rng.integers(0, 4, 100))
    beyond.append(0.0 if batch == 0 else pca.batch_.spe_share)
print(f"first alarm in batch {alarms[0].batch}: {alarms[0].message}")

plt.plot(beyond, "o-")
plt.axvline(25, linestyle=":", color="0.4")
plt.xlabel("batch")
plt.ylabel("share of samples beyond the limit of SPE")
plt.show()
