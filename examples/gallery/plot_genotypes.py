"""
Genotypes of several cohorts
============================

Genotypes (0, 1 or 2 copies of an allele) are centred and scaled by *pooled* allele frequencies, which no cohort knows
alone. Populations that differ a little in many frequencies are separated.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigenmesh import DecentralizedPCA

rng = np.random.default_rng(0)
base = rng.uniform(0.1, 0.9, 600)
genotypes, population = [], []
for number in range(3):
    frequency = np.clip(base + 0.06 * rng.standard_normal(600), 0.02, 0.98)
    genotypes.append(rng.binomial(2, frequency, (80, 600)))
    population += [number] * 80
X, population = np.concatenate(genotypes).astype(float), np.array(population)
# Every cohort has people of all populations, in other shares.
cohort = np.where(rng.random(240) < 0.6, population, rng.integers(0, 3, 240))
pca = DecentralizedPCA(2, scale="binomial", random_state=0).fit(X, nodes=cohort)
print(f"{pca.n_nodes_} cohorts; certified {pca.certificate_.error_bound:.1e}")

scores = pca.transform(X)
for number, marker in enumerate("os^"):
    plt.plot(*scores[population == number].T, marker, label=f"population {number}", alpha=0.7)
plt.legend()
plt.xlabel("component 1")
plt.ylabel("component 2")
plt.show()
