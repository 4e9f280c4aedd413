"""The file of a package: a description in JSON, and pieces of bytes.

::

    8 bytes   b"TURBLITE"
    4 bytes   version of this format, little endian
    8 bytes   length of the description
    32 bytes  SHA-256 of the description
    ...       the description: JSON, UTF-8
    ...       pieces, each at a multiple of 64 bytes, which is what IREE reads without a copy

``pieces`` in the description has the offset, length and SHA-256 of each, and ``bytes`` the length of the file. Nothing
in it is ever executed or unpickled on the way in; the programs among the pieces are machine code, though, and run when
they are called.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turbine_lite.errors import PackageError
from turbine_lite.runtime.views import ALIGNMENT
from turbine_lite.storage import publish_file

__all__ = ["Archive", "write_archive"]

_MAGIC = b"TURBLITE"
_VERSION = 1
_HEADER = struct.Struct("<8sIQ32s")
_MOST_DESCRIPTION = 1 << 30


def write_archive(path: Path, description: Mapping[str, Any], pieces: Mapping[str, Any]) -> None:
    """Write a file, all of it or nothing.

    Args:
        path: the file.
        description: anything that JSON has.
        pieces: by name, bytes or other one-dimensional memory of bytes.

    Raises:
        OSError: it cannot be written.
    """
    views = {name: memoryview(piece).cast("B") for name, piece in pieces.items()}
    hashes = {name: hashlib.sha256(view).hexdigest() for name, view in views.items()}
    # Offsets have as many digits as they have: the description is written for the first offset that it fits before.
    start = _HEADER.size
    while True:
        offsets, end = _laid_out(views, start)
        table = {name: [offset, len(views[name]), hashes[name]] for name, offset in offsets.items()}
        text = json.dumps({**description, "pieces": table, "bytes": end}).encode()
        if _HEADER.size + len(text) <= start:
            break
        start = _HEADER.size + len(text) + 64
    text = text.ljust(start - _HEADER.size)
    publish_file(path, _written(text, views, offsets))


def _laid_out(views: Mapping[str, memoryview], start: int) -> tuple[dict[str, int], int]:
    offsets, end = {}, start
    for name, view in views.items():
        offsets[name] = end + -end % ALIGNMENT
        end = offsets[name] + len(view)
    return offsets, end


def _written(text: bytes, views: Mapping[str, memoryview], offsets: Mapping[str, int]) -> Iterator[bytes | memoryview]:
    yield _HEADER.pack(_MAGIC, _VERSION, len(text), hashlib.sha256(text).digest())
    yield text
    end = _HEADER.size + len(text)
    for name, view in views.items():
        yield bytes(offsets[name] - end)
        yield view
        end = offsets[name] + len(view)


class Archive:
    """A file of a package, mapped into memory: what of it is not read takes none.

    Raises:
        PackageError: it is no such file, of a later format, cut off or damaged.
        OSError: it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _HEADER.size:
                raise PackageError(f"{self.path} is no package of turbine_lite: it has {size} bytes")
            # Private: what is written to it stays in this process.
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        magic, version, length, digest = _HEADER.unpack_from(self._memory)
        if magic != _MAGIC:
            raise PackageError(f"{self.path} is no package of turbine_lite")
        if version != _VERSION:
            raise PackageError(f"{self.path} has format {version}; this turbine_lite reads format {_VERSION}")
        if length > min(_MOST_DESCRIPTION, size - _HEADER.size):
            raise PackageError(f"{self.path} is cut off or damaged: it has {size} bytes")
        text = self._memory[_HEADER.size : _HEADER.size + length]
        if hashlib.sha256(text).digest() != digest:
            raise PackageError(f"{self.path} is damaged: its description is not what was written")
        self.description: dict[str, Any] = json.loads(text)
        if self.description["bytes"] != size:
            raise PackageError(
                f"{self.path} has {size} bytes and should have {self.description['bytes']}: copy it anew"
            )

    def piece(self, name: str) -> memoryview:
        """A piece, where it is in memory.

        Raises:
            PackageError: there is none of that name.
        """
        if name not in self.description["pieces"]:
            raise PackageError(f"{self.path} has no {name}")
        offset, length, _ = self.description["pieces"][name]
        if not 0 <= offset <= offset + length <= len(self._memory):
            raise PackageError(f"{self.path} is damaged: {name} is not within it")
        return memoryview(self._memory)[offset : offset + length]

    def verified(self, name: str) -> memoryview:
        """A piece, compared with its hash.

        Raises:
            PackageError: it is not what was written.
        """
        piece = self.piece(name)
        if hashlib.sha256(piece).hexdigest() != self.description["pieces"][name][2]:
            raise PackageError(f"{self.path} is damaged: {name} is not what was written")
        return piece
