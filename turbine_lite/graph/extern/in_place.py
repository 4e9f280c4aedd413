"""Large arguments of which a graph writes a part, such as caches of keys and values, are written where they are.

AOTAutograd makes graphs functional: ``cache.index_copy_(...)`` becomes a new tensor, a copy of the cache with the part
in it, and after the call all of that is copied back into the cache. With caches of some thousand tokens the two copies
take longer than all else that a model does for the next token. (Copying a tensor to itself costs nothing, which is
what the copy after the call becomes.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from turbine_lite.graph.captured import metadata_of, placeholders_of
from turbine_lite.graph.extern import kernels
from turbine_lite.graph.extern.choose import KERNEL
from turbine_lite.graph.sizes import numel_hint
from turbine_lite.graph.support import reason_for
from turbine_lite.graph.views import is_view

__all__ = ["WRITTEN", "mark_written", "write_in_place"]

aten = torch.ops.aten

# The key in a placeholder's ``meta`` of the position, among the results, of what is to be written to the argument.
WRITTEN = "turbine_lite.written"

# Of operators that copy their first argument and write a part of it: what writes in place.
_IN_PLACE: dict[Any, Any] = {
    aten.index_put.default: aten.index_put_.default,
    aten.index_copy.default: aten.index_copy_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.slice_scatter.default: kernels.write_slice,
}

# A region more costs as much as copying this, twice.
_LEAST_BYTES = 1 << 18


def mark_written(gm: GraphModule) -> None:
    """Mark the placeholders of AOTAutograd's inference graph, while it is being compiled, that the caller sees written.

    Their new values are the first of the results.
    """
    metadata, placeholders = metadata_of(gm), placeholders_of(gm)
    if metadata is None or metadata.tokens:
        return
    for position, index in enumerate(metadata.mutated_inp_runtime_indices):
        info = metadata.input_info[index]
        if info.mutates_data and not (info.mutates_metadata or info.mutates_storage_metadata):
            placeholders[index].meta[WRITTEN] = position


def write_in_place(graph: Graph) -> bool:
    """Have the marked arguments written in place where nobody can tell, and it pays; returns whether there are any."""
    results: Any = graph.output_node().args[0]
    found = False
    for argument in graph.find_nodes(op="placeholder"):
        position = argument.meta.get(WRITTEN)
        if position is None or not isinstance(results[position], Node):
            continue
        write = results[position]
        if list(results).count(write) > 1 or _has_views_among_results(write) or not _writes_a_part(write, argument):
            continue
        unused = _unused_slice(write, argument)
        if {*argument.users} - {unused} != {write}:  # who reads the old values must find them
            continue
        if unused is not None:
            values: Any = write.args[1]
            write.replace_input_with(values, values.args[1])
            graph.erase_node(values)
            graph.erase_node(unused)
        write.target = _IN_PLACE[write.target]
        write.meta[KERNEL] = reason_for(write, "in-place", "an argument is written where it is, not copied")
        found = True
    return found


def _unused_slice(write: Node, argument: Node) -> Node | None:
    """Of ``x[1:3] = y``, which is ``slice_scatter(x, copy(slice(x), y))``, the slice.

    ``copy`` takes no more than its type and sizes, and what writes in place casts and repeats by itself. None where
    others read it, or the write is another one.
    """
    values: Any = write.args[1]
    if write.target is not aten.slice_scatter.default or values.target is not aten.copy.default:
        return None
    part: Node = values.args[0]
    is_unused = list(values.users) == [write] and list(part.users) == [values] and part.all_input_nodes == [argument]
    return part if is_unused else None


def _writes_a_part(write: Node, argument: Node) -> bool:
    whole, result = argument.meta["val"], write.meta["val"]
    is_accumulating = write.target is aten.index_put.default and write.args[3:] not in ((), (False,))
    return (
        write.target in _IN_PLACE
        and write.args[0] is argument
        and write.all_input_nodes.count(argument) == 1
        and not write.kwargs
        and not is_accumulating
        and numel_hint(whole) * whole.itemsize >= _LEAST_BYTES
        and (whole.dtype, whole.stride()) == (result.dtype, result.stride())
    )


def _has_views_among_results(node: Node) -> bool:
    """Whether a view of the node, which in eager may be memory of its own, is given to the caller."""
    for view in node.users:
        if is_view(view) and (any(user.op == "output" for user in view.users) or _has_views_among_results(view)):
            return True
    return False
