"""Data, one way: sources -> shards (who holds what) -> pooled moments -> each node's covariance as an operator."""

from eigenmesh.data._block import Block, Table
from eigenmesh.data._build_covariance import build_covariance
from eigenmesh.data._choice import MEMORY_BYTES, Choice, CovarianceKind, choose
from eigenmesh.data._covariance import Chunked, Covariance, Formed, MatrixFree
from eigenmesh.data._datasets import (
    DATASETS,
    gaussian,
    geometric_spectrum,
    is_dataset,
    load,
    nearly_equal,
    paper_spectrum,
    power_law_spectrum,
    unlike_nodes,
)
from eigenmesh.data._feature_shards import FeatureShards
from eigenmesh.data._files import read_table
from eigenmesh.data._moments import Missing, Moments, Scaling, missing_policy
from eigenmesh.data._pooled_moments import Averager, pooled_moments
from eigenmesh.data._shards import Shards
from eigenmesh.data._source import Source, as_source
from eigenmesh.data._sparse_covariance import Sparse
from eigenmesh.data._splits import (
    SPLITS,
    ContiguousSplit,
    DirichletSplit,
    LabelSplit,
    RandomSplit,
    SizesSplit,
    Split,
    split_by_name,
)
from eigenmesh.data._table_options import TableOptions

__all__ = [
    "DATASETS",
    "MEMORY_BYTES",
    "SPLITS",
    "Averager",
    "Block",
    "Choice",
    "Chunked",
    "ContiguousSplit",
    "Covariance",
    "CovarianceKind",
    "DirichletSplit",
    "FeatureShards",
    "Formed",
    "LabelSplit",
    "MatrixFree",
    "Missing",
    "Moments",
    "RandomSplit",
    "Scaling",
    "Shards",
    "SizesSplit",
    "Source",
    "Sparse",
    "Split",
    "Table",
    "TableOptions",
    "as_source",
    "build_covariance",
    "choose",
    "gaussian",
    "geometric_spectrum",
    "is_dataset",
    "load",
    "missing_policy",
    "nearly_equal",
    "paper_spectrum",
    "pooled_moments",
    "power_law_spectrum",
    "read_table",
    "split_by_name",
    "unlike_nodes",
]


def __dir__() -> list[str]:
    return __all__
