"""Every stage of every compiled graph as files, for ``TURBINE_LITE_DUMP=<directory>``.

Each graph gets a numbered directory, and in it, if the graph was partitioned, each region one of its own::

    0000_inference/
        fx_graph.py               the graph, as readable code
        torch.mlir                torch dialect, with source locations
        torch.mlirbc              the same, complete, what the reproducing command reads
        iree-input.mlir           after torch-to-iree
        executable-sources.mlir   before the executables are translated
        module.vmfb
        manifest.json             flags, versions, command, seconds, signature, reasons for eager parts
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turbine_lite.compiler.flags import FlagSet
from turbine_lite.environment import installed_versions
from turbine_lite.errors import OptionError

__all__ = ["Dump", "open_dump"]

log = logging.getLogger(__name__)


def open_dump(dump_dir: str | None, kind: str) -> Dump:
    """A new numbered directory under ``dump_dir``, or a dump that writes nothing if that is None.

    Raises:
        OptionError: the directory cannot be made.
    """
    if dump_dir is None:
        return Dump(None)
    root = Path(dump_dir).expanduser().resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        number = len(list(root.iterdir()))
        while True:  # several processes may write to one directory
            try:
                path = root / f"{number:04d}_{kind}"
                path.mkdir()
                return Dump(path)
            except FileExistsError:
                number += 1
    except OSError as error:
        raise OptionError(f"dump_dir {str(root)!r} cannot be used: {error}") from error


class Dump:
    """One directory, or nothing. A write that fails (a full disk) is logged and costs nothing else."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._manifest: dict[str, Any] = {}

    @property
    def enabled(self) -> bool:
        """Whether anything is written; what is costly to produce need not be otherwise."""
        return self.path is not None

    @property
    def directory(self) -> str | None:
        """The directory's name, for messages."""
        return None if self.path is None else str(self.path)

    def subdirectory(self, name: str) -> Dump:
        """A dump for a part of this one."""
        if self.path is None:
            return self
        path = self.path / name
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            log.warning("cannot dump to %s: %s", path, error)
            return Dump(None)
        return Dump(path)

    def write(self, name: str, data: str | bytes) -> None:
        """Write one file."""
        if self.path is None:
            return
        try:
            (self.path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        except OSError as error:
            log.warning("cannot dump %s to %s: %s", name, self.path, error)

    def record(self, **entries: Any) -> None:
        """Add entries to ``manifest.json``."""
        if self.path is None:
            return
        self._manifest.update(entries)
        self._manifest.setdefault("versions", installed_versions())
        self.write("manifest.json", json.dumps(self._manifest, indent=2, default=str) + "\n")

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The entries of ``manifest.json``."""
        return self._manifest

    def command(self, flags: FlagSet) -> str | None:
        """The shell command that compiles ``torch.mlirbc`` as it was compiled here."""
        if self.path is None:
            return None
        source, target = str(self.path / "torch.mlirbc"), str(self.path / "reproduced.vmfb")
        return shlex.join(["iree-compile", source, *flags.command_line(), "-o", target])
