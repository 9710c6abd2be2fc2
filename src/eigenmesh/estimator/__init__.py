"""DecentralizedPCA, StreamingPCA and saved models, behind scikit-learn's interface."""

from eigenmesh.estimator.pca import DecentralizedPCA
from eigenmesh.estimator.projection import SavedModel, load_model
from eigenmesh.estimator.streaming import StreamingPCA

__all__ = ["DecentralizedPCA", "SavedModel", "StreamingPCA", "load_model"]
