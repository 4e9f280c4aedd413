"""Locations in MLIR's text, as the importer makes them: an FX node, called from a line of the user's."""

from __future__ import annotations

import re

__all__ = ["NODE_FILE_PREFIX", "lines_in", "nodes_in"]

# An operation's location is a call from the user's source line to the file ``fx/<node name>``: the first part of a
# diagnostic then names the node, or the node that a rewrite made it from.
NODE_FILE_PREFIX = "fx/"

_NODE = re.compile(rf'"{NODE_FILE_PREFIX}([^"]+)":\d+:\d+')
_LINE = re.compile(rf'"((?!{NODE_FILE_PREFIX})[^"]+)":(\d+):\d+')


def nodes_in(text: str) -> tuple[str, ...]:
    """The names of the FX nodes, each once."""
    return tuple(dict.fromkeys(_NODE.findall(text)))


def lines_in(text: str) -> tuple[tuple[str, int], ...]:
    """The user's lines as (file, number), each once."""
    return tuple(dict.fromkeys((file, int(number)) for file, number in _LINE.findall(text)))
