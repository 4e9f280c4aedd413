"""torch tensors as IREE buffers, without copies."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from iree.runtime import BufferUsage, HalBufferView, HalElementType, MemoryType

__all__ = ["ALIGNMENT", "element_type", "is_importable", "view_memory"]

# IREE's kernels use aligned vector instructions: memory at other addresses crashes them.
ALIGNMENT = 64

_ELEMENT_TYPES = {
    torch.bool: HalElementType.BOOL_8,
    torch.int8: HalElementType.SINT_8,
    torch.uint8: HalElementType.UINT_8,
    torch.int16: HalElementType.SINT_16,
    torch.int32: HalElementType.SINT_32,
    torch.int64: HalElementType.SINT_64,
    torch.float16: HalElementType.FLOAT_16,
    torch.bfloat16: HalElementType.BFLOAT_16,
    torch.float32: HalElementType.FLOAT_32,
    torch.float64: HalElementType.FLOAT_64,
}

_MEMORY_TYPE = int(MemoryType.DEVICE_LOCAL) | int(MemoryType.HOST_VISIBLE) | int(MemoryType.HOST_COHERENT)
_USAGE = int(BufferUsage.DEFAULT) | int(BufferUsage.MAPPING)


def element_type(dtype: torch.dtype) -> Any:
    """IREE's element type for a torch dtype."""
    return _ELEMENT_TYPES[dtype]


def is_importable(tensor: torch.Tensor) -> bool:
    """Whether IREE can use the tensor's memory in place: dense, row-major, aligned and not empty."""
    address = tensor.data_ptr()
    return address != 0 and not address % ALIGNMENT and tensor.is_contiguous()


def view_memory(allocator: Any, address: int, shape: Sequence[int], itemsize: int, element: Any) -> Any:
    """A buffer view of ``shape`` on the memory at ``address``, as the VM reference that argument lists take fastest.

    The view owns nothing: whoever uses it must hold the tensor whose memory it is. That makes a view good for every
    tensor of that shape and type that ever lies at the address. DLPack would share ownership, but buffers that come
    through it do not allow the whole-buffer writes with which IREE copies.
    """
    size = itemsize
    for n in shape:
        size *= n
    memory = (ctypes.c_char * size).from_address(address) if size else ctypes.create_string_buffer(0)
    view = HalBufferView(allocator.import_host_allocation(memory, _MEMORY_TYPE, _USAGE), list(shape), element)
    return view.ref
