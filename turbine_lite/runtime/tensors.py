"""torch tensors as IREE buffers, without copies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from iree.runtime import BufferUsage, HalBufferView, HalElementType, MemoryType

__all__ = ["ALIGNMENT", "element_type", "importer_for_reading", "importer_for_writing", "make_dense"]

# IREE's kernels use aligned vector instructions: memory at other addresses crashes them.
ALIGNMENT = 64

_ELEMENT_TYPES = {
    torch.bool: "BOOL_8",
    torch.int8: "SINT_8",
    torch.int16: "SINT_16",
    torch.int32: "SINT_32",
    torch.int64: "SINT_64",
    torch.float16: "FLOAT_16",
    torch.bfloat16: "BFLOAT_16",
    torch.float32: "FLOAT_32",
    torch.float64: "FLOAT_64",
}


def element_type(dtype: torch.dtype) -> Any:
    """IREE's element type for a torch dtype."""
    return getattr(HalElementType, _ELEMENT_TYPES[dtype])


def make_dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if IREE can read its memory in place, else an aligned, row-major copy."""
    address = tensor.data_ptr()
    # A tensor without elements has address 0 and may have any strides; IREE looks at them all the same.
    if address and not address % ALIGNMENT and tensor.is_contiguous():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def importer_for_reading(device: Any) -> Callable[[torch.Tensor], Any]:
    """A function from a dense tensor to a buffer view of its memory, which it keeps alive."""
    from_capsule = device.handle.from_dlpack_capsule
    # Unlike Tensor.__dlpack__ this takes tensors that require grad, and costs half as much.
    to_capsule = torch._C._to_dlpack

    def import_tensor(tensor: torch.Tensor) -> Any:
        return from_capsule(to_capsule(tensor))

    return import_tensor


def importer_for_writing(device: Any) -> Callable[[torch.Tensor, list[int], Any], Any]:
    """A function from a dense tensor, a shape and an element type to a buffer view that a program may write.

    The tensor must outlive the buffer view. DLPack is of no use here: buffers that come through it do not allow the
    whole-buffer writes with which IREE copies.
    """
    import_memory = device.handle.allocator.import_host_allocation
    memory_type = int(MemoryType.DEVICE_LOCAL) | int(MemoryType.HOST_VISIBLE) | int(MemoryType.HOST_COHERENT)
    usage = int(BufferUsage.DEFAULT) | int(BufferUsage.MAPPING)

    def import_destination(tensor: torch.Tensor, shape: list[int], element: Any) -> Any:
        memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
        return HalBufferView(import_memory(memory, memory_type, usage), shape, element)

    return import_destination
