"""
What a neighbour sees
=====================

Without masks a neighbour gets a site's own products with its covariance. With masks it gets numbers that look like
noise, and only the sum over all sites means anything.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigenmesh import DecentralizedPCA
from eigenmesh.masking import MaskContext, SiteKey, pairwise_masks

rng = np.random.default_rng(0)
names = ("oslo", "bergen", "tromso")
own = [(rng.standard_normal(2000) * 2**40).astype(np.int64).view(np.uint64) for _ in names]
keys = [SiteKey.generate() for _ in names]
publics, context = [key.public for key in keys], MaskContext("gallery", 0, bytes(32), names)
masked = [pairwise_masks(keys[site], publics, site, context).masked(0, own[site]) for site in range(3)]
print(f"the sums are the same: {np.array_equal(sum(masked), sum(own))}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), sharey=True)
left.hist(own[0].view(np.int64), bins=40)
left.set_title("what oslo has")
right.hist(masked[0].view(np.int64), bins=40)
right.set_title("what bergen gets")
plt.show()

# %%
# A fit with masks gives the same answer, and says what everybody has learned.

X = rng.standard_normal((300, 10)) * np.linspace(3, 1, 10)
pca = DecentralizedPCA(2, n_nodes=5, privacy="masked").fit(X)
for sentence in pca.certificate_.disclosure.words:
    print(sentence)
