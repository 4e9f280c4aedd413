"""What the command line calls a model, and its inputs. torch is imported when there is one."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from turbine_lite.errors import TurbineLiteError

if TYPE_CHECKING:
    import torch

__all__ = [
    "INPUT_HELP",
    "MODEL_HELP",
    "Model",
    "ModelError",
    "check_folder_of",
    "load_inputs",
    "load_model",
    "load_tried_model",
]

MODEL_HELP = (
    "FILE.py:NAME or PACKAGE.MODULE:NAME (NAME is 'model' if left out): a torch.nn.Module, a class of one, a function "
    "of the inputs, or a function without parameters that returns one of these, or one and a tuple of its inputs"
)
INPUT_HELP = (
    "one for each argument: sizes and type, such as 1x3x224x224xf32, filled with random numbers (seed 0); of whole "
    "numbers 0 to 9, or those of a range, such as 1x128xi64=0:30000"
)

_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
_INPUT = re.compile(r"(?P<sizes>(\d+x)*)(?P<dtype>[a-z]+\d*)(=(?P<low>-?\d+):(?P<high>-?\d+))?")


class ModelError(TurbineLiteError, ValueError):
    """What the command line says names no model, or no inputs of it."""


class Model(NamedTuple):
    """A function or module, and the arguments to call it with.

    ``trains``: it is called as in training, and the gradient of the sum of its results is computed.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    trains: bool

    def copy(self) -> Model:
        """One that shares nothing with it, if its parts can be copied: a call may change them."""
        try:
            function, args = copy.deepcopy((self.function, self.args))
        except Exception:  # whatever an object raises that is not made for it
            return self
        return Model(function, args, self.trains)

    def step(self, function: Callable[..., Any]) -> Any:
        """Call ``function``, which is this one or what was made of it; returns its results."""
        import torch

        from turbine_lite.diagnostics.gradients import backpropagate

        with contextlib.nullcontext() if self.trains else torch.no_grad():
            results = function(*self.args)
        if self.trains:
            backpropagate(results)
        return results


def load_model(name: str, inputs: Sequence[str], *, trains: bool = False) -> Model:
    """Find a model and make its inputs.

    Raises:
        ModelError: there is no such file, module or name, it is none of what ``MODEL_HELP`` says, or an input cannot be
            read.
    """
    import torch

    torch.manual_seed(0)
    found = _look_up(name)
    given: tuple[Any, ...] | None = None
    if inspect.isclass(found) or (inspect.isroutine(found) and not inspect.signature(found).parameters and not inputs):
        found = _made_by(name, found)
        if isinstance(found, tuple) and len(found) == 2:
            found, given = found[0], tuple(found[1]) if isinstance(found[1], (tuple, list)) else (found[1],)
    if not callable(found):
        raise ModelError(f"{name} is of type {type(found).__name__}, which cannot be called; it must be {MODEL_HELP}")
    if isinstance(found, torch.nn.Module):
        found.train(trains)
    args = given if given is not None and not inputs else tuple(map(_input, inputs))
    return Model(found, args, trains)


def load_tried_model(name: str, inputs: Sequence[str], *, trains: bool = False) -> Model:
    """The model, a copy of which has run in eager: what is wrong with it or its inputs is best told there."""
    model = load_model(name, inputs, trains=trains)
    tried = model.copy()
    tried.step(tried.function)
    return model


def check_folder_of(file: Path | None) -> None:
    """Better before minutes of work than after.

    Raises:
        ModelError: there is no such directory.
    """
    if file is not None and not file.parent.is_dir():
        raise ModelError(f"cannot write {file}: there is no directory {file.parent}")


def load_inputs(inputs: Sequence[str]) -> tuple[Any, ...]:
    """The tensors that ``INPUT_HELP`` says.

    Raises:
        ModelError: one cannot be read.
    """
    import torch

    torch.manual_seed(0)
    return tuple(map(_input, inputs))


def _made_by(name: str, factory: Callable[[], Any]) -> Any:
    try:
        return factory()
    except Exception as error:  # the user's code may raise anything
        raise ModelError(f"{name}() failed: {type(error).__name__}: {error}") from error


def _look_up(name: str) -> Any:
    where, _, attribute = name.partition(":")
    module = _import(where)
    value: Any = module
    for part in (attribute or "model").split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            public = sorted(key for key, item in vars(module).items() if not key.startswith("_") and callable(item))
            raise ModelError(
                f"{where} has no {attribute or 'model'!r}; what can be called there: {', '.join(public) or 'nothing'}"
            ) from None
    return value


def _import(where: str) -> ModuleType:
    try:
        if not where.endswith(".py"):
            with _first_on_path(Path.cwd()):
                return importlib.import_module(where)
        path = Path(where).resolve()
        if not path.is_file():
            raise ModelError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # as an import does: classes are found through it
        with _first_on_path(path.parent):
            spec.loader.exec_module(module)
        return module
    except ModelError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ModelError(f"cannot import {where}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _input(text: str) -> torch.Tensor:
    import torch

    match = _INPUT.fullmatch(text)
    if match is None or match["dtype"] not in _DTYPES:
        raise ModelError(f"input {text!r} is not sizes and a type such as 2x3xf32; types: {', '.join(_DTYPES)}")
    sizes = [int(size) for size in match["sizes"].split("x") if size]
    dtype: torch.dtype = getattr(torch, _DTYPES[match["dtype"]])
    if dtype.is_floating_point or dtype.is_complex:
        if match["low"] is not None:
            raise ModelError(f"input {text!r}: a range is for whole numbers")
        return torch.randn(sizes, dtype=dtype)
    low, high = (int(match["low"]), int(match["high"])) if match["low"] is not None else (0, 10)
    if low >= high:
        raise ModelError(f"input {text!r}: the range from {low} to below {high} is empty")
    if dtype is torch.bool:
        return torch.rand(sizes) < 0.5
    return torch.randint(low, high, sizes, dtype=dtype)
