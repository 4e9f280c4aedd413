"""Memory as IREE buffers, without copies and without torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from iree.runtime import BufferUsage, HalBufferView, HalElementType, MemoryType

__all__ = ["ALIGNMENT", "ELEMENT_TYPES", "ITEM_BYTES", "view_memory"]

# IREE's kernels use aligned vector instructions: memory at other addresses crashes them.
ALIGNMENT = 64

# By the names that torch and numpy have for dtypes.
ELEMENT_TYPES = {
    "bool": HalElementType.BOOL_8,
    "int8": HalElementType.SINT_8,
    "uint8": HalElementType.UINT_8,
    "int16": HalElementType.SINT_16,
    "int32": HalElementType.SINT_32,
    "int64": HalElementType.SINT_64,
    "float16": HalElementType.FLOAT_16,
    "bfloat16": HalElementType.BFLOAT_16,
    "float32": HalElementType.FLOAT_32,
    "float64": HalElementType.FLOAT_64,
}

ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}

_MEMORY_TYPE = int(MemoryType.DEVICE_LOCAL) | int(MemoryType.HOST_VISIBLE) | int(MemoryType.HOST_COHERENT)
_USAGE = int(BufferUsage.DEFAULT) | int(BufferUsage.MAPPING)


def view_memory(allocator: Any, address: int, shape: Sequence[int], itemsize: int, element: Any) -> Any:
    """A buffer view of ``shape`` on the memory at ``address``, as the VM reference that argument lists take fastest.

    The view owns nothing: whoever uses it must hold what owns the memory. That makes a view good for every tensor of
    that shape and type that ever lies at the address. DLPack would share ownership, but buffers that come through it
    do not allow the whole-buffer writes with which IREE copies.
    """
    size = itemsize
    for n in shape:
        size *= n
    memory = (ctypes.c_char * size).from_address(address) if size else ctypes.create_string_buffer(0)
    view = HalBufferView(allocator.import_host_allocation(memory, _MEMORY_TYPE, _USAGE), list(shape), element)
    return view.ref
