"""
On a GPU
========

Data on a GPU stay there: ``fit`` takes the tensor as it is, and computes on the same device. Without a GPU, as on the
machine that builds these pages, PyTorch computes on the CPU; the code is the same.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from eigenmesh import DecentralizedPCA

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
X = torch.randn(20_000, 200, dtype=torch.float64, device=device)
X *= torch.linspace(3, 1, 200, dtype=torch.float64, device=device)

pca = DecentralizedPCA(5, n_nodes=20, random_state=0).fit(X)
print(f"on {X.device}: certified {pca.certificate_.error_bound:.1e} after {pca.n_iter_} iterations")

# %%
# Against ``eigh`` of the pooled covariance, on the same device.

values = torch.linalg.eigvalsh(torch.cov(X.T)).flip(0)[:5].cpu().numpy()
plt.bar(np.arange(1, 6) - 0.2, pca.explained_variance_, width=0.4, label="20 nodes")
plt.bar(np.arange(1, 6) + 0.2, values, width=0.4, label="torch.linalg.eigvalsh, pooled", hatch="//")
plt.xlabel("component")
plt.ylabel("variance")
plt.ylim(0.9 * values.min(), None)
plt.legend()
plt.show()
