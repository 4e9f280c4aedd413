"""A compiled region as a Python callable on torch tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from iree.runtime import VmContext, VmModule, VmVariantList

# What inductor's generated code allocates with: half the time of torch.empty_strided.
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

from turbine_lite.errors import ExecutionError
from turbine_lite.graph.signature import Signature, TensorInput
from turbine_lite.mlir.entry_point import ENTRY_POINT
from turbine_lite.runtime.device import Device, get_device, on_fork
from turbine_lite.runtime.parameters import ParameterSets
from turbine_lite.runtime.staging import LARGEST, Staged
from turbine_lite.runtime.tensors import are_contiguous, element_type, is_importable
from turbine_lite.runtime.views import view_memory

__all__ = ["Hooks", "SpecializedExecutable"]

# Buffer views kept for each argument and result. Weights stay where they are and allocators hand out the same
# addresses again, so a few suffice; a program that walks through memory must not fill this process with views.
_KEPT_VIEWS = 32
_KEPT_LISTS = 8

# Calls in a row with tensors at new addresses, after which small ones are copied.
_MOVES = 16


class _Slot:
    """One tensor argument or result and the buffer views of the addresses at which it has been.

    ``views`` stays empty where an address does not tell what to view there, that is, where sizes are dynamic.
    """

    __slots__ = ("allocator", "dtype", "element", "negated", "order", "static", "views")

    def __init__(
        self, dtype: torch.dtype, order: tuple[int, ...] | None, *, static: bool, negated: bool = False
    ) -> None:
        self.dtype = dtype
        self.order = order
        self.static = static
        self.negated = negated
        self.element = element_type(dtype)
        self.allocator: Any = None
        self.views: dict[int, Any] = {}

    @property
    def is_direct(self) -> bool:
        """Whether an address says all there is to know about the tensor, if that is row-major."""
        return self.static and self.order is None and not self.negated

    def import_argument(self, tensor: torch.Tensor, held: list[torch.Tensor]) -> Any:
        """A buffer view of an argument, or of a copy (put into ``held``) where its memory cannot be used in place."""
        if self.negated:
            tensor = tensor.resolve_neg()
            held.append(tensor)
        if self.order is not None:
            tensor = tensor.permute(self.order)
        if not is_importable(tensor):
            tensor = tensor.clone(memory_format=torch.contiguous_format)
            held.append(tensor)
        return self._kept_view(tensor.data_ptr(), tensor.shape)

    def import_result(self, tensor: torch.Tensor) -> Any:
        """A buffer view of a result that was allocated for the program to write."""
        return self._kept_view(tensor.data_ptr(), self.shape_of(tensor))

    def shape_of(self, tensor: torch.Tensor) -> Sequence[int]:
        """The sizes in the order in which they lie in memory."""
        return tensor.shape if self.order is None else tensor.permute(self.order).shape

    def view(self, address: int, shape: Sequence[int]) -> Any:
        """A buffer view of an address."""
        return view_memory(self.allocator, address, shape, self.dtype.itemsize, self.element)

    def _kept_view(self, address: int, shape: Sequence[int]) -> Any:
        view = self.views.get(address) if self.static else None
        if view is None:
            view = self.view(address, shape)
            if self.static and address:
                if len(self.views) >= _KEPT_VIEWS:
                    self.views.clear()
                self.views[address] = view
        return view


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """What belongs to one device; made anew in the child of a fork."""

    device: Device
    module: Any
    function: Any
    # What the program asks for when a context is made: modules with its parameters.
    needs: tuple[Any, ...] = ()
    # VM contexts that no call is using. A context serves one call at a time.
    idle: list[Any] = dataclasses.field(default_factory=list)
    # The same of memory for small tensors.
    staged: list[Staged] = dataclasses.field(default_factory=list)

    def new_context(self) -> Any:
        return VmContext(self.device.instance, [self.device.hal_module, *self.needs, self.module])


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What an executable turns to.

    Attributes:
        in_eager: runs the same region in eager; called where an index is out of range.
        on_failure: called with the error when a call fails for the first time; returns what runs in the program's
            place, for this call and all later ones. None: the error is raised.
        on_change: called with the positions of parameters that change too often to load them each time; returns what
            runs in the program's place from then on. None: such a call fails.
    """

    in_eager: Callable[..., Any] | None = None
    on_failure: Callable[[ExecutionError], Callable[..., Any]] | None = None
    on_change: Callable[[frozenset[int]], Callable[..., Any]] | None = None


class SpecializedExecutable:
    """Runs one VMFB; specialised on a signature (dtypes, ranks, strides), called with tensors of that signature.

    Calling it returns new, ordinary torch tensors. Arguments are read in place where their memory is dense and
    aligned, and never written. Any number of threads may call it at once, also in the child of a fork.

    Raises:
        IndexError: an index is out of range and there is no ``in_eager``.
        ExecutionError: the runtime refused the VMFB, or reported an error during a call.
    """

    def __init__(self, vmfb: bytes, signature: Signature, driver: str, hooks: Hooks | None = None) -> None:
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
            if not (isinstance(spec, TensorInput) and spec.parameter)
        ]
        self._parameters = ParameterSets(signature) if signature.parameters else None
        self._outputs = [_Slot(spec.dtype, spec.order, static=static) for spec in signature.outputs]
        self._slots = [slot for slot in (*self._inputs, *self._outputs) if slot is not None]
        self._returned = sum(slot is not None for slot in self._inputs)
        dtypes = [spec.dtype for spec in signature.outputs]
        self._shapes = None if signature.shapes is None else list(zip(signature.shapes, dtypes, strict=True))
        dynamic_shapes = signature.shapes_of()

        def shapes_of(args: Sequence[Any]) -> list[Any]:
            return list(zip(dynamic_shapes(args), dtypes, strict=True))

        self._shapes_of = shapes_of
        # VM argument lists by the addresses in them.
        self._lists: dict[tuple[int, ...], Any] = {}
        # How often in a row the memory was not where it had been, of small tensors; -1 for others.
        self._moves = 0
        self._keeps_lists = static and all(slot is not None and slot.is_direct for slot in self._inputs)
        self._counts_errors = signature.counts_errors
        self._hooks = hooks or Hooks()
        self._instead: Callable[..., Any] | None = None
        self._loaded: _Loaded | None = None
        self._load()
        on_fork(self)

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        """Run with tensors (and numbers) as the signature lists them; returns its results in order."""
        return self.run(args)

    def run(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The same with the arguments in a sequence. This is the hot path: it does nothing twice."""
        if self._instead is not None:
            return self._run_instead(args)
        held: list[torch.Tensor] = []  # copies of arguments live as long as the call
        try:
            loaded = self._loaded or self._load()
            given = args
            if self._parameters is not None:
                found = self._with_parameters(loaded, args)
                if found is None:
                    return self._run_instead(args)
                loaded, given = found
            # Results are allocated as eager would lay them out, and the program writes them.
            shapes = self._shapes or self._shapes_of(args)
            results = [_empty_strided_cpu(*sizes_and_strides, dtype) for sizes_and_strides, dtype in shapes]
            staged = self._stage(loaded, given, results) if self._moves >= _MOVES else None
            inputs = staged.arguments if staged is not None else self._argument_list(given, results, held)
            try:
                context = loaded.idle.pop()
            except IndexError:  # other threads have taken all of them
                context = loaded.new_context()
            context.invoke(loaded.function, inputs, VmVariantList(self._returned))
            if staged is not None:
                staged.take(results)
                loaded.staged.append(staged)
        except (RuntimeError, ValueError) as error:
            # The context is not put back: it may hold half of a call's state.
            return self._run_otherwise(args, error)
        loaded.idle.append(context)
        if self._counts_errors and results.pop().item():
            return self._run_to_fail(args)
        return results

    def _stage(self, loaded: _Loaded, args: Sequence[Any], results: list[torch.Tensor]) -> Staged | None:
        """Memory with the arguments in it; None where an argument is not as the program wants it in memory."""
        if not are_contiguous(args):
            return None
        try:
            staged = loaded.staged.pop()
        except IndexError:  # the first call, or other threads have taken all of them
            shapes = [slot.shape_of(tensor) for slot, tensor in zip(self._slots, (*args, *results), strict=True)]
            sizes = [tensor.nbytes for tensor in (*args, *results)]
            staged = Staged(self._slots, shapes, sizes, len(args))
        staged.put(args)
        return staged

    def _can_stage(self, args: Sequence[Any], results: list[torch.Tensor]) -> bool:
        sizes: list[int] = [tensor.nbytes for tensor in (*args, *results)]
        return min(sizes) > 0 and sum(sizes) <= LARGEST

    def _argument_list(self, args: Sequence[Any], results: list[torch.Tensor], held: list[torch.Tensor]) -> Any:
        """What the VM function is called with. A list is used again when all memory is where it was."""
        key = None
        if self._keeps_lists:
            key = (*[arg.data_ptr() for arg in args], *[result.data_ptr() for result in results])
            kept = self._lists.get(key)
            if kept is not None and are_contiguous(args):
                self._moves = min(self._moves, 0)
                return kept
            if self._moves >= 0:
                self._moves = self._moves + 1 if self._can_stage(args, results) else -1
        inputs = VmVariantList(len(self._inputs) + len(self._outputs))
        for arg, slot in zip(args, self._inputs, strict=True):
            if slot is not None:
                inputs.push_ref(slot.import_argument(arg, held))
            elif isinstance(arg, float):
                inputs.push_float(arg)
            else:
                inputs.push_int(int(arg))
        for result, slot in zip(results, self._outputs, strict=True):
            inputs.push_ref(slot.import_result(result))
        if key is not None and not held:
            if len(self._lists) >= _KEPT_LISTS:
                self._lists.clear()
            self._lists[key] = inputs
        return inputs

    def _run_otherwise(self, args: Sequence[Any], error: Exception) -> list[torch.Tensor]:
        # Sound at any moment: a call that fails has changed none of its arguments.
        failure = error if isinstance(error, ExecutionError) else ExecutionError(f"IREE's runtime failed: {error}")
        if self._hooks.on_failure is None:
            raise failure from error
        if self._instead is None:
            self._instead = self._hooks.on_failure(failure)
            self._loaded = None
        return self._run_instead(args)

    def _run_instead(self, args: Sequence[Any]) -> list[torch.Tensor]:
        assert self._instead is not None
        return list(self._instead(*args))

    def _run_to_fail(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """What eager makes of an index that is out of range: it raises the error that its user expects."""
        if self._hooks.in_eager is None:
            raise IndexError("an index is out of range")
        return list(self._hooks.in_eager(*args))

    def _with_parameters(self, loaded: _Loaded, args: Sequence[Any]) -> tuple[_Loaded, list[Any]] | None:
        """The program loaded with the parameters among the arguments, and the other arguments.

        None where they change too often; then ``_instead`` is set.
        """
        assert self._parameters is not None
        tensors, others = self._parameters.split(args)
        program = self._parameters.find(tensors)
        if program is not None:
            return program, others
        values = self._parameters.new_values(tensors)
        if values is None:
            if self._hooks.on_change is None:
                raise ExecutionError("parameters of the program change too often to load it with them")
            self._instead = self._hooks.on_change(self._parameters.changing)
            self._loaded = None
            self._parameters.clear()
            return None
        program = dataclasses.replace(loaded, needs=(values.module(loaded.device.instance),), idle=[], staged=[])
        program.idle.append(program.new_context())  # which computes all that depends on nothing but parameters
        self._parameters.put(tensors, values, program)
        return program, others

    def _load(self) -> _Loaded:
        device = get_device(self.driver)
        try:
            module = VmModule.copy_buffer(device.instance, self.vmfb)
            loaded = _Loaded(device, module, module.lookup_function(ENTRY_POINT))
            if self._parameters is None:
                loaded.idle.append(loaded.new_context())
        except (RuntimeError, ValueError) as error:
            raise ExecutionError(f"IREE's runtime cannot load the compiled program: {error}") from error
        for slot in self._slots:
            slot.allocator = device.handle.allocator
        self._loaded = loaded
        return loaded

    def wrap_contexts(self, wrap: Callable[[Any], Any]) -> None:
        """Put what ``wrap`` makes of them in the place of the VM contexts that no call is using, to watch them."""
        sets = () if self._parameters is None else self._parameters.loaded()
        for loaded in (self._loaded, *sets):
            if loaded is not None:
                loaded.idle[:] = [wrap(context) for context in loaded.idle]

    def forget_device(self) -> object:
        """Drop everything that belongs to the device, unreleased; the next call loads anew."""
        views = [(slot.allocator, slot.views) for slot in self._slots]
        inherited = (self._loaded, views, self._lists, self._parameters and self._parameters.clear())
        self._loaded, self._lists = None, {}
        for slot in self._slots:
            slot.allocator, slot.views = None, {}
        return inherited
