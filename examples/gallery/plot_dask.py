"""
Larger than memory, with Dask
=============================

Blocks of rows of a Dask array are the nodes; they are read when they are needed and never all at once.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

from eigenmesh import DecentralizedPCA

spread = np.linspace(5, 1, 30)
X = da.random.default_rng(0).standard_normal((40_000, 30), chunks=(5_000, 30)) * spread
pca = DecentralizedPCA(5, random_state=0).fit(X)
print(f"{X.npartitions} blocks; certified {pca.certificate_.error_bound:.1e}")

plt.bar(range(1, 6), pca.explained_variance_)
plt.plot(range(1, 6), np.sort(spread**2)[::-1][:5], "k_", markersize=20)
plt.xlabel("component")
plt.ylabel("variance (line: of the distribution)")
plt.show()
