"""Copies that nobody can tell from their source, such as those that dropout leaves in inference."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.graph.extern.choose import KERNEL
from turbine_lite.graph.support import is_own_operator
from turbine_lite.graph.views import is_view

__all__ = ["drop_copies", "drop_copies_for_attention"]

aten = torch.ops.aten

_ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default


def drop_copies(graph: Graph) -> None:
    """Let the readers of a copy read its source, in place; IREE drops copies itself.

    Copies that the caller gets stay: he must be able to write to one and find the other as it was.
    """
    for node in list(graph.nodes):
        if not _is_copy(node) or not _lies_as_its_source(node):
            continue
        if all(_only_reads(user) for user in _readers(node)):
            _drop(graph, node)


def drop_copies_for_attention(graph: Graph) -> set[Node]:
    """Let attention read heads where they are, in place; returns the calls, whose results then lie otherwise, too."""
    changed: set[Node] = set()
    for node in list(graph.nodes):
        if node.target is aten.clone.default and all(
            user.target is _ATTENTION and KERNEL in user.meta for user in node.users
        ):
            changed.update(node.users)
            _drop(graph, node)
    return changed


def _drop(graph: Graph, node: Node) -> None:
    (source,) = node.all_input_nodes
    node.replace_all_uses_with(source)
    graph.erase_node(node)


def _is_copy(node: Node) -> bool:
    pads: Any = node.args[1] if node.target is aten.constant_pad_nd.default else ()
    return node.target is aten.clone.default or (bool(pads) and not any(pads))


def _lies_as_its_source(node: Node) -> bool:
    (source,) = node.all_input_nodes
    mine, its = node.meta["val"], source.meta["val"]
    return bool(mine.stride() == its.stride() and mine.storage_offset() == its.storage_offset())


def _readers(node: Node) -> list[Node]:
    """What reads a node or a view of it."""
    return [reader for user in node.users for reader in (_readers(user) if is_view(user) else [user])]


def _only_reads(node: Node) -> bool:
    """Whether a node is a call of PyTorch's own operators that writes to none of its arguments, and not the output."""
    return is_own_operator(node.target) and not node.target._schema.is_mutable
