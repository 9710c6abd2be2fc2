"""
Single cells of three sites
===========================

Each site has cells of all types in other shares, as sparse counts. Every site divides the counts of a cell by their sum
and takes logarithms, which needs nothing from the others. The components of all cells together separate the types, and
not the sites. The counts are made up; files of AnnData are fitted in the same way.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

from eigenmesh import DecentralizedPCA, report

rng = np.random.default_rng(0)
genes, types = 400, ("T cell", "B cell", "monocyte", "NK cell")
usual = rng.gamma(0.3, 1.0, genes)
# Some genes are expressed much more in one type.
profiles = usual * np.exp(1.6 * (rng.random((len(types), genes)) < 0.06))
shares = {"oslo": [0.6, 0.2, 0.1, 0.1], "bergen": [0.2, 0.5, 0.2, 0.1], "bodo": [0.1, 0.1, 0.5, 0.3]}
sites, kinds = {}, {}
for site, share in shares.items():
    kind = rng.choice(len(types), 250, p=share)
    depth = rng.lognormal(6.5, 0.4, (250, 1))
    expected = depth * profiles[kind] / profiles[kind].sum(axis=1, keepdims=True)
    counts = rng.negative_binomial(2, 2 / (2 + expected))
    scaled = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
    sites[site], kinds[site] = sparse.csr_array(scaled), kind

pca = DecentralizedPCA(10, random_state=0).fit(sites)
print(f"{sum(X.shape[0] for X in sites.values())} cells, certified {pca.certificate_.error_bound:.1e}")

# %%
# The same scores, by type and by site.

scores = np.concatenate([pca.transform(X) for X in sites.values()])
by_type = [types[kind] for kind in np.concatenate(list(kinds.values()))]
by_site = np.repeat(list(sites), 250)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
shown = pca.explained_variance_ratio_
report.scores_picture(scores, by_type, shares=shown, ellipses=True, ax=left)
report.scores_picture(scores, by_site, shares=shown, ax=right)
plt.show()
