"""What a compiled program depends on, as named parts: two keys can be compared part by part."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from turbine_lite.compiler.flags import FlagSet
from turbine_lite.environment import cpu_description, installed_versions

__all__ = ["CacheKey", "cache_key"]

# To be raised when entries of the cache, or what a part stands for, change their meaning.
_FORMAT = 1

_HOST = "=host"


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """Named parts with their values: anything that JSON has."""

    values: Mapping[str, Any]

    @functools.cached_property
    def parts(self) -> dict[str, str]:
        """The SHA-256 of each part, in hexadecimal digits."""
        return {name: _sha256(value) for name, value in self.values.items()}

    @functools.cached_property
    def digest(self) -> str:
        """One hash for all of them."""
        return _sha256(self.parts)

    def differs_in(self, other: CacheKey) -> tuple[str, ...]:
        """The names of the parts in which another key differs from this one."""
        names = sorted({*self.parts, *other.parts})
        return tuple(name for name in names if self.parts.get(name) != other.parts.get(name))

    def __str__(self) -> str:
        return " ".join(f"{name}={value[:8]}" for name, value in self.parts.items())


def cache_key(
    *,
    program: str,
    calling_convention: str,
    purpose: str,
    flag_sets: Sequence[FlagSet],
    compiler: str,
    tag: str,
) -> CacheKey:
    """The key of a compilation.

    Args:
        program: the module in the torch dialect, without locations.
        calling_convention: types of the entry point's arguments and results, and its name.
        purpose: what the compiler is asked for: all of the pipeline, or a part of it.
        flag_sets: the flags that are tried in turn.
        compiler: where it runs; IREE takes flags in another way within a process that has other sessions.
        tag: the user's own.
    """
    flags = [[flags.name, _sorted(flags.session), _sorted(flags.process_only)] for flags in flag_sets]
    is_for_host = any(flag.endswith(_HOST) for flags in flag_sets for flag in flags.of_process())
    values = {
        "format": _FORMAT,
        "program": program,
        "calling convention": calling_convention,
        "pipeline": purpose,
        "flags": [flags, compiler],
        # Programs for a CPU that is named can be used by any machine that has one.
        "cpu": cpu_description() if is_for_host else "",
        "versions": installed_versions(),
        "tag": tag,
    }
    return CacheKey(values)


def _sorted(flags: Sequence[str]) -> list[str]:
    """By name; of flags of one name, the last one counts."""
    return sorted(
        (flag.removesuffix(_HOST) if flag.endswith(_HOST) else flag for flag in flags),
        key=lambda flag: flag.partition("=")[0],
    )


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
