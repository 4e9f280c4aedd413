"""A compiled region as a Python callable on torch tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from iree.runtime import VmContext, VmModule, VmVariantList

from turbine_lite.errors import ExecutionError
from turbine_lite.graph.signature import Signature, TensorInput
from turbine_lite.mlir.entry_point import ENTRY_POINT
from turbine_lite.runtime.device import Device, get_device, on_fork
from turbine_lite.runtime.tensors import element_type, importer_for_reading, importer_for_writing, make_dense

__all__ = ["SpecializedExecutable"]


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """What belongs to one device; made anew in the child of a fork."""

    device: Device
    module: Any
    function: Any
    import_tensor: Any
    import_destination: Any


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
        # (is a tensor, order, negated) of each argument.
        self._inputs = [
            (True, spec.order, spec.negated) if isinstance(spec, TensorInput) else (False, None, False)
            for spec in signature.inputs
        ]
        self._outputs = [(spec.dtype, spec.order, element_type(spec.dtype)) for spec in signature.outputs]
        self._shapes_of = None if signature.shapes is not None else signature.shapes_of()
        self._returned = sum(1 for is_tensor, _, _ in self._inputs if is_tensor)
        self._loaded: _Loaded | None = None
        # VM contexts that no call is using. A context serves one call at a time.
        self._idle: list[Any] = []
        self._load()
        on_fork(self)

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """Run with tensors (and numbers) as the signature lists them; returns its results in order."""
        loaded = self._loaded or self._load()
        shapes = self.signature.shapes if self._shapes_of is None else self._shapes_of(args)
        inputs = VmVariantList(len(self._inputs) + len(self._outputs))
        returned = VmVariantList(self._returned)
        held: list[torch.Tensor] = []  # copies live as long as the buffer views that read them
        try:
            self._push_arguments(loaded, inputs, args, held)
            results = self._push_destinations(loaded, inputs, shapes)
            context = self._take_context(loaded)
            context.invoke(loaded.function, inputs, returned)
        except (RuntimeError, ValueError) as error:
            # The context is not put back: it may hold half of a call's state.
            raise ExecutionError(f"IREE's runtime failed: {error}") from error
        self._idle.append(context)
        return results

    def _push_arguments(self, loaded: _Loaded, inputs: Any, args: Sequence[Any], held: list[torch.Tensor]) -> None:
        import_tensor, push = loaded.import_tensor, inputs.push_ref
        for arg, (is_tensor, order, negated) in zip(args, self._inputs, strict=True):
            if not is_tensor:
                inputs.push_float(arg) if isinstance(arg, float) else inputs.push_int(int(arg))
                continue
            if negated:
                arg = arg.resolve_neg()
            if order is not None:
                arg = arg.permute(order)
            dense = make_dense(arg)
            if dense is not arg:
                held.append(dense)
            push(import_tensor(dense))

    def _push_destinations(self, loaded: _Loaded, inputs: Any, shapes: Any) -> tuple[torch.Tensor, ...]:
        import_destination, push = loaded.import_destination, inputs.push_ref
        results = []
        for (dtype, order, element), (sizes, strides) in zip(self._outputs, shapes, strict=True):
            result = torch.empty_strided(sizes, strides, dtype=dtype)
            shape = list(sizes) if order is None else [sizes[dim] for dim in order]
            push(import_destination(result, shape, element))
            results.append(result)
        return tuple(results)

    def _load(self) -> _Loaded:
        device = get_device(self.driver)
        try:
            module = VmModule.copy_buffer(device.instance, self.vmfb)
            function = module.lookup_function(ENTRY_POINT)
            loaded = _Loaded(device, module, function, importer_for_reading(device), importer_for_writing(device))
            self._idle.append(self._new_context(loaded))
        except (RuntimeError, ValueError) as error:
            raise ExecutionError(f"IREE's runtime cannot load the compiled program: {error}") from error
        self._loaded = loaded
        return loaded

    def _take_context(self, loaded: _Loaded) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_context(loaded)

    @staticmethod
    def _new_context(loaded: _Loaded) -> Any:
        return VmContext(loaded.device.instance, [loaded.device.hal_module, loaded.module])

    def forget_device(self) -> object:
        """Drop everything that belongs to the device, unreleased; the next call loads anew."""
        inherited = (self._loaded, self._idle)
        self._loaded, self._idle = None, []
        return inherited
