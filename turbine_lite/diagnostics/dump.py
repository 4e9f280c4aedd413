"""Every stage of every compiled graph as files, for ``TURBINE_LITE_DUMP=<directory>``.

Each graph gets a numbered directory, and each region one of its own in it. ``INDEX.md`` lists all of them::

    INDEX.md
    0000_inference/
        fx_graph.py                   the graph, as readable code
        manifest.json                 operators in IREE, bytes crossing, reasons for eager parts
        region_0/
            torch.mlir                torch dialect, with source locations
            torch.mlirbc              the same, complete, what the reproducing command reads
            iree-input.mlir           after torch-to-iree
            executable-sources.mlir   and further stages, by TURBINE_LITE_DUMP_STAGES
            module.vmfb
            manifest.json             flags, versions, command, seconds, signature
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turbine_lite.compiler.flags import FlagSet
from turbine_lite.compiler.stages import STAGES, file_of
from turbine_lite.environment import installed_versions
from turbine_lite.errors import OptionError

__all__ = ["Dump", "open_dump"]

log = logging.getLogger(__name__)

_INDEX = "INDEX.md"

_FILES = {
    "fx_graph.py": "the captured graph, as readable code",
    "torch.mlir": "the torch dialect, with source locations",
    "torch.mlirbc": "the same, complete, for the command in the manifest",
    **{file_of(stage): meaning for stage, meaning in STAGES.items()},
    "module.vmfb": "the compiled program",
    "manifest.json": "flags, versions, command, seconds, signature; operators, reasons for eager parts",
    "diagnostics.txt": "what the compiler said when it failed",
}


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
        number = sum(entry.is_dir() for entry in root.iterdir())
        while True:  # several processes may write to one directory
            try:
                path = root / f"{number:04d}_{kind}"
                path.mkdir()
                return Dump(path, root)
            except FileExistsError:
                number += 1
    except OSError as error:
        raise OptionError(f"dump_dir {str(root)!r} cannot be used: {error}") from error


class Dump:
    """One directory, or nothing. A write that fails (a full disk) is logged and costs nothing else."""

    def __init__(self, path: Path | None, root: Path | None = None) -> None:
        self.path = path
        self._root = root or path
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
        return Dump(path, self._root)

    def write(self, name: str, data: str | bytes) -> None:
        """Write one file."""
        if self.path is None:
            return
        try:
            (self.path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        except OSError as error:
            log.warning("cannot dump %s to %s: %s", name, self.path, error)

    def write_stages(self, stages: Mapping[str, str]) -> None:
        """Write the IR of stages of the compiler."""
        for stage, text in stages.items():
            self.write(file_of(stage), text)

    def add_to_index(self, summary: str) -> None:
        """List all files of this directory in ``INDEX.md``; a graph is listed when it is complete."""
        if self.path is None or self._root is None:
            return
        index, name = self._root / _INDEX, self.path.relative_to(self._root)
        lines = [f"\n## {name}\n\n{summary}\n\n"]
        for directory in (self.path, *sorted(path for path in self.path.rglob("*") if path.is_dir())):
            files = (file.relative_to(self._root) for file in sorted(directory.iterdir()) if file.is_file())
            links = ", ".join(f"[{file.name}]({file.as_posix()})" for file in files)
            lines.append(f"- {directory.relative_to(self._root)}: {links}\n")
        try:
            with contextlib.suppress(FileExistsError), index.open("x") as file:
                file.write(_heading())
            with index.open("a") as file:  # one write, since several processes may share the directory
                file.write("".join(lines))
        except OSError as error:
            log.warning("cannot write %s: %s", index, error)

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


def _heading() -> str:
    table = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in _FILES.items())
    return f"# Graphs compiled by turbine_lite\n\n| file | what it is |\n| --- | --- |\n{table}"
