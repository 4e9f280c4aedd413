"""Which version of a graph ``autotune`` found to be the fastest, kept on disk: one choice for a machine and a graph.

A decision is a small JSON file, named by a hash of all that it depends on and published by one rename. What cannot be
read or written costs time only: the choice is made again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from turbine_lite.environment import cpu_description, installed_versions
from turbine_lite.options import Options
from turbine_lite.storage import cache_directory, publish_file

__all__ = ["decision_key", "keep_decision", "recall_decision"]

log = logging.getLogger("turbine_lite")

_FORMAT = 1
# Beside those that are known to change what is compiled: the choice is between drivers, and of the versions built.
_OPTIONS_OF_A_CHOICE = ("driver", "compiler", "autotune_seconds")


def decision_key(gm: GraphModule, options: Options, kind: str) -> str:
    """Hash of what the fastest version depends on: the graph, options, threads, CPU and versions; not source lines."""
    parts = {
        "format": _FORMAT,
        "graph": list(_lines_of(gm)),
        "kind": kind,
        "options": {
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(options)
            if field.metadata["affects_code"] or field.name in _OPTIONS_OF_A_CHOICE
        },
        "threads": torch.get_num_threads(),
        "cpu": cpu_description(),
        "versions": installed_versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def recall_decision(key: str, names: Iterable[str]) -> str | None:
    """The name of the version that was chosen, if it is one of ``names``."""
    path = _path(key)
    try:
        name = json.loads(path.read_text())["version"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("max-autotune: cannot read %s, choosing again: %s", path, error)
        return None
    return name if name in tuple(names) else None


def keep_decision(key: str, name: str, timings: Mapping[str, float]) -> None:
    """Store that version ``name`` was chosen; ``timings`` are seconds of a call, for whoever reads the file."""
    path = _path(key)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        publish_file(path, json.dumps({"version": name, "seconds": dict(timings)}, indent=1) + "\n")
    except OSError as error:
        log.warning("max-autotune: cannot keep the choice in %s: %s", path, error)


def _path(key: str) -> Path:
    return cache_directory() / "tuning" / f"{key}.json"


def _lines_of(gm: GraphModule) -> Iterator[str]:
    """Nodes with dtypes, sizes and strides, also of graphs within."""
    yield str(gm.graph)
    for node in gm.graph.nodes:
        values = [leaf for leaf in tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
        layouts = [(str(leaf.dtype), *map(str, leaf.shape), leaf.layout == torch.strided) for leaf in values]
        strides = [tuple(map(str, leaf.stride())) for leaf in values if leaf.layout == torch.strided]
        yield f"{node.name} {layouts} {strides}"
    for name, child in gm.named_children():
        if isinstance(child, GraphModule):
            yield name
            yield from _lines_of(child)
