"""DecentralizedPCA, StreamingPCA and saved models, behind scikit-learn's interface; certificates for any components."""

from eigenmesh.estimator.pca import DecentralizedPCA, certify
from eigenmesh.estimator.projection import SavedModel, load_model
from eigenmesh.estimator.streaming import StreamingPCA
