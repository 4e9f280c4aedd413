"""Which versions of this package, and of what it compiles with, are installed."""

from __future__ import annotations

import importlib.metadata

import turbine_lite

__all__ = ["installed_versions"]

_PACKAGES = ("torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime")


def installed_versions() -> dict[str, str]:
    """By the packages' names."""
    return {"turbine-lite": turbine_lite.__version__} | {name: importlib.metadata.version(name) for name in _PACKAGES}
