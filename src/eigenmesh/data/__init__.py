"""Data, one way: sources -> shards (who holds what) -> pooled moments -> each node's covariance as an operator."""

from eigenmesh.data.archives import cache_folder, find_archive
from eigenmesh.data.block import Block, MatrixColumns, Table, aligned, table_of
from eigenmesh.data.choice import (
    COPY_BYTES,
    MEMORY_BYTES,
    Choice,
    CovarianceKind,
    Sizes,
    choose,
    choose_by_size,
    choose_for_each,
)
from eigenmesh.data.covariance import (
    BlockProducts,
    Covariance,
    Formed,
    Gram,
    MatrixFree,
    OneByOne,
    Sparse,
    build_covariance,
    covariance_of_each,
    distances,
    lifted,
    require_numpy,
    spe_limit,
    t2_limit,
)
from eigenmesh.data.datasets import (
    CIFAR10,
    DATASETS,
    MNIST,
    gaussian,
    geometric_spectrum,
    is_dataset,
    load,
    nearly_equal,
    paper_spectrum,
    power_law_spectrum,
    random_axes,
    unlike_nodes,
)
from eigenmesh.data.formats.anndata import H5AD, results_of, save_h5ad
from eigenmesh.data.formats.plink import EIGENVEC, save_plink
from eigenmesh.data.moments import (
    MOST_ROUNDED,
    NO_VARIANCE,
    Averager,
    Centring,
    Missing,
    Moments,
    NodePart,
    OfSplitColumns,
    Scaling,
    count_and_sum,
    first_not_finite,
    missing_policy,
    moments_about,
    moments_by_sums,
    not_finite,
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
    TableOptions,
    as_narwhals,
    as_source,
    checkable,
    column_label,
    is_device_array,
    is_frame,
    is_mapped,
    listed_columns,
    make_frame,
    require_distinct,
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
from eigenmesh.data.stream import Running, RunningCovariance, RunningRows, RunningScatter, Summary
from eigenmesh.data.table import READERS, all_files_of, consecutive_rows, expand, kind_of, name_of, read_table

__all__ = [
    "DATASETS",
    "MEMORY_BYTES",
    "SPLITS",
    "Averager",
    "Block",
    "Choice",
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
