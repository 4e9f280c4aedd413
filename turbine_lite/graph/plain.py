"""Which inference graphs need nothing of AOTAutograd's run-time wrapper."""

from __future__ import annotations

from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch.fx import GraphModule

from turbine_lite.graph.captured import metadata_of

__all__ = ["needs_no_wrapper"]


def needs_no_wrapper(gm: GraphModule, arguments: int) -> bool:
    """Whether AOTAutograd's inference graph, while it is being compiled, takes and returns what Dynamo's graph does.

    The wrapper writes back mutated inputs, makes results that alias inputs or each other, and unwraps subclasses. For
    a graph without any of these it only costs time, on each call.

    Args:
        gm: the graph that AOTAutograd hands to the inference compiler.
        arguments: how many arguments Dynamo's graph has.
    """
    metadata = metadata_of(gm)
    if metadata is None:
        return False
    results = gm.graph.output_node().args[0]
    return (
        arguments == len(metadata.input_info)
        and isinstance(results, (list, tuple))
        and len(results) == len(metadata.output_info)
        and not metadata.tokens
        and not any(info.mutates_data or info.mutates_metadata for info in metadata.input_info)
        and all(info.output_type is OutputType.non_alias for info in metadata.output_info)
        and all(isinstance(meta, PlainTensorMeta) for meta in metadata.subclass_inp_meta or ())
        and metadata.grad_enabled_mutation is None
    )
