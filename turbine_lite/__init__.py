"""PyTorch on CPUs through MLIR: ``torch.compile(model, backend="turbine_lite_cpu")``.

Importing this package imports neither torch, torch-mlir nor IREE; each is imported when something needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbine_lite.backend import turbine_lite_cpu
    from turbine_lite.background import wait_for_compilation
    from turbine_lite.composites import composite
    from turbine_lite.diagnostics.explain import explain
    from turbine_lite.diagnostics.profile import profile
    from turbine_lite.errors import (
        CompilationError,
        CompilerCrashError,
        CompilerKilledError,
        CompilerTimeoutError,
        ExecutionError,
        OptionError,
        PackageError,
        TurbineLiteError,
        UnsupportedError,
        VerificationError,
    )
    from turbine_lite.exporting.exported import EntryPoint, ExportedModule, export
    from turbine_lite.foreign_mlir import load_mlir
    from turbine_lite.options import Options
    from turbine_lite.packaging.load import Package, load
    from turbine_lite.packaging.save import save
    from turbine_lite.single_operator import import_node

__version__ = "0.1.0"

__all__ = [
    "CompilationError",
    "CompilerCrashError",
    "CompilerKilledError",
    "CompilerTimeoutError",
    "EntryPoint",
    "ExecutionError",
    "ExportedModule",
    "OptionError",
    "Options",
    "Package",
    "PackageError",
    "TurbineLiteError",
    "UnsupportedError",
    "VerificationError",
    "composite",
    "explain",
    "export",
    "import_node",
    "load",
    "load_mlir",
    "profile",
    "save",
    "turbine_lite_cpu",
    "wait_for_compilation",
]

_HOME = {name: "turbine_lite.errors" for name in __all__ if name.endswith("Error")} | {
    "EntryPoint": "turbine_lite.exporting.exported",
    "ExportedModule": "turbine_lite.exporting.exported",
    "Options": "turbine_lite.options",
    "Package": "turbine_lite.packaging.load",
    "composite": "turbine_lite.composites",
    "export": "turbine_lite.exporting.exported",
    "import_node": "turbine_lite.single_operator",
    "load": "turbine_lite.packaging.load",
    "load_mlir": "turbine_lite.foreign_mlir",
    "save": "turbine_lite.packaging.save",
    "explain": "turbine_lite.diagnostics.explain",
    "profile": "turbine_lite.diagnostics.profile",
    "turbine_lite_cpu": "turbine_lite.backend",
    "wait_for_compilation": "turbine_lite.background",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
