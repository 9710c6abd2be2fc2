"""Scores of samples that were not in the fit, without their shrinkage.

Components are tilted towards the samples that they were fitted to, more strongly the more features there are per
sample. So scores of other samples shrink towards zero.
"""

import numpy as np


def unshrunk(scores: np.ndarray, residuals: np.ndarray, singular_values: np.ndarray) -> np.ndarray:
    """Scores of new samples as if each had been in the fit: (n, K), (n,), (K,) -> (n, K).

    For each sample with scores t and residual norm g, the fitted samples, whose K singular values s are known, and the
    new one are decomposed together (online augmentation; Zhang, Dey and Lee 2020, Bioinformatics 36, 3439)::

        [diag(s)  t]
        [   0     g]  =  A S B^T,       (K + 1) x (K + 1)

    so that ``S B^T`` has new scores of both. The rotation and scale that turn those of the fitted samples into their
    old ones (Procrustes) are applied to those of the new sample. No model of the noise is needed.
    """
    K = scores.shape[1]
    joint = np.zeros((len(scores), K + 1, K + 1))
    joint[:, range(K), range(K)] = singular_values
    joint[:, :K, K], joint[:, K, K] = scores, residuals
    _, sizes, axes = np.linalg.svd(joint)
    augmented = sizes[:, :K, np.newaxis] * axes[:, :K, :]
    fitted, new = np.swapaxes(augmented[:, :, :K], -1, -2), augmented[:, :, K]
    # fitted (n, K samples, K scores) -> diag(s)
    left, spread, right = np.linalg.svd(np.swapaxes(fitted, -1, -2) * singular_values)
    size = np.sum(fitted**2, axis=(-2, -1))
    scale = np.divide(spread.sum(axis=-1), size, out=np.ones_like(size), where=size > 0)
    return np.asarray(scale[:, np.newaxis] * np.einsum("nk,nkl->nl", new, left @ right))
