"""What compiler flags depend on in a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from turbine_lite.compiler.flags import Traits
from turbine_lite.graph.support import tensors_of

__all__ = ["traits_of"]

aten = torch.ops.aten


def traits_of(graph: Graph) -> Traits:
    """The traits of a graph that is ready for the importer."""
    tensors = [tensor for node in graph.nodes for tensor in tensors_of(node)]
    return Traits(
        keep_f64=any(tensor.dtype is torch.float64 for tensor in tensors),
        dynamic=any(not isinstance(size, int) for tensor in tensors for size in tensor.shape),
        batched_matmul=any(node.target is aten.bmm.default for node in graph.nodes),
        skips_elements=any(_skips_elements(node) for node in graph.nodes),
    )


def _skips_elements(node: Node) -> bool:
    """Whether it is a convolution or a pooling whose window is one element wide and moves by more than one."""
    if node.op != "call_function":
        return False
    if node.target is aten.convolution.default:
        weight: Any = node.args[1]
        sizes: Any = (weight.meta["val"].shape[2:], node.args[3])
        kernel, stride = map(list, sizes)
    else:
        windows = _windows(node)
        if windows is None:
            return False
        kernel, stride = windows
    count = max(len(kernel), len(stride))
    # A size that is not known may be 1.
    return any(k in (1, None) and s != 1 for k, s in zip(_each(kernel, count), _each(stride, count), strict=True))


def _windows(node: Node) -> tuple[Any, Any] | None:
    """Kernel size and stride of a pooling."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    if "kernel_size" not in names or "stride" not in names:
        return None
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    kernel = given["kernel_size"]
    return _listed(kernel), _listed(given.get("stride") or kernel)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _each(values: Any, count: int) -> list[int | None]:
    numbers = [value if isinstance(value, int) else None for value in values]
    return numbers * count if len(numbers) == 1 else numbers
