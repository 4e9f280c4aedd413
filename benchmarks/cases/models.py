"""Whole models for inference, in the sizes that people run on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers as hf
from torch import nn

from benchmarks.cases.case import Case, Program
from benchmarks.cases.unet import UNet

__all__ = ["MODELS", "bert", "gpt2", "mlp", "resnet"]

_BATCHES = (1, 8)
_CLASSES = 1000
# A prompt, and what one token of a conversation has behind it.
_TOKENS = 64
_CACHED = 128


def mlp() -> nn.Module:
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers)


def resnet(depth: int) -> nn.Module:
    """ResNet-18 or ResNet-50 of He et al. 2015 (arXiv:1512.03385)."""
    basic = {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"}
    return hf.ResNetForImageClassification(hf.ResNetConfig(**(basic if depth == 18 else {}), num_labels=_CLASSES))


def bert(**sizes: int) -> nn.Module:
    return hf.BertModel(_config(hf.BertConfig, **sizes))


def gpt2(**sizes: int) -> hf.GPT2LMHeadModel:
    return hf.GPT2LMHeadModel(_config(hf.GPT2Config, **sizes))


def _config(kind: Any, **sizes: Any) -> Any:
    """Token ids that ask for no warning of generation's, whatever the vocabulary."""
    return kind(**sizes, bos_token_id=0, eos_token_id=0)


def _llama() -> hf.LlamaForCausalLM:
    sizes = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8}
    return hf.LlamaForCausalLM(_config(hf.LlamaConfig, **sizes, vocab_size=32000))


class _Decode(nn.Module):
    """One token after ``_CACHED`` others, the same in each call: a cache of fixed size is read and written."""

    def __init__(self, model: Any, batch: int) -> None:
        super().__init__()
        self.model = model
        self.cache = hf.StaticCache(config=model.config, max_cache_len=2 * _CACHED)
        with torch.no_grad():
            model(torch.randint(0, 1000, (batch, _CACHED)), past_key_values=self.cache)

    def forward(self, input_ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            input_ids, past_key_values=self.cache, position_ids=position[None], cache_position=position
        ).logits
        for layer in self.cache.layers:  # else the cache is full after so many calls
            layer.cumulative_length.fill_(_CACHED)
        return logits


def _images(size: int = 224) -> Callable[[int], dict[str, Any]]:
    return lambda batch: {"pixel_values": torch.randn(batch, 3, size, size)}


def _tokens(count: int, **more: Any) -> Callable[[int], dict[str, Any]]:
    return lambda batch: {"input_ids": torch.randint(0, 1000, (batch, count)), **more}


def _step(batch: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, 1000, (batch, 1)), "position": torch.tensor([_CACHED])}


def _vit_small() -> nn.Module:
    return hf.ViTForImageClassification(
        hf.ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    )


def _t5_encoder() -> nn.Module:
    return hf.T5EncoderModel(hf.T5Config())


def _whisper_encoder() -> nn.Module:
    return hf.WhisperModel(hf.WhisperConfig()).get_encoder()


def _models() -> Iterator[tuple[str, Callable[[int], nn.Module], Callable[[int], dict[str, Any]]]]:
    """Name, module for a batch size, arguments for a batch size."""
    yield "mlp", lambda _: mlp(), lambda batch: {"input": torch.randn(32 * batch, 784)}
    yield "resnet18", lambda _: resnet(18), _images()
    yield "resnet50", lambda _: resnet(50), _images()
    yield (
        "mobilenet_v2",
        lambda _: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(num_labels=_CLASSES)),
        _images(),
    )
    yield (
        "efficientnet",
        lambda _: hf.EfficientNetForImageClassification(
            hf.EfficientNetConfig(
                image_size=224, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=_CLASSES
            )
        ),
        _images(),
    )
    yield (
        "convnext_tiny",
        lambda _: hf.ConvNextForImageClassification(hf.ConvNextConfig(num_labels=_CLASSES)),
        _images(),
    )
    yield "vit_small", lambda _: _vit_small(), _images()
    yield "bert_base", lambda _: bert(), _tokens(2 * _TOKENS)
    yield "gpt2_prefill", lambda _: gpt2(), _tokens(_TOKENS, use_cache=False)
    yield "gpt2_decode", lambda batch: _Decode(gpt2().eval(), batch), _step
    yield "llama_prefill", lambda _: _llama(), _tokens(_TOKENS, use_cache=False)
    yield "llama_decode", lambda batch: _Decode(_llama().eval(), batch), _step
    yield "t5_encoder", lambda _: _t5_encoder(), _tokens(2 * _TOKENS)
    yield (
        "whisper_encoder",
        lambda _: _whisper_encoder(),
        lambda batch: {"input_features": torch.randn(batch, 80, 3000)},
    )
    yield "unet", lambda _: UNet(), lambda batch: {"images": torch.randn(batch, 3, 128, 128)}


def _case(name: str, build: Callable[[int], nn.Module], arguments: Callable[[int], dict[str, Any]], batch: int) -> Case:
    return Case(f"{name}_batch_{batch}", "model", lambda: Program(build(batch), arguments(batch)))


MODELS: tuple[Case, ...] = tuple(_case(*model, batch) for batch in _BATCHES for model in _models())
