from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from turbine_lite.errors import UnsupportedError
from turbine_lite.graph.signature import ScalarInput, dense_order, specialize_signature


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (torch.empty(2, 3), None),
        (torch.empty(3, 2).t(), (1, 0)),
        (torch.empty(2, 4, 5, 3).permute(0, 3, 1, 2), (0, 2, 3, 1)),
        (torch.empty(2, 3)[:, ::2], None),
        (torch.empty(3).expand(2, 3), None),
        (torch.empty(0, 3).t(), None),
        (torch.empty(()), None),
        (torch.empty(1, 3, 1), None),
    ],
)
def test_dense_order(tensor, order):
    assert dense_order(tensor) == order
    if order is not None:
        assert tensor.permute(order).is_contiguous()


def test_results_keep_sizes_and_strides_of_the_graph():
    gm = make_fx(lambda x: (x * 2,), tracing_mode="fake")(torch.empty(3, 2).t())
    signature = specialize_signature(gm.graph)
    assert signature.shapes == (((2, 3), (1, 2)),)
    assert signature.inputs[0].order == (1, 0)
    assert signature.outputs[0].order == (1, 0)


def test_dynamic_shapes_are_computed_from_the_arguments():
    gm = make_fx(lambda x: (torch.cat([x, x]).t(),), tracing_mode="symbolic")(torch.empty(5, 3))
    signature = specialize_signature(gm.graph)
    assert signature.shapes is None
    assert signature.shapes_of()([torch.empty(7, 4)]) == (((4, 14), (1, 4)),)


def test_numbers_are_scalar_inputs():
    gm = make_fx(lambda x, n: (x * n,), tracing_mode="symbolic")(torch.empty(5, 3), 7)
    signature = specialize_signature(gm.graph)
    assert ScalarInput(int) in signature.inputs


def test_a_size_that_no_argument_tells_is_unsupported():
    gm = make_fx(lambda x: (x * 2,), tracing_mode="symbolic")(torch.empty(5, 3))
    placeholder = next(iter(gm.graph.nodes))
    placeholder.meta["val"] = torch.empty(5, 3)
    with pytest.raises(UnsupportedError, match="which no argument tells"):
        specialize_signature(gm.graph)
