"""Why a program is not in the cache: the entry most like it, and the parts of the key in which that one differs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from turbine_lite.compiler.cache import CacheDirectory, DamagedEntryError
from turbine_lite.compiler.cache_key import CacheKey

__all__ = ["Nearest", "keys_in", "nearest_entry"]


@dataclasses.dataclass(frozen=True)
class Nearest:
    """An entry that is not the one that was looked for.

    Attributes:
        digest: its name.
        key: its key.
        differs_in: the names of the parts that are not those of the key that was looked for.
    """

    digest: str
    key: CacheKey
    differs_in: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.digest[:16]} differs in: {', '.join(self.differs_in)}"


def keys_in(directory: CacheDirectory) -> dict[str, CacheKey]:
    """The keys of all sound entries, by digest. Reads all of the directory."""
    keys = {}
    for digest in directory.digests():
        with contextlib.suppress(OSError, DamagedEntryError):
            keys[digest] = CacheKey(directory.read(digest).meta["key"])
    return keys


def nearest_entry(key: CacheKey, keys: Mapping[str, CacheKey]) -> Nearest | None:
    """The entry most like ``key``, of those under other ``keys``; None if there is none.

    Only what the compiler was asked the same for; the same program under other circumstances is nearer than another
    program under the same.
    """
    others = [Nearest(digest, other, key.differs_in(other)) for digest, other in keys.items() if digest != key.digest]
    alike = [other for other in others if "pipeline" not in other.differs_in]
    return min(alike, key=lambda one: ("program" in one.differs_in, len(one.differs_in)), default=None)
