"""``load_mlir``: programs in MLIR that others wrote (JAX, torch_xla, by hand), on torch tensors and arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from turbine_lite.compiler.dialects import INPUT_TYPES, compile_foreign, prepare_foreign, traits_of_foreign
from turbine_lite.compiler.foreign import Function
from turbine_lite.errors import OptionError, UnsupportedError
from turbine_lite.options import Options
from turbine_lite.runtime.checks import check_arguments, in_order, signature_text
from turbine_lite.runtime.loaded import LoadedProgram

__all__ = ["LoadedFunction", "LoadedModule", "load_mlir"]

_MAIN = "main"
_DRIVERS = ("local-sync", "local-task")


def load_mlir(
    source: str | bytes | os.PathLike[str],
    dialect: str = "auto",
    *,
    driver: str = "local-task",
    options: dict[str, Any] | None = None,
) -> LoadedModule:
    """Compile MLIR and load it.

    Args:
        source: a path, or the module itself: text, or bytecode as ``bytes``. StableHLO may be a portable artifact
            (what ``jax.export`` serialises). A path that ends with ``.onnx`` is imported with torch-mlir's importer,
            which needs the package onnx.
        dialect: ``"stablehlo"``, ``"linalg-on-tensors"``, ``"tosa"``, ``"torch"``, ``"torch-backend"``, ``"onnx"``
            (ONNX operators in the torch dialect) or ``"iree-input"``; ``"auto"`` goes by the operations that are in it.
        driver: ``"local-task"`` runs it on as many threads as torch has, ``"local-sync"`` on the caller's.
        options: fields of :class:`turbine_lite.Options`; of these ``target_cpu``, ``opt_level``, ``compile_flags``
            and ``compile_timeout`` matter.

    Returns:
        A module whose public functions can be called with torch tensors or numpy arrays.

    Raises:
        CompilationError: the text is no MLIR that IREE knows, or cannot be compiled.
        OptionError: a dialect, driver or option is unknown.
        OSError: the file cannot be read.
    """
    if dialect not in INPUT_TYPES:
        raise OptionError(f"unknown dialect {dialect!r}; known: {', '.join(INPUT_TYPES)}")
    if driver not in _DRIVERS:
        raise OptionError(f"unknown driver {driver!r}; known: {', '.join(_DRIVERS)}")
    chosen = Options.resolve(options, None)
    prepared = prepare_foreign(_read(source), chosen)
    compiled = compile_foreign(prepared.module or b"", dialect, chosen, traits_of_foreign(prepared))
    return LoadedModule(LoadedProgram(compiled.vmfb, prepared.functions, driver))


class LoadedModule:
    """A compiled MLIR module.

    Calling it calls ``main``, or its only public function; ``module["name"]`` is another one. Results are new memory;
    one result is returned as it is, several in a tuple.
    """

    def __init__(self, program: LoadedProgram) -> None:
        self._program = program

    @property
    def functions(self) -> dict[str, Function]:
        """Its public functions, with names, dtypes and sizes of what they take and return."""
        return dict(self._program.functions)

    def __getitem__(self, name: str) -> LoadedFunction:
        """A function by its name.

        Raises:
            KeyError: there is none.
        """
        if name not in self._program.functions:
            raise KeyError(f"the module has no function {name!r}; it has {', '.join(self._program.functions)}")
        return LoadedFunction(self._program, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``main`` or the only function, with arguments by position or by the names that the module gives them.

        Raises:
            TypeError, ValueError: an argument has another dtype or shape than the function takes, or is missing.
            ExecutionError: the call failed.
        """
        names = list(self._program.functions)
        if _MAIN not in names and len(names) > 1:
            raise TypeError(f"the module has several functions and no main; choose one: {', '.join(names)}")
        return self[_MAIN if _MAIN in names else names[0]](*args, **kwargs)

    def __repr__(self) -> str:
        return f"LoadedModule({'; '.join(map(signature_text, self._program.functions.values()))})"


class LoadedFunction:
    """A function of a :class:`LoadedModule`."""

    def __init__(self, program: LoadedProgram, name: str) -> None:
        self._program, self._name = program, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, see :meth:`LoadedModule.__call__`."""
        function = self._program.functions[self._name]
        results = self._program(self._name, check_arguments(function, in_order(function, args, kwargs)))
        return results[0] if len(results) == 1 else tuple(results)

    def __repr__(self) -> str:
        return f"LoadedFunction({signature_text(self._program.functions[self._name])})"


def _read(source: str | bytes | os.PathLike[str]) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source.encode()
    path = Path(source)
    return _import_onnx(path) if path.suffix == ".onnx" else path.read_bytes()


def _import_onnx(path: Path) -> bytes:
    try:
        import onnx
    except ImportError:
        raise UnsupportedError(f"reading {path} needs the package onnx: pip install onnx") from None
    from torch_mlir import ir
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.extras import onnx_importer

    model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    context = ir.Context()
    torch_dialect.register_dialect(context)
    information = onnx_importer.ModelInfo(model)
    module = information.create_module(context=context).operation
    onnx_importer.NodeImporter.define_function(information.main_graph, module).import_all()
    return str(module).encode()
