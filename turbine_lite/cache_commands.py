"""``turbine-lite cache``: look at the compiled programs on disk, check, remove and carry them to other machines."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turbine_lite.compiler.cache import CacheDirectory, DamagedEntryError, Entry
from turbine_lite.compiler.cache_key import CacheKey
from turbine_lite.compiler.cache_miss import nearest_entry
from turbine_lite.options import Options

__all__ = ["add_cache_commands"]

_SHOWN_DIGITS = 16
_MOST_LINES = 20
# No program of a model has more; weights are not in it.
_MOST_IMPORTED_BYTES = 1 << 30


def add_cache_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands below ``turbine-lite cache``; each sets ``run``, which returns the exit status."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[CacheDirectory, argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=lambda args: run(_directory(), args))
        return command

    add("path", _path, "print the directory")
    add("list", _list, "one line for each entry, the one used last first")
    add("stats", _stats, "how many entries, and of what size")
    add("verify", _verify, "read all entries; exit status 1 if one is damaged").add_argument(
        "--remove", action="store_true", help="remove damaged entries"
    )
    add("clear", _clear, "remove all entries")
    add("explain-miss", _explain_miss, "in what an entry differs from the one most like it").add_argument(
        "digest", nargs="?", help="the first digits of an entry's name; default: the newest"
    )
    add("export", _export, "write entries to a file").add_argument("file", type=Path)
    add("import", _import, "take entries from a file; only from whom you would take a program to run").add_argument(
        "file", type=Path
    )


def _directory() -> CacheDirectory:
    return CacheDirectory(limit=Options.resolve().cache_bytes)


def _path(directory: CacheDirectory, args: argparse.Namespace) -> int:
    print(directory.root)
    return 0


def _list(directory: CacheDirectory, args: argparse.Namespace) -> int:
    for digest, entry in _entries(directory):
        if entry is None:
            print(f"{digest[:_SHOWN_DIGITS]}  damaged")
            continue
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.meta["created"]))
        what = "refused" if "failure" in entry.meta else f"{len(entry.vmfb) / 1024:.0f} KiB"
        seconds = sum(entry.meta.get("seconds", {}).values())
        convention = str(entry.meta["key"]["calling convention"])
        print(f"{digest[:_SHOWN_DIGITS]}  {made}  {what:>10}  {seconds:6.1f} s  {convention}")
    return 0


def _stats(directory: CacheDirectory, args: argparse.Namespace) -> int:
    entries = dict(_entries(directory))
    sound = [entry for entry in entries.values() if entry is not None]
    size = sum(directory.bytes_of(digest) for digest in entries)
    print(f"directory  {directory.root}")
    print(f"entries    {len(entries)}: {sum(bool(entry.vmfb) for entry in sound)} programs")
    print(f"refused    {sum('failure' in entry.meta for entry in sound)}")
    print(f"damaged    {len(entries) - len(sound)}")
    print(f"size       {size / 2**20:.1f} MiB of {directory.limit / 2**20:.0f} MiB")
    print(f"compiling  {sum(sum(entry.meta.get('seconds', {}).values()) for entry in sound):.1f} s")
    return 0


def _verify(directory: CacheDirectory, args: argparse.Namespace) -> int:
    damaged = 0
    for digest in directory.digests():
        try:
            directory.read(digest)
        except (OSError, DamagedEntryError) as error:
            damaged += 1
            removed = args.remove and directory.remove(digest)
            print(f"{digest}: {error}{'; removed' if removed else ''}")
    print(f"{damaged} damaged")
    return int(damaged > 0)


def _clear(directory: CacheDirectory, args: argparse.Namespace) -> int:
    print(f"{directory.clear()} entries removed")
    return 0


def _explain_miss(directory: CacheDirectory, args: argparse.Namespace) -> int:
    entries = {digest: entry for digest, entry in _entries(directory) if entry is not None}
    chosen = [digest for digest in entries if digest.startswith(args.digest or "")]
    if not chosen:
        raise SystemExit(f"turbine-lite: no entry {args.digest or ''!r} in {directory.root}")
    digest = max(chosen, key=lambda digest: entries[digest].meta["created"])
    key = CacheKey(entries[digest].meta["key"])
    nearest = nearest_entry(key, {other: CacheKey(entry.meta["key"]) for other, entry in entries.items()})
    if nearest is None:
        print(f"{digest[:_SHOWN_DIGITS]} is the only entry")
        return 0
    print(f"{digest[:_SHOWN_DIGITS]} is most like {nearest.digest[:_SHOWN_DIGITS]}, and differs in:")
    for name in nearest.differs_in:
        print(f"  {name}")
        for line in _difference(nearest.key.values.get(name), key.values.get(name)):
            print(f"    {line}")
    return 0


def _difference(old: Any, new: Any) -> list[str]:
    """Lines that are only in the old value (``-``) or in the new one (``+``)."""
    before, after = (value if isinstance(value, str) else json.dumps(value, indent=1) for value in (old, new))
    compared = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    lines = [line for line in compared if not line.startswith(("---", "+++", "@@"))]
    return lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], "..."]


def _export(directory: CacheDirectory, args: argparse.Namespace) -> int:
    exported = 0
    with tarfile.open(args.file, "w:gz") as archive:
        for digest, entry in _entries(directory):
            if entry is None:
                continue
            for name, data in (("meta.json", json.dumps(dict(entry.meta)).encode()), ("module.vmfb", entry.vmfb)):
                info = tarfile.TarInfo(f"{digest}/{name}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            exported += 1
    print(f"{exported} entries written to {args.file}")
    return 0


def _import(directory: CacheDirectory, args: argparse.Namespace) -> int:
    imported = refused = 0
    try:
        archive = tarfile.open(args.file)  # noqa: SIM115  # closed below
    except tarfile.TarError:
        raise ValueError(f"{args.file} is no file that turbine-lite cache export has written") from None
    with archive:
        for digest, entry in _in_archive(archive):
            try:
                directory.check(digest, entry)
                if CacheKey(entry.meta.get("key", {})).digest != digest:
                    raise DamagedEntryError("it is named after another key")
            except DamagedEntryError as error:
                print(f"{digest}: {error}")
                refused += 1
                continue
            directory.put(digest, entry)
            imported += 1
    print(f"{imported} entries taken from {args.file}")
    return int(refused > 0)


def _in_archive(archive: tarfile.TarFile) -> Iterator[tuple[str, Entry]]:
    """Entries as ``_export`` writes them: for each, what is known of it and then the program."""
    meta: dict[str, Any] = {}
    for info in archive:
        digest, _, name = info.name.rpartition("/")
        file = archive.extractfile(info) if info.size <= _MOST_IMPORTED_BYTES else None
        if file is None:
            continue
        data = file.read()
        if name == "meta.json":
            meta = json.loads(data)
        elif name == "module.vmfb":
            yield digest, Entry(data, meta)


def _entries(directory: CacheDirectory) -> Iterator[tuple[str, Entry | None]]:
    """All entries; None for one that is damaged."""
    for digest in directory.digests():
        try:
            yield digest, directory.read(digest)
        except FileNotFoundError:
            if (directory.root / digest).exists():
                yield digest, None
        except (OSError, DamagedEntryError):
            yield digest, None
