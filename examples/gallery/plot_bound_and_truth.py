"""
The certificate and the truth
=============================

Nodes certify a bound on the angle to the true components without knowing them. Here the truth is known, so that both
can be drawn: the bound is never below the true angle.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from eigenmesh import DecentralizedPCA
from eigenmesh.metrics import largest_angle

X = load_digits().data
truth = np.linalg.eigh(np.cov(X, rowvar=False))[1][:, :-4:-1]
tolerances = 10.0 ** -np.arange(2, 12)
bounds, angles = [], []
for tol in tolerances:
    pca = DecentralizedPCA(n_components=3, n_nodes=10, tol=tol, random_state=0).fit(X)
    bounds.append(pca.certificate_.error_bound)
    angles.append(largest_angle(pca.components_.T, truth))
held = all(angle <= bound for angle, bound in zip(angles, bounds, strict=True))
print(f"no angle is beyond its bound: {held}")

plt.loglog(tolerances, bounds, "o-", label="certified bound")
plt.loglog(tolerances, angles, "s--", label="true angle")
plt.loglog(tolerances, tolerances, ":", color="0.5", label="tol")
plt.xlabel("tol")
plt.ylabel("sine of the angle")
plt.legend()
plt.show()
