"""
Spectra of several laboratories
===============================

Near-infrared spectra of mixtures of two substances, measured by three laboratories. Light is scattered differently by
each sample, so every spectrum is first centred and divided by its own deviation (standard normal variate), which needs
nothing from others. The loadings are spectra too: they show which wavelengths tell samples apart. The spectra are made
up from bands of the substances.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigenmesh import DecentralizedPCA, report

rng = np.random.default_rng(0)
wavelength = np.linspace(1100, 2500, 350)


def band(centre, width):
    """A band of absorption."""
    return np.exp(-0.5 * ((wavelength - centre) / width) ** 2)


water, fat = band(1450, 60) + 1.5 * band(1940, 50), band(1730, 40) + 0.8 * band(2310, 45)
base = 0.4 + 0.3 * band(2100, 250)
laboratory = np.repeat(["Alta", "Lom", "Voss"], 60)
# Each laboratory gets samples of another kind.
moisture = rng.normal(np.repeat([0.5, 0.6, 0.7], 60), 0.05)
content = rng.normal(np.repeat([0.5, 0.3, 0.4], 60), 0.08)
spectra = moisture[:, None] * water + content[:, None] * fat + base
spectra = rng.lognormal(0, 0.2, (180, 1)) * spectra + rng.normal(0, 0.1, (180, 1)) + rng.normal(0, 0.003, spectra.shape)
snv = (spectra - spectra.mean(axis=1, keepdims=True)) / spectra.std(axis=1, keepdims=True)

pca = DecentralizedPCA(3, random_state=0).fit(snv, nodes=laboratory)
print(f"shares of the variance: {pca.explained_variance_ratio_.round(3)}")

# %%
# Scores by laboratory, and loadings over wavelengths: the bands of water and fat.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
report.scores_picture(pca.transform(snv), laboratory, shares=pca.explained_variance_ratio_, ellipses=True, ax=left)
for number, component in enumerate(pca.components_[:2], start=1):
    right.plot(wavelength, component, label=f"component {number}")
right.axhline(0, color="0.6", linewidth=0.8)
right.set(xlabel="wavelength (nm)", ylabel="loading", title="Loadings")
right.legend(frameon=False)
plt.show()
