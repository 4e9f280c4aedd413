"""``load``: run a package. Needs numpy and IREE's runtime; torch only for who passes tensors of its."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from turbine_lite.compiler.foreign import Function, Value
from turbine_lite.errors import ExecutionError, OptionError
from turbine_lite.packaging.archive import Archive
from turbine_lite.packaging.structure import flatten, unflatten
from turbine_lite.packaging.targets import best_target
from turbine_lite.runtime.checks import check_arguments, check_sizes
from turbine_lite.runtime.loaded import LoadedProgram, aligned_copy, is_torch_tensor

__all__ = ["Package", "PackageFunction", "load"]

_MAIN = "main"


def load(path: str | os.PathLike[str], *, driver: str | None = None, verify: bool = False) -> Package:
    """Load a file that :func:`turbine_lite.save` has written.

    Weights stay in the file, mapped into memory: pages are read when they are needed, and processes share them. The
    file must not be cut off meanwhile. Its programs are machine code: run no package that you would not run a binary
    of.

    Args:
        path: the file.
        driver: ``"local-sync"`` (the caller's thread alone) or ``"local-task"`` (as many threads as torch has, or as
            there are CPUs); None: as the program's size says.
        verify: compare the weights with their hashes, too, which reads all of them. The program's is always compared.

    Raises:
        PackageError: it is no package, damaged, of another format, or has no program that this CPU can run.
        ExecutionError: IREE's runtime does not take the program: it is of another version.
        OSError: the file cannot be read.
    """
    if driver not in (None, "local-sync", "local-task"):
        raise OptionError(f"unknown driver {driver!r}; known: local-sync, local-task")
    return Package(Archive(path), driver, verify=verify)


class Package:
    """A loaded package: call it, or ``package["name"]`` where it has several entry points.

    Arguments are given as the saved program took them, as torch tensors or numpy arrays; results come in the same
    structure, of torch tensors if any argument is one, and new memory. Any number of threads may call; calls wait for
    each other.

    Attributes:
        target: the kind of CPU whose program runs.
        versions: the packages that made it.
    """

    def __init__(self, archive: Archive, driver: str | None, *, verify: bool) -> None:
        described = archive.description
        self._archive = archive
        self._entries: dict[str, Any] = described["entry_points"]
        target = best_target(described["targets"], archive.path)
        self.target = target.name
        self.versions: dict[str, str] = described["versions"]
        get = archive.verified if verify else archive.piece
        pieces = {name: get(f"weight {name}") for name in described["weights"]}
        functions = [_function(entry["function"]) for entry in self._entries.values()]
        named = {weight["parameter"]: pieces[name] for name, weight in described["weights"].items()}
        named.pop(None, None)
        vmfb = bytes(archive.verified(f"program {target.name}"))
        try:
            self._program = LoadedProgram(vmfb, functions, driver or described["driver"], named)
        except ExecutionError as error:
            made = self.versions.get("iree-base-compiler")
            raise ExecutionError(f"{archive.path}: {error}; it was made with iree-base-compiler {made}") from error
        self._initial = {
            name: (pieces[name], weight) for name, weight in described["weights"].items() if weight["parameter"] is None
        }
        self._lock = threading.RLock()
        self._state: dict[str, Any] = {}
        self.reset()

    @property
    def entry_points(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(self._entries)

    def reset(self) -> None:
        """Give what the program writes (caches, counters) the values that it was saved with."""
        with self._lock:
            self._state = {name: _array(piece, weight) for name, (piece, weight) in self._initial.items()}

    def __getitem__(self, name: str) -> PackageFunction:
        """A function by its name.

        Raises:
            KeyError: there is none.
        """
        if name not in self._entries:
            raise KeyError(f"{self._archive.path} has no entry point {name!r}; it has {', '.join(self._entries)}")
        return PackageFunction(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``main``, or the only function.

        Raises:
            TypeError, ValueError: an argument has another structure, dtype or shape than the saved program takes.
            IndexError: an index is out of range (or an integer was divided by zero).
            ExecutionError: the call failed.
        """
        if _MAIN not in self._entries and len(self._entries) > 1:
            raise TypeError(f"the package has several entry points and no main; choose one: {', '.join(self._entries)}")
        return self.call(_MAIN if _MAIN in self._entries else next(iter(self._entries)), args, kwargs)

    def call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function, see :meth:`__call__`."""
        entry, function = self._entries[name], self._program.functions[name]
        inputs = flatten(entry["arguments"], (args, dict(kwargs)))
        state: list[str] = entry["state"]
        wanted = Function(name, function.inputs[len(state) :], ())
        inputs = check_arguments(wanted, inputs)
        check_sizes([(spec["name"], spec["shape"], spec["bounds"]) for spec in entry["inputs"]], inputs)
        with self._lock:
            results = self._program(name, [*(self._state[one] for one in state), *inputs])
            if entry["counts_errors"] and int(results.pop()) != 0:
                raise IndexError("an index is out of range, or an integer was divided by zero")
            targets = self._state | dict(zip((spec["name"] for spec in entry["inputs"]), inputs, strict=True))
            for target, value in zip(entry["writes"], results, strict=False):
                _write(targets[target], value)
        return unflatten(entry["results"], iter(results[len(entry["writes"]) :]))

    def __repr__(self) -> str:
        return f"Package({self._archive.path}: {', '.join(self._entries)}, {self.target})"


class PackageFunction:
    """A function of a :class:`Package`."""

    def __init__(self, package: Package, name: str) -> None:
        self._package, self._name = package, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, see :meth:`Package.__call__`."""
        return self._package.call(self._name, args, kwargs)


def _function(described: Mapping[str, Any]) -> Function:
    values = {
        key: tuple(
            Value(one["name"], one["dtype"], None if one["sizes"] is None else tuple(one["sizes"]))
            for one in described[key]
        )
        for key in ("inputs", "outputs")
    }
    return Function(described["name"], **values)


def _array(piece: memoryview, weight: Mapping[str, Any]) -> Any:
    """A copy of a piece as an array, aligned; of bfloat16, its bits."""
    dtype = np.dtype(np.int16 if weight["dtype"] == "bfloat16" else weight["dtype"])
    return aligned_copy(np.frombuffer(piece, dtype).reshape(weight["shape"]))


def _write(target: Any, value: Any) -> None:
    """Into a tensor or array of the caller's, or an array of the state's."""
    if is_torch_tensor(target):
        target.copy_(value)
        return
    if is_torch_tensor(value):
        value = value.view(_numpys_dtype(value)).numpy()
    target[...] = value.view(target.dtype)


def _numpys_dtype(tensor: Any) -> Any:
    """A dtype of torch's of which numpy has the same: the tensor's own, or its bits."""
    import torch

    return torch.int16 if tensor.dtype is torch.bfloat16 else tensor.dtype
