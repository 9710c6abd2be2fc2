"""
Columns split over sites
========================

A laboratory and a clinic hold different measurements of the same patients, in the same order. Both get the scores;
each keeps the loadings of its own columns.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from eigenmesh import DecentralizedPCA

X, kind = load_breast_cancer(return_X_y=True)
parts = np.array_split(X, 3, axis=1)
pca = DecentralizedPCA(2, partition="features", scale=True, privacy="masked", random_state=0).fit(parts)
print(f"{len(parts)} sites with {parts[0].shape[1]} columns each; certified {pca.certificate_.error_bound:.1e}")

Z = (X - X.mean(axis=0)) / X.std(axis=0)
scores = Z @ pca.components_.T
for label, marker in ((0, "o"), (1, "^")):
    plt.plot(*scores[kind == label].T, marker, alpha=0.5, markersize=4)
plt.xlabel("component 1")
plt.ylabel("component 2")
plt.show()
