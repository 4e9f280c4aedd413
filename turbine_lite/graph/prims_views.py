"""Views of the ``prims`` namespace in a user's program: AOTAutograd takes views of the ``aten`` namespace alone."""

from __future__ import annotations

from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import GraphModule

__all__ = ["use_aten_views"]


def use_aten_views(gm: GraphModule) -> None:
    """Replace calls such as ``prims.view_of`` in Dynamo's graph by the functions that PyTorch defines them by."""
    changed = False
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            target = node.target
            if isinstance(target, OpOverloadPacket) and target._qualified_op_name.startswith("prims::"):
                target = target.default
            if isinstance(target, OpOverload) and target.namespace == "prims" and target.is_view:
                names = [argument.name for argument in target._schema.arguments]
                node.args = (*node.args, *(node.kwargs[name] for name in names if name in node.kwargs))
                node.kwargs = {}
                node.target = target.impl_aten  # type: ignore[attr-defined]  # set by torch._prims
                changed = True
        if changed:
            module.recompile()
