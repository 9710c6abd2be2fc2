"""DecentralizedPCA, StreamingPCA and saved models, behind scikit-learn's interface."""

from eigenmesh.estimator._pca import DecentralizedPCA
from eigenmesh.estimator._saved_model import SavedModel, load_model
from eigenmesh.estimator._streaming import StreamingPCA

__all__ = ["DecentralizedPCA", "SavedModel", "StreamingPCA", "load_model"]
