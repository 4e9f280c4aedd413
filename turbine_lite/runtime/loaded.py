"""Programs that return their results, called by the names of their functions; needs IREE's runtime and nothing else.

Arguments are numpy arrays or torch tensors, read where they are if they are dense and aligned, and results are of the
kind that the arguments are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from iree import runtime
from iree.runtime import HalBufferView, VmContext, VmModule, VmVariantList

from turbine_lite.compiler.foreign import Function, Value
from turbine_lite.errors import ExecutionError
from turbine_lite.mlir.entry_point import PARAMETER_SCOPE
from turbine_lite.runtime.device import get_device, on_fork
from turbine_lite.runtime.views import ALIGNMENT, ELEMENT_TYPES, ITEM_BYTES, view_memory

__all__ = ["LoadedProgram", "aligned_copy", "is_torch_tensor"]


class LoadedProgram:
    """A VMFB and its functions.

    Calls wait for each other: a VM context serves one at a time, and a program uses all of its threads.

    Args:
        vmfb: the program. What its functions return after their results (see ``compiler/foreign.py``) is not looked
            at.
        functions: what can be called.
        driver: ``"local-sync"`` or ``"local-task"``.
        parameters: by name, memory (of any buffer) that the program is loaded with.

    Raises:
        ExecutionError: the runtime refuses the program, or a call fails.
    """

    def __init__(
        self,
        vmfb: bytes,
        functions: Sequence[Function],
        driver: str,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.functions = {function.name: function for function in functions}
        self._vmfb = vmfb
        self._driver = driver
        self._parameters = dict(parameters or {})
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any, dict[str, Any]] | None = None
        self._load()
        on_fork(self)

    def __call__(self, name: str, args: Sequence[Any]) -> list[Any]:
        """Call a function with arrays, tensors or numbers, one for each of its inputs, in order."""
        function = self.functions[name]
        is_torch = any(is_torch_tensor(arg) for arg in args)
        held: list[Any] = []  # what owns the memory that the program reads
        with self._lock:
            device, context, entries = self._loaded or self._load()
            inputs = VmVariantList(len(args))
            spans: list[tuple[int, int]] = []
            for value, arg in zip(function.inputs, args, strict=True):
                if value.sizes is None:
                    inputs.push_float(arg) if value.dtype.startswith("float") else inputs.push_int(int(arg))
                    continue
                memory = _Memory(arg, copy=value.consumed)
                held.append(memory)
                size = ITEM_BYTES[value.dtype]
                element = ELEMENT_TYPES[value.dtype]
                inputs.push_ref(view_memory(device.handle.allocator, memory.address, memory.shape, size, element))
                spans.append((memory.address, memory.address + memory.bytes))
            outputs = VmVariantList(len(function.outputs))
            try:
                context.invoke(entries[name], inputs, outputs)
                results = [
                    _result(outputs, index, value, spans, as_torch=is_torch)
                    for index, value in enumerate(function.outputs)
                ]
            except (RuntimeError, ValueError) as error:
                raise ExecutionError(f"IREE's runtime failed in {name}: {error}") from error
        return results

    def _load(self) -> tuple[Any, Any, dict[str, Any]]:
        device = get_device(self._driver)
        try:
            module = VmModule.copy_buffer(device.instance, self._vmfb)
            needs = []
            if self._parameters:
                index = runtime.ParameterIndex()
                for name, memory in self._parameters.items():
                    index.add_buffer(name, memory)
                provider = index.create_provider(scope=PARAMETER_SCOPE)
                needs.append(runtime.create_io_parameters_module(device.instance, provider))
            context = VmContext(device.instance, [device.hal_module, *needs, module])
            entries = {name: module.lookup_function(name) for name in self.functions}
        except (RuntimeError, ValueError, KeyError) as error:
            raise ExecutionError(f"IREE's runtime cannot load the program: {error}") from error
        self._loaded = (device, context, entries)
        return self._loaded

    def forget_device(self) -> object:
        """Drop everything that belongs to the device, unreleased; the next call loads anew."""
        inherited, self._loaded, self._lock = (self._loaded, self._lock), None, threading.Lock()
        return inherited


def is_torch_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch's, which need not be imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class _Memory:
    """An argument as dense, aligned memory: its own where that is so and no ``copy`` is wanted."""

    def __init__(self, value: Any, *, copy: bool) -> None:
        if is_torch_tensor(value):
            tensor = value.detach().resolve_neg().resolve_conj().contiguous()
            if copy or tensor.data_ptr() % ALIGNMENT:
                tensor = tensor.clone()
            self.owner, self.address, self.shape = tensor, tensor.data_ptr(), tuple(tensor.shape)
            self.bytes = tensor.numel() * tensor.itemsize
        else:
            array = np.ascontiguousarray(value).reshape(np.shape(value))
            if copy or array.ctypes.data % ALIGNMENT:
                array = aligned_copy(array)
            self.owner, self.address, self.shape = array, array.ctypes.data, array.shape
            self.bytes = array.nbytes


def aligned_copy(array: Any) -> Any:
    """A copy that IREE can read where it is."""
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _result(outputs: Any, index: int, value: Value, spans: Sequence[tuple[int, int]], *, as_torch: bool) -> Any:
    if value.sizes is None:
        return outputs.get_variant(index)
    view = outputs.get_as_object(index, HalBufferView)
    array = _array(view, value.dtype)
    address = array.ctypes.data
    if any(start <= address < end for start, end in spans):  # an argument, as it is: the caller's memory, or a copy's
        array = array.copy()
    if not as_torch:
        return array.view(_bfloat16()) if value.dtype == "bfloat16" else array
    torch: Any = sys.modules["torch"]
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor.view(torch.bfloat16) if value.dtype == "bfloat16" else tensor


def _array(view: Any, dtype: str) -> Any:
    """An array on the memory of a result, which it keeps."""
    shape = tuple(view.shape)
    numpy_dtype = np.dtype(np.int16 if dtype == "bfloat16" else dtype)
    if 0 in shape:
        return np.empty(shape, numpy_dtype)
    return view.map().asarray(shape, numpy_dtype)


def _bfloat16() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise ExecutionError(
            "a result is of bfloat16, which numpy does not have: pass torch tensors, or pip install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)
