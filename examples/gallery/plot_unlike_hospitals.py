"""
Hospitals with different patients
=================================

Each hospital treats only one kind of patient. The components of all patients together are found exactly; if every
hospital subtracted its own mean, the differences between hospitals would be lost.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA

from eigenmesh import DecentralizedPCA
from eigenmesh.metrics import largest_angle

X, kind = load_wine(return_X_y=True)
pca = DecentralizedPCA(n_components=2, scale=True, random_state=0).fit(X, nodes=kind)
own = (X - X.mean(axis=0)) / X.std(axis=0)
pooled = PCA(2).fit(own)
angle = largest_angle(pca.components_.T, pooled.components_.T)
print(f"against scikit-learn on all patients: {angle:.1e}; certified {pca.certificate_.error_bound:.1e}")

# %%
# The three hospitals on the common components.

scores = pca.transform(X)
for hospital, marker in enumerate("os^"):
    plt.plot(*scores[kind == hospital].T, marker, label=f"hospital {hospital}", alpha=0.7)
plt.xlabel("component 1")
plt.ylabel("component 2")
plt.legend()
plt.show()
