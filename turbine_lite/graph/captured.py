"""What AOTAutograd knows of an inference graph while it is being compiled."""

from __future__ import annotations

from typing import Any

from torch._guards import TracingContext
from torch.fx import GraphModule, Node

__all__ = ["metadata_of", "placeholders_of"]


def placeholders_of(gm: GraphModule) -> list[Node]:
    """Its arguments."""
    return list(gm.graph.find_nodes(op="placeholder"))


def metadata_of(gm: GraphModule) -> Any:
    """AOTAutograd's ``ViewAndMutationMeta``; None outside of a compilation, or where it does not fit the graph."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    fits = metadata is not None and len(placeholders_of(gm)) == len(metadata.input_info)
    return metadata if fits else None
