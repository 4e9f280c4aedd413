"""A compiled region as a Python callable on torch tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from iree.runtime import VmContext, VmModule, VmVariantList

# What inductor's generated code allocates with: half the time of torch.empty_strided.
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

from turbine_lite.errors import ExecutionError
from turbine_lite.graph.signature import Signature, TensorInput
from turbine_lite.mlir.entry_point import ENTRY_POINT
from turbine_lite.runtime.device import Device, get_device, on_fork
from turbine_lite.runtime.tensors import element_type, is_importable, view_memory

__all__ = ["SpecializedExecutable"]

# Buffer views kept for each argument and result. Weights stay where they are and allocators hand out the same
# addresses again, so a few suffice; a program that walks through memory must not fill this process with views.
_KEPT_VIEWS = 32


class _Slot:
    """One tensor argument or result and the buffer views of the addresses at which it has been.

    ``views`` stays empty where sizes are dynamic: there an address does not tell the shape. ``indirect``: the tensor's
    memory is not in the order of its sizes.
    """

    __slots__ = ("allocator", "dtype", "element", "indirect", "itemsize", "negated", "order", "static", "views")

    def __init__(
        self, dtype: torch.dtype, order: tuple[int, ...] | None, *, static: bool, negated: bool = False
    ) -> None:
        self.dtype = dtype
        self.order = order
        self.static = static
        self.negated = negated
        self.indirect = negated or order is not None
        self.element = element_type(dtype)
        self.itemsize = dtype.itemsize
        self.allocator: Any = None
        self.views: dict[int, Any] = {}

    def view(self, address: int, shape: Sequence[int]) -> Any:
        """A buffer view of the memory at an address."""
        view = view_memory(self.allocator, address, shape, self.itemsize, self.element)
        if self.static and address:
            if len(self.views) >= _KEPT_VIEWS:
                self.views = {}
            self.views[address] = view
        return view

    def import_argument(self, tensor: torch.Tensor, held: list[torch.Tensor]) -> Any:
        """A buffer view of an argument, or of a copy (put into ``held``) where its memory cannot be used in place."""
        if self.negated:
            tensor = tensor.resolve_neg()
        if self.order is not None:
            tensor = tensor.permute(self.order)
        if not is_importable(tensor):
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        held.append(tensor)
        return self.view(tensor.data_ptr(), tensor.shape)


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """What belongs to one device; made anew in the child of a fork."""

    device: Device
    module: Any
    function: Any


class SpecializedExecutable:
    """Runs one VMFB; specialised on a signature (dtypes, ranks, strides), called with tensors of that signature.

    Calling it returns new, ordinary torch tensors. Arguments are read in place where their memory is dense and
    aligned, and never written. Any number of threads may call it at once, also in the child of a fork.

    Raises:
        ExecutionError: the runtime refused the VMFB, or reported an error during a call.
    """

    def __init__(self, vmfb: bytes, signature: Signature, driver: str) -> None:
        self.vmfb = vmfb
        self.signature = signature
        self.driver = driver
        static = signature.shapes is not None
        # None stands for a number.
        self._inputs = [
            _Slot(spec.dtype, spec.order, static=spec.static, negated=spec.negated)
            if isinstance(spec, TensorInput)
            else None
            for spec in signature.inputs
        ]
        self._outputs = [_Slot(spec.dtype, spec.order, static=static) for spec in signature.outputs]
        self._arity = len(self._inputs) + len(self._outputs)
        self._returned = sum(slot is not None for slot in self._inputs)
        self._shapes = signature.shapes
        self._shapes_of = signature.shapes_of()
        self._loaded: _Loaded | None = None
        # VM contexts that no call is using. A context serves one call at a time.
        self._idle: list[Any] = []
        self._load()
        on_fork(self)

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        """Run with tensors (and numbers) as the signature lists them; returns its results in order."""
        return self.run(args)

    def run(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The same with the arguments in a sequence. This is the hot path: it does nothing twice."""
        loaded = self._loaded or self._load()
        inputs = VmVariantList(self._arity)
        push = inputs.push_ref
        held: list[torch.Tensor] = []
        results = []
        try:
            for arg, slot in zip(args, self._inputs):  # noqa: B905  # strict costs time, and the graph fixes the number
                if slot is None:
                    inputs.push_float(arg) if isinstance(arg, float) else inputs.push_int(int(arg))
                    continue
                view = slot.views.get(arg.data_ptr())
                if view is None or slot.indirect or not arg.is_contiguous():
                    view = slot.import_argument(arg, held)
                push(view)
            # Results are allocated as eager would lay them out, and the program writes them.
            for slot, (sizes, strides) in zip(self._outputs, self._shapes or self._shapes_of(args)):  # noqa: B905
                result = _empty_strided_cpu(sizes, strides, slot.dtype)
                results.append(result)
                address = result.data_ptr()
                view = slot.views.get(address)
                if view is None:
                    view = slot.view(address, sizes if slot.order is None else [sizes[dim] for dim in slot.order])
                push(view)
            try:
                context = self._idle.pop()
            except IndexError:  # other threads have taken all of them
                context = self._new_context(loaded)
            context.invoke(loaded.function, inputs, VmVariantList(self._returned))
        except (RuntimeError, ValueError) as error:
            # The context is not put back: it may hold half of a call's state.
            raise ExecutionError(f"IREE's runtime failed: {error}") from error
        self._idle.append(context)
        return results

    def _load(self) -> _Loaded:
        device = get_device(self.driver)
        try:
            module = VmModule.copy_buffer(device.instance, self.vmfb)
            loaded = _Loaded(device, module, module.lookup_function(ENTRY_POINT))
            self._idle.append(self._new_context(loaded))
        except (RuntimeError, ValueError) as error:
            raise ExecutionError(f"IREE's runtime cannot load the compiled program: {error}") from error
        for slot in (*self._inputs, *self._outputs):
            if slot is not None:
                slot.allocator = device.handle.allocator
        self._loaded = loaded
        return loaded

    @staticmethod
    def _new_context(loaded: _Loaded) -> Any:
        return VmContext(loaded.device.instance, [loaded.device.hal_module, loaded.module])

    def forget_device(self) -> object:
        """Drop everything that belongs to the device, unreleased; the next call loads anew."""
        slots = [slot for slot in (*self._inputs, *self._outputs) if slot is not None]
        inherited = (self._loaded, self._idle, [(slot.allocator, slot.views) for slot in slots])
        self._loaded, self._idle = None, []
        for slot in slots:
            slot.allocator, slot.views = None, {}
        return inherited
