"""The values of parameters that a program was loaded with, and whether the caller's are still the same.

IREE reads a parameter where torch has it, or keeps what it made of it when the program was loaded, such as the layout
that its matmuls want. So a change must be noticed before the next call. Seen are: other memory (``parameter.data =
...``, another module), whatever autograd counts as a write (optimizers, ``load_state_dict``, ``copy_``), and writes
behind autograd's back (``parameter.data.mul_(...)``, numpy) that change one of some elements that are compared on
every call.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from iree import runtime

from turbine_lite.graph.signature import Signature, TensorInput
from turbine_lite.mlir.entry_point import PARAMETER_SCOPE, parameter_name
from turbine_lite.runtime.tensors import is_importable

__all__ = ["ParameterSets", "ParameterValues"]

# So many bytes of the parameters are compared on each call, in runs in the middle of each. Of small models these are
# all.
_COMPARED_BYTES = 20_000
_SHORTEST_RUN = 8

# Sets of values a program may be loaded with at once: layers of a model share a program where each is compiled alone.
_MOST_SETS = 64

# A program that is loaded anew so many times in a row, each time after fewer calls than this, is not worth it.
_HASTY_LOADS = 4
_FEW_CALLS = 8


class ParameterValues:
    """One value for each parameter of a program; the tensors themselves are not kept alive.

    Args:
        specs: position of the argument and what it is, for each parameter.
        tensors: the values, in the same order.
        on_death: called when the first of the tensors is gone.
    """

    def __init__(
        self,
        specs: Sequence[tuple[int, TensorInput]],
        tensors: Sequence[torch.Tensor],
        on_death: Callable[[object], None],
    ) -> None:
        self._positions = [position for position, _ in specs]
        self._watched = [weakref.ref(tensor, on_death) for tensor in tensors]
        self._addresses = [tensor.data_ptr() for tensor in tensors]
        self._versions = [tensor._version for tensor in tensors]
        ordered = [
            tensor.detach() if spec.order is None else tensor.detach().permute(spec.order)
            for (_, spec), tensor in zip(specs, tensors, strict=True)
        ]
        longest = _longest_run([tensor.numel() * tensor.itemsize for tensor in ordered])
        # Python joins those of 6 parameters in 3 us, of 200 in 40; torch.cat and torch.equal took 20 and 90.
        self._samples = [_bytes_in_the_middle(tensor, longest).numpy().data for tensor in ordered]
        self._compared = b"".join(self._samples)
        self._ordered = ordered
        self._dense: list[torch.Tensor] = []

    def are(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether the tensors, which lie where those lay, hold the same values still."""
        if [tensor._version for tensor in tensors] != self._versions:
            return False
        return b"".join(self._samples) == self._compared

    def changed(self, tensors: Sequence[torch.Tensor]) -> set[int]:
        """The positions of parameters that were written, or whose tensor has other memory now.

        Other tensors altogether are no change: they are another module's.
        """
        positions = set()
        start = 0
        for index, tensor in enumerate(tensors):
            sample = self._samples[index]
            end = start + len(sample)
            if self._watched[index]() is tensor and (
                tensor.data_ptr() != self._addresses[index]
                or tensor._version != self._versions[index]
                or sample != self._compared[start:end]
            ):
                positions.add(self._positions[index])
            start = end
        return positions

    def module(self, instance: Any) -> Any:
        """A VM module that gives the values to a program."""
        # Where IREE cannot use torch's memory it has a copy.
        self._dense = [
            tensor if is_importable(tensor) else tensor.clone(memory_format=torch.contiguous_format)
            for tensor in self._ordered
        ]
        index = runtime.ParameterIndex()
        for position, tensor in zip(self._positions, self._dense, strict=True):
            size = tensor.numel() * tensor.itemsize
            memory = (ctypes.c_char * size).from_address(tensor.data_ptr())
            index.add_buffer(parameter_name(position), memory)
        return runtime.create_io_parameters_module(instance, index.create_provider(scope=PARAMETER_SCOPE))


class ParameterSets:
    """What a program was loaded with, and what came of it, for each set of parameters that it is called with."""

    def __init__(self, signature: Signature) -> None:
        self._specs = [
            (index, spec)
            for index, spec in enumerate(signature.inputs)
            if isinstance(spec, TensorInput) and spec.parameter
        ]
        parameters = set(signature.parameters)
        self._others = [index for index in range(len(signature.inputs)) if index not in parameters]
        self._sets: dict[tuple[int, ...], tuple[ParameterValues, Any]] = {}
        self._calls = 0  # since a set was loaded in another's place
        self._hasty = 0
        self._changing: set[int] = set()

    def split(self, args: Sequence[Any]) -> tuple[list[torch.Tensor], list[Any]]:
        """The parameters of the arguments, and all others."""
        return [args[position] for position, _ in self._specs], [args[position] for position in self._others]

    def find(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What was put for these parameters if they still hold the same values, else None."""
        values, program = self._sets.get(_key(tensors), (None, None))
        if values is None or not values.are(tensors):
            return None
        self._calls += 1
        return program

    def new_values(self, tensors: Sequence[torch.Tensor]) -> ParameterValues | None:
        """Values to load the program with; None if these parameters are not to be loaded, see :meth:`changing`."""
        if any(tensor.is_inference() for tensor in tensors):  # torch does not count writes to these
            self._changing.update(position for position, _ in self._specs)
            return None
        self._drop_outdated(tensors)
        if self._hasty > _HASTY_LOADS:
            return None
        me, key = weakref.ref(self), _key(tensors)
        return ParameterValues(self._specs, tensors, functools.partial(_forget, me, key))

    def put(self, tensors: Sequence[torch.Tensor], values: ParameterValues, program: Any) -> None:
        """Keep what came of loading the program with these values."""
        self._sets[_key(tensors)] = (values, program)

    def loaded(self) -> list[Any]:
        """What was put, for all sets."""
        return [program for _, program in self._sets.values()]

    @property
    def changing(self) -> frozenset[int]:
        """Positions of the parameters that keep changing."""
        return frozenset(self._changing)

    def clear(self) -> object:
        """Forget all sets; returns them, for who must not destroy them."""
        sets, self._sets = self._sets, {}
        return sets

    def forget(self, key: tuple[int, ...]) -> None:
        """Drop a set of which a tensor is gone."""
        if self._sets.pop(key, None) is not None:
            self._count_change({position for position, _ in self._specs}, 0)

    def _drop_outdated(self, tensors: Sequence[torch.Tensor]) -> None:
        """Drop the sets in whose place these values are."""
        changed: set[int] = set()
        for key, (values, _) in list(self._sets.items()):
            positions = values.changed(tensors)
            if positions or key == _key(tensors):
                changed |= positions
                del self._sets[key]
        if len(self._sets) >= _MOST_SETS:
            del self._sets[next(iter(self._sets))]
            changed.update(position for position, _ in self._specs)
        if changed:
            self._count_change(changed, self._calls)

    def _count_change(self, positions: set[int], calls: int) -> None:
        if calls >= _FEW_CALLS:
            self._hasty = 0
            self._changing.clear()
        self._hasty += 1
        self._changing |= positions
        self._calls = 0


def _forget(sets: weakref.ref[ParameterSets], key: tuple[int, ...], _tensor: object) -> None:
    owner = sets()
    if owner is not None:
        owner.forget(key)


def _key(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    return tuple([tensor.data_ptr() for tensor in tensors])


def _longest_run(sizes: Sequence[int]) -> int:
    """How many bytes of each parameter to compare: smaller ones are compared whole, and larger ones share the rest."""
    left = _COMPARED_BYTES
    for count, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - count)
        if size > share:
            return max(share, _SHORTEST_RUN)
        left -= size
    return max(sizes)


def _bytes_in_the_middle(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """Some bytes of the tensor's own memory; those of one element if it has gaps."""
    if not tensor.is_contiguous():
        return tensor[tuple(size // 2 for size in tensor.shape)].view(1).view(torch.uint8)
    flat = tensor.view(-1).view(torch.uint8)
    start = max(0, flat.numel() - most) // 2
    return flat[start : start + most]
