"""Where turbine_lite keeps things between processes, and how it writes them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs

__all__ = ["cache_directory", "publish_file"]


def cache_directory() -> Path:
    """``TURBINE_LITE_CACHE_DIR``, or the user's cache directory."""
    return Path(
        os.environ.get("TURBINE_LITE_CACHE_DIR") or platformdirs.user_cache_dir("turbine_lite", appauthor=False)
    )


def publish_file(path: Path, content: str | Iterable[bytes | memoryview]) -> None:
    """Write all of a text, or of some pieces, or nothing, whatever happens meanwhile and whoever else does the same.

    Raises:
        OSError: it cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in (content.encode(),) if isinstance(content, str) else content:
                file.write(piece)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
