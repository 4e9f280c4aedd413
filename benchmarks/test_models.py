"""Eager against turbine_lite: ``python -m pytest benchmarks``. Run it on a machine that does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf

from turbine_lite.demo import ResNet18

Case = Callable[[], tuple[torch.nn.Module, dict[str, Any]]]


def mlp() -> tuple[torch.nn.Module, dict[str, Any]]:
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 10)), {"input": torch.randn(32, 784)}


def resnet18() -> tuple[torch.nn.Module, dict[str, Any]]:
    return ResNet18(), {"images": torch.randn(1, 3, 224, 224)}


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = hf.BertConfig(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048)
    return hf.BertModel(config), {"input_ids": torch.randint(0, 1000, (1, 128))}


def gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = hf.GPT2Config(n_embd=512, n_layer=4, n_head=8)
    return hf.GPT2LMHeadModel(config), {"input_ids": torch.randint(0, 1000, (1, 64)), "use_cache": False}


def vit() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = hf.ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    return hf.ViTForImageClassification(config), {"pixel_values": torch.randn(1, 3, 224, 224)}


def llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = hf.LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8)
    return hf.LlamaForCausalLM(config), {"input_ids": torch.randint(0, 1000, (1, 64)), "use_cache": False}


def mobilenet_v2() -> tuple[torch.nn.Module, dict[str, Any]]:
    return hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), {"pixel_values": torch.randn(1, 3, 224, 224)}


CASES: dict[str, Case] = {f.__name__: f for f in (mlp, resnet18, bert, gpt2, vit, llama, mobilenet_v2)}
WHO = {"eager": None, "turbine_lite": "turbine_lite_cpu"}


def built(case: str, who: str) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    model, arguments = CASES[case]()
    model.eval()
    backend = WHO.get(who, who)
    return (model if backend is None else torch.compile(model, backend=backend)), arguments


def label(benchmark: Any, group: str, case: str, who: str) -> None:
    benchmark.group = group
    benchmark.extra_info.update(case=case, who=who)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("case", CASES)
def test_steady_state(benchmark: Any, case: str, who: str) -> None:
    label(benchmark, "steady state", case, who)
    call, arguments = built(case, who)
    with torch.no_grad():
        for _ in range(3):
            call(**arguments)
        benchmark.pedantic(call, kwargs=arguments, rounds=20, warmup_rounds=2)


@pytest.mark.parametrize("case", CASES)
def test_cold_compile(benchmark: Any, case: str) -> None:
    label(benchmark, "cold compile", case, "turbine_lite")

    def setup() -> tuple[tuple[()], dict[str, Any]]:
        torch._dynamo.reset()
        call, arguments = built(case, "turbine_lite")
        return (), {"call": call, "arguments": arguments}

    def first_call(call: Any, arguments: dict[str, Any]) -> None:
        with torch.no_grad():
            call(**arguments)

    benchmark.pedantic(first_call, setup=setup, rounds=2)


@pytest.mark.filterwarnings("ignore")  # inductor's own deprecations
@pytest.mark.parametrize("who", ["eager", "aot_eager", "inductor", "turbine_lite"])
def test_call_overhead(benchmark: Any, who: str) -> None:
    """Two inputs of eight floats, one addition, no gradient: what is measured is everything but the work."""
    label(benchmark, "call overhead", "add of 8 floats", who)

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    backend = WHO.get(who, who)
    call = add if backend is None else torch.compile(add, backend=backend)
    x, y = torch.randn(8), torch.randn(8)
    with torch.no_grad():
        call(x, y)
        benchmark.pedantic(call, args=(x, y), rounds=300, iterations=200, warmup_rounds=30)
