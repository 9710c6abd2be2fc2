"""DecentralizedPCA and saved models, behind scikit-learn's interface."""

from eigenmesh.estimator._pca import DecentralizedPCA
from eigenmesh.estimator._saved_model import SavedModel, load_model

__all__ = ["DecentralizedPCA", "SavedModel", "load_model"]
