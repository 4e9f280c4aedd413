"""Real architectures run through IREE, not around it: ``fallback="error"`` and one executable for each graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch._dynamo.utils import counters

from tests.helpers import NATIVE, assert_same_gradients, relative_error
from tests.models.zoo import MODELS, build, main_result


def counts() -> dict[str, int]:
    return dict(counters["turbine_lite"])


@pytest.mark.parametrize("name", MODELS)
def test_forward_equals_eager(name):
    model, arguments = build(name)
    model.eval()
    compiled = torch.compile(model, backend="turbine_lite_cpu", options=NATIVE)
    with torch.no_grad():
        want, got = main_result(model(**arguments)), main_result(compiled(**arguments))
    assert relative_error(got, want) < 1e-4
    assert counts()["executables"] >= 1
    assert not [key for key in counts() if key.startswith("eager")]


@pytest.mark.parametrize("name", MODELS)
def test_forward_with_kernels_equals_eager(name):
    model, arguments = build(name)
    model.eval()
    compiled = torch.compile(model, backend="turbine_lite_cpu", options={"fallback": "error", "extern": "all"})
    with torch.no_grad():
        want, got = main_result(model(**arguments)), main_result(compiled(**arguments))
    assert relative_error(got, want) < 1e-4
    assert got.stride() == want.stride()
    assert any(key.endswith(": slower") for key in counts())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo looks at it in GPT-2's loss
@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.full) for name in ("resnet", "bert")), "gpt2", "vit"]
)
def test_gradients_equal_eagers(name):
    model, arguments = build(name)
    model.train()
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend="turbine_lite_cpu", options=NATIVE)
    torch.manual_seed(7)
    want = model(**arguments).loss
    torch.manual_seed(7)
    got = compiled(**arguments).loss
    want.backward()
    got.backward()
    assert relative_error(got.detach(), want.detach()) < 1e-4
    assert_same_gradients(twin, model)
    assert [key for key in counts() if key.startswith("eager") and not key.endswith("random")] == []


def test_dropout_does_not_cut_the_forward_graph():
    model, arguments = build("bert")
    model.train()
    torch.compile(model, backend="turbine_lite_cpu", options=NATIVE)(**arguments)
    assert counts()["eager aten.bernoulli.p: random"] > 0
    assert counts()["executables"] == 1


def test_a_growing_prompt_is_not_compiled_for_each_length():
    model, arguments = build("gpt2")
    model.eval()
    # Not NATIVE: IREE cannot generate code for the mask's cumsum over a dynamic dimension, it runs in eager.
    compiled = torch.compile(model, backend="turbine_lite_cpu", dynamic=True)
    seen = []
    with torch.no_grad():
        for length in (5, 9, 13, 24):
            ids = arguments["input_ids"][:, :length].contiguous()
            want = model(input_ids=ids, use_cache=False).logits
            got = compiled(input_ids=ids, use_cache=False).logits
            assert relative_error(got, want) < 1e-4
            seen.append(counts()["graphs"])
    assert seen[1:] == seen[1:2] * 3, "a new length was compiled anew"
