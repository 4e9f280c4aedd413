"""CPUs that packages are compiled for, and whether this machine's is one of them."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, NamedTuple

from turbine_lite.errors import OptionError, PackageError

__all__ = ["TARGETS", "Target", "best_target", "target_of"]

_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


class Target(NamedTuple):
    """A kind of CPU.

    Attributes:
        name: what ``targets`` calls it.
        machine: as ``platform.machine`` has it.
        cpu: LLVM's name.
        triple: LLVM's, or empty for this machine's.
        features: what a CPU must have, as ``/proc/cpuinfo`` calls it. The levels of x86-64 are those of the psABI.
    """

    name: str
    machine: str
    cpu: str
    triple: str
    features: tuple[str, ...]

    def flags(self) -> tuple[str, ...]:
        """IREE's."""
        return (f"--iree-llvmcpu-target-triple={self.triple}",) if self.triple else ()

    def missing_here(self) -> str:
        """What this machine lacks, in words; empty if it can run it."""
        if platform.machine() != self.machine:
            return f"it is for {self.machine}, and this is {platform.machine()}"
        missing = sorted(set(self.features) - _features_here())
        return f"this CPU has no {', '.join(missing)}" if missing else ""


TARGETS = {
    target.name: target
    for target in (
        Target("x86-64-v4", "x86_64", "x86-64-v4", "x86_64-unknown-linux-gnu", _V4),
        Target("x86-64-v3", "x86_64", "x86-64-v3", "x86_64-unknown-linux-gnu", _V3),
        Target("aarch64", "aarch64", "generic", "aarch64-unknown-linux-gnu", ("asimd",)),
    )
}

# Instructions that LLVM may use when it compiles for the host; others in /proc/cpuinfo are none of its business.
_ISA = (
    "avx",
    "amx",
    "fma",
    "f16c",
    "bmi",
    "abm",
    "movbe",
    "sse",
    "ssse",
    "popcnt",
    "asimd",
    "sve",
    "fp",
    "i8mm",
    "bf16",
)


def target_of(name: str) -> Target:
    """A target by its name; ``"host"`` is this machine.

    Raises:
        OptionError: there is none.
    """
    if name == "host":
        features = tuple(sorted(feature for feature in _features_here() if feature.startswith(_ISA)))
        return Target("host", platform.machine(), "host", "", features)
    if name not in TARGETS:
        raise OptionError(f"unknown target {name!r}; known: host, {', '.join(TARGETS)}")
    return TARGETS[name]


def best_target(described: list[dict[str, Any]], path: Path) -> Target:
    """Of the targets of a package, the first that this machine can run; they are in the order of preference.

    Raises:
        PackageError: there is none.
    """
    targets = [Target(**{**entry, "features": tuple(entry["features"])}) for entry in described]
    reasons = []
    for target in targets:
        missing = target.missing_here()
        if not missing:
            return target
        reasons.append(f"{target.name}: {missing}")
    raise PackageError(f"{path} has no program for this machine ({'; '.join(reasons)}); save it with targets that fit")


def _features_here() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    found = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return set(next(found, []))
