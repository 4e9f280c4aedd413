"""torch tensors as IREE buffers, without copies."""

from __future__ import annotations

from typing import Any

import torch

from turbine_lite.runtime.views import ALIGNMENT, ELEMENT_TYPES

__all__ = ["element_type", "is_importable"]

_ELEMENT_TYPES = {getattr(torch, name): element for name, element in ELEMENT_TYPES.items()}


def element_type(dtype: torch.dtype) -> Any:
    """IREE's element type for a torch dtype."""
    return _ELEMENT_TYPES[dtype]


def is_importable(tensor: torch.Tensor) -> bool:
    """Whether IREE can use the tensor's memory in place: dense, row-major, aligned and not empty."""
    address = tensor.data_ptr()
    return address != 0 and not address % ALIGNMENT and tensor.is_contiguous()
