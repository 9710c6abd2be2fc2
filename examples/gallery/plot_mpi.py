"""
A cluster, with MPI
===================

Four processes under ``mpiexec``, each with its own part of the digits: the same command as in one process. Node 0
writes the model, and all four have the same components.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from eigenmesh import load_model

with tempfile.TemporaryDirectory() as folder:
    model = Path(folder) / "digits.npz"
    fit = ["fit", "digits", "--components", "6", "--out", str(model)]
    launch = ["launch", "--nodes", "4", "--transport", "mpi", "--", *fit]
    subprocess.run([sys.executable, "-m", "eigenmesh", *launch], check=True, capture_output=True)
    pca = load_model(model)

# %%
# scikit-learn, with all digits in one place, has the same components, up to a sign.

pooled = PCA(6).fit(load_digits().data)
cosines = abs((pca.components_ * pooled.components_).sum(axis=1))
print(f"largest angle to scikit-learn: {(1 - cosines.min() ** 2).clip(0) ** 0.5:.0e}")

figure, axes = plt.subplots(2, 6, figsize=(9, 3.4), layout="constrained")
for row, name, components in zip(axes, ("4 ranks", "pooled"), (pca.components_, pooled.components_), strict=True):
    for axis, component, theirs in zip(row, components, pca.components_, strict=True):
        sign = 1 if component @ theirs > 0 else -1
        axis.imshow(sign * component.reshape(8, 8), cmap="RdBu", vmin=-0.4, vmax=0.4)
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
plt.show()
