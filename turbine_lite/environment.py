"""What compiled programs depend on outside of them: the versions that are installed, and this machine's CPU."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import platform
from pathlib import Path

import turbine_lite

__all__ = ["cpu_description", "installed_versions", "is_by_intel"]

_PACKAGES = ("torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime")

# What LLVM tells CPUs apart by.
_CPU_LINES = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU ")


@functools.cache
def installed_versions() -> dict[str, str]:
    """By the packages' names."""
    return {"turbine-lite": turbine_lite.__version__} | {name: importlib.metadata.version(name) for name in _PACKAGES}


@functools.cache
def cpu_description() -> str:
    """This machine's CPU, model and features, where the system tells."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(_CPU_LINES)}))
    return f"{platform.machine()} {platform.processor()}"


@functools.cache
def is_by_intel() -> bool:
    """Whether the CPU is one of Intel's, for which MKL is made."""
    return "GenuineIntel" in cpu_description()
