"""torch tensors as IREE buffers, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from turbine_lite.runtime.views import ALIGNMENT, ELEMENT_TYPES

__all__ = ["are_contiguous", "element_type", "is_importable"]

_ELEMENT_TYPES = {getattr(torch, name): element for name, element in ELEMENT_TYPES.items()}


def element_type(dtype: torch.dtype) -> Any:
    """IREE's element type for a torch dtype."""
    return _ELEMENT_TYPES[dtype]


def is_importable(tensor: torch.Tensor) -> bool:
    """Whether IREE can use the tensor's memory in place: dense, row-major, aligned and not empty."""
    address = tensor.data_ptr()
    return address != 0 and not address % ALIGNMENT and tensor.is_contiguous()


def are_contiguous(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all are row-major."""
    return all([tensor.is_contiguous() for tensor in tensors])  # noqa: C419  # a generator is slower
