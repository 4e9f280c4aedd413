"""Small models from configurations, with random weights; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn


def _ids(*shape: int, vocabulary: int = 500) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(1))


def _image(size: int = 64, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(2))


def bert() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    mask = torch.ones(2, 24, dtype=torch.long)
    mask[1, 15:] = 0
    labels = torch.tensor([0, 1])
    return hf.BertForSequenceClassification(config), {
        "input_ids": _ids(2, 24),
        "attention_mask": mask,
        "labels": labels,
    }


def gpt2() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.GPT2Config(
        vocab_size=500, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    ids = _ids(2, 24)
    return hf.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids, "use_cache": False}


def llama() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.LlamaConfig(
        vocab_size=500,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return hf.LlamaForCausalLM(config), {"input_ids": _ids(2, 24), "use_cache": False}


def t5() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.T5Config(
        vocab_size=500, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return hf.T5ForConditionalGeneration(config), {
        "input_ids": _ids(2, 24),
        "decoder_input_ids": _ids(2, 12),
        "use_cache": False,
    }


def vit() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.ViTConfig(
        hidden_size=96, num_hidden_layers=2, num_attention_heads=3, intermediate_size=192, image_size=64
    )
    return hf.ViTForImageClassification(config), {"pixel_values": _image(), "labels": torch.tensor([0, 1])}


def resnet() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1], layer_type="basic")
    return hf.ResNetForImageClassification(config), {"pixel_values": _image(), "labels": torch.tensor([0, 1])}


def convnext() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.ConvNextConfig(hidden_sizes=[16, 32, 64, 128], depths=[1, 1, 1, 1])
    return hf.ConvNextForImageClassification(config), {"pixel_values": _image()}


def mobilenet_v2() -> tuple[nn.Module, dict[str, Any]]:
    model = hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(image_size=64, depth_multiplier=0.35))
    for module in model.modules():  # the configuration's tiny weights would let every activation vanish
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model, {"pixel_values": _image()}


def whisper_encoder() -> tuple[nn.Module, dict[str, Any]]:
    config = hf.WhisperConfig(
        d_model=64,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=128,
        max_source_positions=50,
    )
    features = torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(3))
    return hf.WhisperModel(config).encoder, {"input_features": features}


class UNet(nn.Module):
    """A diffusion-style denoiser: time embedding, group norm, SiLU, attention at the bottom, skip connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2 * width))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, image: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(torch.arange(8) * -0.5)
        angles = step[:, None] * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        top = nn.functional.silu(self.enter(image))
        x = self.down(top)
        x = x + self.middle(nn.functional.silu(self.norm(x) + time[:, :, None, None]))
        sequence = x.flatten(2).transpose(1, 2)
        x = x + self.attention(sequence, sequence, sequence)[0].transpose(1, 2).reshape(x.shape)
        out: torch.Tensor = self.leave(torch.cat([self.up(x), top], 1))
        return out


def unet() -> tuple[nn.Module, dict[str, Any]]:
    return UNet(), {"image": _image(32), "step": torch.tensor([3.0, 40.0])}


MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    f.__name__: f for f in (bert, gpt2, llama, t5, vit, resnet, convnext, mobilenet_v2, whisper_encoder, unet)
}


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The model and its arguments; the same weights every time."""
    torch.manual_seed(0)
    return MODELS[name]()


def main_result(result: Any) -> torch.Tensor:
    """The tensor that a model is about."""
    for attribute in ("logits", "logits_per_image", "last_hidden_state"):
        value = getattr(result, attribute, None)
        if isinstance(value, torch.Tensor):
            return value
    assert isinstance(result, torch.Tensor)
    return result
