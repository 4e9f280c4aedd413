"""Why a program is not in the cache: the entry most like it, and the parts of the key in which that one differs."""

from __future__ import annotations

import dataclasses

from turbine_lite.compiler.cache import CacheDirectory, DamagedEntryError
from turbine_lite.compiler.cache_key import CacheKey

__all__ = ["Nearest", "nearest_entry"]


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


def nearest_entry(key: CacheKey, directory: CacheDirectory) -> Nearest | None:
    """The entry most like ``key``, of those under other keys; None if there is none. Reads all of the directory.

    Only what the compiler was asked the same for; the same program under other circumstances is nearer than another
    program under the same.
    """
    candidates = []
    for digest in directory.digests():
        if digest == key.digest:
            continue
        try:
            other = CacheKey(directory.read(digest).meta["key"])
        except (OSError, DamagedEntryError):
            continue
        differs_in = key.differs_in(other)
        if "pipeline" not in differs_in:
            candidates.append(Nearest(digest, other, differs_in))
    return min(candidates, key=lambda one: ("program" in one.differs_in, len(one.differs_in)), default=None)
