"""Compiled programs on disk, for all processes of a user.

Each entry is a directory, named by the digest of its key::

    programs/<digest>/
        module.vmfb
        meta.json     what is known of it, with a checksum of each of the two files

An entry is written beside its place and published by one rename, so that it is there as a whole or not at all. When an
entry was last used is the modification time of its ``meta.json``.

Nothing that happens to the files is an error for the caller: what cannot be read, or is not what was written, is a
miss, and what cannot be written is not kept. Each is logged, as one warning. Programs are read, not mapped: a mapped
file that somebody truncates takes the process down.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turbine_lite.storage import cache_directory

__all__ = ["CacheDirectory", "DamagedEntryError", "Entry"]

log = logging.getLogger("turbine_lite")

_DIGEST = re.compile("[0-9a-f]{64}")

_PROGRAM = "module.vmfb"
_META = "meta.json"

# An entry may be removed and written anew while it is read. One that is damaged stays so.
_READS = 3

# Names of what is being written, or removed, start with it.
_HIDDEN = ".new-"
# What is older than this was left by a process that was killed.
_HIDDEN_SECONDS = 3600.0

# When there is too much, what was used least recently goes until this part of the limit is left.
_KEPT = 0.8
# All sizes are added up at a process's first write and at each so many further ones.
_WRITES_BETWEEN_SUMS = 32


class DamagedEntryError(ValueError):
    """An entry's files are not what was written."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A program and what is known of it: anything that JSON has. ``vmfb`` may be empty."""

    vmfb: bytes
    meta: Mapping[str, Any]


class CacheDirectory:
    """A directory of entries. Any number of processes may use it at once.

    Args:
        root: the directory; made when something is written. None: the user's.
        limit: bytes that all entries may have together.
    """

    def __init__(self, root: Path | None = None, limit: int = 1 << 31) -> None:
        self.root = root if root is not None else cache_directory() / "programs"
        self.limit = limit

    def get(self, digest: str) -> Entry | None:
        """The entry, or None if there is none that can be used."""
        path = self.root / digest
        try:
            if not os.path.lexists(path) or not self._is_ours():
                return None
            entry = self._read_whole(digest)
        except (OSError, DamagedEntryError) as error:
            if os.path.lexists(path):  # else it was removed meanwhile
                log.warning("cache: %s cannot be used, compiling again: %s", path, error)
                self.remove(digest)
            return None
        with contextlib.suppress(OSError):  # a directory that cannot be written
            os.utime(path / _META)
        return entry

    def read(self, digest: str) -> Entry:
        """An entry, checked.

        Raises:
            OSError: it cannot be read.
            DamagedEntryError: it is not what was written.
        """
        path = self.root / digest
        entry = Entry((path / _PROGRAM).read_bytes(), _parse_meta((path / _META).read_bytes()))
        self.check(digest, entry)
        return entry

    def _read_whole(self, digest: str) -> Entry:
        """What :meth:`read` returns or raises, unless the entry was replaced by another process meanwhile."""
        for _ in range(_READS - 1):
            with contextlib.suppress(OSError, DamagedEntryError):
                return self.read(digest)
        return self.read(digest)

    @staticmethod
    def check(digest: str, entry: Entry) -> None:
        """Check what was read against what its ``meta`` says.

        Raises:
            DamagedEntryError: it is not what was written.
        """
        if not _DIGEST.fullmatch(digest) or entry.meta.get("digest") != digest:
            raise DamagedEntryError(f"{_META} is of another entry")
        if entry.meta.get("sha256") != hashlib.sha256(entry.vmfb).hexdigest():
            raise DamagedEntryError(f"{_PROGRAM} is damaged")

    def put(self, digest: str, entry: Entry) -> None:
        """Keep an entry; one that is there already stays."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_ours():
                self._publish(digest, entry)
                self._count_write()
        except OSError as error:
            _warn_once(f"cache: cannot keep programs in {self.root}: {error}")

    def _publish(self, digest: str, entry: Entry) -> None:
        meta = dict(entry.meta) | {
            "digest": digest,
            "sha256": hashlib.sha256(entry.vmfb).hexdigest(),
            "bytes": len(entry.vmfb),
            "created": time.time(),
        }
        beside = Path(tempfile.mkdtemp(dir=self.root, prefix=_HIDDEN))
        try:
            (beside / _PROGRAM).write_bytes(entry.vmfb)
            (beside / _META).write_bytes(_format_meta(meta))
            os.rename(beside, self.root / digest)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another process was first
                raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def remove(self, digest: str) -> bool:
        """Remove an entry; whether that could be done. Nobody sees half of it."""
        try:
            hidden = Path(tempfile.mkdtemp(dir=self.root, prefix=_HIDDEN))
        except OSError:
            return False
        try:
            os.rename(self.root / digest, hidden / digest)
        except OSError:
            return False
        finally:
            _remove(hidden)
        return True

    def digests(self) -> list[str]:
        """All entries, from the one used last to the one that was not used for the longest time."""
        used = {}
        for path in self._paths():
            with contextlib.suppress(OSError):
                used[path.name] = (path / _META).stat().st_mtime
        return sorted(used, key=lambda digest: -used[digest])

    def bytes_of(self, digest: str) -> int:
        """The size of an entry's files."""
        total = 0
        with contextlib.suppress(OSError):
            for path in (self.root / digest).iterdir():
                total += path.stat().st_size
        return total

    def trim(self) -> int:
        """Remove what was not used for the longest time while there is too much, and leftovers; how many entries."""
        for path in self._paths(hidden=True):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _HIDDEN_SECONDS:
                    _remove(path)
        sizes = {digest: self.bytes_of(digest) for digest in self.digests()}
        total, removed = sum(sizes.values()), 0
        if total > self.limit:
            for digest, size in reversed(sizes.items()):
                if total <= _KEPT * self.limit:
                    break
                if self.remove(digest):
                    total, removed = total - size, removed + 1
            log.info("cache: removed %d programs that were not used for the longest time", removed)
        return removed

    def clear(self) -> int:
        """Remove all entries and leftovers; how many entries."""
        removed = sum(self.remove(path.name) for path in self._paths())
        for path in self._paths(hidden=True):
            _remove(path)
        return removed

    def _paths(self, *, hidden: bool = False) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for path in list(self.root.iterdir()):
                if path.name.startswith(_HIDDEN) == hidden:
                    yield path

    def _count_write(self) -> None:
        writes = _writes.get(self.root, 0)
        _writes[self.root] = writes + 1
        if writes % _WRITES_BETWEEN_SUMS == 0:
            self.trim()

    def _is_ours(self) -> bool:
        """Whether nobody else can put programs there: they would run with this user's rights."""
        status = self.root.stat()
        is_mine = not hasattr(os, "getuid") or status.st_uid in (0, os.getuid())
        if is_mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return True
        _warn_once(f"cache: others can write to {self.root}, so it is not used; chmod 700, or TURBINE_LITE_CACHE_DIR")
        return False


_writes: dict[Path, int] = {}
_warned: set[str] = set()


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _format_meta(meta: Mapping[str, Any]) -> bytes:
    return json.dumps({"checksum": _checksum(meta), "entry": meta}, sort_keys=True, indent=1).encode() + b"\n"


def _parse_meta(data: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
        meta: dict[str, Any] = parsed["entry"]
        if parsed["checksum"] != _checksum(meta):
            raise DamagedEntryError(f"{_META} is damaged")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedEntryError(f"{_META} is damaged") from error
    return meta


def _checksum(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
