"""A graph of which a part is computed once from parameters, and anew when these change."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.graph.eager import as_captured
from turbine_lite.graph.once import Split
from turbine_lite.graph.signature import Signature, TensorInput
from turbine_lite.runtime.parameters import ParameterSets

__all__ = ["WithConstants"]


class WithConstants:
    """Runs ``split.main``, with what ``split.once`` made of the parameters as they are now.

    Where parameters change from call to call, ``once`` runs on each call.
    """

    def __init__(self, split: Split) -> None:
        self._once = split.once.forward
        self._main = split.main.forward
        self._sets = ParameterSets(_signature(split.once))
        self._positions = split.parameters

    def __call__(self, *args: Any) -> Any:
        """The results of the whole graph."""
        tensors = [args[position] for position in self._positions]
        constants = self._sets.find(tensors)
        if constants is None:
            constants = self._compute(tensors)
        return self._main(*args, *constants)

    def _compute(self, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        values = self._sets.new_values(tensors)
        with torch.inference_mode(False), as_captured():  # what is made under it could not be used outside of it
            constants: tuple[torch.Tensor, ...] = self._once(*tensors)
        if values is not None:
            self._sets.put(tensors, values, constants)
        return constants


def _signature(once: GraphModule) -> Signature:
    """Its placeholders as parameters."""
    dtypes = [node.meta["val"].dtype for node in once.graph.nodes if node.op == "placeholder"]
    inputs = tuple(TensorInput(dtype, None, static=True, negated=False, parameter=True) for dtype in dtypes)
    return Signature(inputs, (), (), "")
