"""The operators that read or write at indices, by the arguments that they take."""

from __future__ import annotations

import torch

__all__ = ["ALONG_DIMENSION", "PUTS", "SCATTERS", "WRITES_ALONG_DIMENSION"]

aten = torch.ops.aten

# (tensor, dimension, index of the result's shape, source, ...)
SCATTERS = (
    *(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce),
    *(aten.scatter_add.default, aten.scatter_reduce.two),
)
# (tensor, dimension, index, source, ...)
WRITES_ALONG_DIMENSION = (
    *SCATTERS,
    *(aten.index_add.default, aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor),
)
# (tensor, dimension, index, ...)
ALONG_DIMENSION = (*WRITES_ALONG_DIMENSION, aten.gather.default, aten.index_select.default)
# (tensor, list of an index or None for each dimension, source, ...)
PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
