"""Access to the Array API standard: the one place that knows which library an array belongs to.

Solvers, networks and covariances hold arrays whose first axis is *the nodes that this process holds*: all M in a
simulation, one at a peer. NumPy, PyTorch (CPU and CUDA) and array-api-strict run the same lines.
"""

from eigenmesh.arrays._columns import (
    PIECE,
    column_norms,
    eigenpairs,
    normalised,
    orthonormal,
    pieces,
    qr_in_place,
    squared_norms,
    turn_in_place,
)
from eigenmesh.arrays._gpu import (
    add_scaled,
    inner_products,
    small_work_on_host,
    stacked,
    subtract_product,
    symmetric_product,
)
from eigenmesh.arrays._library import (
    EPS,
    ITEM_BYTES,
    Array,
    Namespace,
    as_tensor,
    devices_here,
    like,
    namespace,
    namespace_for,
    numpy,
    numpy_dtype,
    on_gpu,
    on_host,
    to_numpy,
)
from eigenmesh.arrays._nodes import Parts, everywhere, held, is_everywhere, whole

__all__ = [
    "EPS",
    "ITEM_BYTES",
    "PIECE",
    "Array",
    "Namespace",
    "Parts",
    "add_scaled",
    "as_tensor",
    "column_norms",
    "devices_here",
    "eigenpairs",
    "everywhere",
    "held",
    "inner_products",
    "is_everywhere",
    "like",
    "namespace",
    "namespace_for",
    "normalised",
    "numpy",
    "numpy_dtype",
    "on_gpu",
    "on_host",
    "orthonormal",
    "pieces",
    "qr_in_place",
    "small_work_on_host",
    "squared_norms",
    "stacked",
    "subtract_product",
    "symmetric_product",
    "to_numpy",
    "turn_in_place",
    "whole",
]
