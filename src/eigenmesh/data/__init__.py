"""Data, one way: sources -> shards (who holds what) -> pooled moments -> each node's covariance as an operator."""

from eigenmesh.data import datasets
from eigenmesh.data.block import Block, MatrixColumns, Table, aligned, table_of
from eigenmesh.data.choice import MEMORY_BYTES, Choice, CovarianceKind, Sizes, choose_by_size, choose_for_each
from eigenmesh.data.covariance import (
    BlockProducts,
    Covariance,
    Formed,
    Gram,
    MatrixFree,
    OneByOne,
    build_covariance,
    covariance_of_each,
    distances,
    is_one_pass,
    lifted,
    require_numpy,
    spe_limit,
    t2_limit,
)
from eigenmesh.data.cross_products import CrossProducts, Pooled, exponents_of, largest_values
from eigenmesh.data.cures import in_python
from eigenmesh.data.datasets import DATASETS, is_dataset, load
from eigenmesh.data.formats.anndata import H5AD, results_of, save_h5ad
from eigenmesh.data.formats.components import NamedComponents, read_components
from eigenmesh.data.formats.plink import EIGENVEC, save_plink
from eigenmesh.data.moments import (
    MOST_ROUNDED,
    NO_VARIANCE,
    Centring,
    Missing,
    Moments,
    OfSplitColumns,
    Scaling,
    Scatter,
    column_labels,
    count_and_sum,
    deviations,
    first_not_finite,
    missing_policy,
    moments_about,
    moments_by_sums,
    own_moments,
    pooled_moments,
    require_range,
    scaled_mean,
    stored,
)
from eigenmesh.data.samples import FeatureShards, Partition, Shards, whole_count
from eigenmesh.data.scores import LEAST_SQUARES, Filling, Projector, kept_dtype, save_scores, scores_file, unshrunk
from eigenmesh.data.source import (
    HOST,
    MatrixSource,
    Place,
    Samples,
    Source,
    as_narwhals,
    as_source,
    checkable,
    is_anndata,
    is_device_array,
    is_frame,
    is_mapped,
    make_frame,
    require_exact,
)
from eigenmesh.data.split import (
    SPLITS,
    ContiguousSplit,
    DirichletSplit,
    LabelSplit,
    RandomSplit,
    SizesSplit,
    Split,
    rows_by_value,
    split_by_name,
)
from eigenmesh.data.stream import Running, RunningCovariance, RunningRows, RunningScatter
from eigenmesh.data.table import (
    READERS,
    all_files_of,
    consecutive_rows,
    expand,
    kind_of,
    name_of,
    read_table,
    table_in_memory,
)
from eigenmesh.data.table_options import TableOptions, column_label, listed_columns, require_distinct

__all__ = [
    "DATASETS",
    "SPLITS",
    "Block",
    "ContiguousSplit",
    "Covariance",
    "CrossProducts",
    "DirichletSplit",
    "FeatureShards",
    "Formed",
    "LabelSplit",
    "Missing",
    "Moments",
    "RandomSplit",
    "Scaling",
    "Shards",
    "SizesSplit",
    "Source",
    "Split",
    "Table",
    "build_covariance",
    "datasets",
    "load",
    "pooled_moments",
    "read_table",
]


def __dir__() -> list[str]:
    return __all__
