"""Architectures of ``transformers`` in miniature, from configurations with random weights.

``python -m tests.models.architectures`` runs each forward and one step of training against eager, and writes the table
``architectures.json`` that ``test_architectures.py`` checks: how many graphs and regions, which share of the nodes runs
in IREE, and which operators run in eager and why. A result that differs from eager's is never written to the table:
the run lists it and ends with exit status 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import nn

from tests.models import zoo

Built = tuple[nn.Module, dict[str, Any]]

# What nearly all of the text models' configurations call these.
_TEXT: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 1,
}
_VISION: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
}


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(2, 200, shape, generator=torch.Generator().manual_seed(1))


def _image(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))


def _classified_text(model: nn.Module) -> Built:
    """A padded batch with one label for each row."""
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 11:] = 0
    return model, {"input_ids": _ids(2, 16), "attention_mask": mask, "labels": torch.tensor([0, 1])}


def _next_tokens(model: nn.Module, length: int = 16) -> Built:
    ids = _ids(2, length)
    return model, {"input_ids": ids, "labels": ids, "use_cache": False}


def _classified_image(model: nn.Module, size: int = 32) -> Built:
    return model, {"pixel_values": _image(size), "labels": torch.tensor([0, 1])}


def roberta() -> Built:
    return _classified_text(hf.RobertaForSequenceClassification(hf.RobertaConfig(**_TEXT)))


def distilbert() -> Built:
    config = hf.DistilBertConfig(
        vocab_size=200, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64
    )
    return _classified_text(hf.DistilBertForSequenceClassification(config))


def albert() -> Built:
    return _classified_text(hf.AlbertForSequenceClassification(hf.AlbertConfig(**_TEXT, embedding_size=16)))


def electra() -> Built:
    return _classified_text(hf.ElectraForSequenceClassification(hf.ElectraConfig(**_TEXT, embedding_size=16)))


def deberta_v2() -> Built:
    config = hf.DebertaV2Config(
        **_TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, norm_rel_ebd="layer_norm"
    )
    return _classified_text(hf.DebertaV2ForSequenceClassification(config))


def modernbert() -> Built:
    config = hf.ModernBertConfig(
        **_TEXT, local_attention=8, global_attn_every_n_layers=2, cls_token_id=0, sep_token_id=0
    )
    return _classified_text(hf.ModernBertForSequenceClassification(config))


def gpt_neox() -> Built:
    return _next_tokens(hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**_TEXT)))


def opt() -> Built:
    config = hf.OPTConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
    )
    return _next_tokens(hf.OPTForCausalLM(config))


def mistral() -> Built:
    return _next_tokens(hf.MistralForCausalLM(hf.MistralConfig(**_TEXT, num_key_value_heads=2, sliding_window=8)))


def qwen3() -> Built:
    return _next_tokens(hf.Qwen3ForCausalLM(hf.Qwen3Config(**_TEXT, num_key_value_heads=2, head_dim=8)))


def gemma() -> Built:
    return _next_tokens(hf.GemmaForCausalLM(hf.GemmaConfig(**_TEXT, num_key_value_heads=1, head_dim=8)))


def phi() -> Built:
    return _next_tokens(hf.PhiForCausalLM(hf.PhiConfig(**_TEXT, num_key_value_heads=4)))


def bloom() -> Built:
    config = hf.BloomConfig(vocab_size=200, hidden_size=32, n_layer=2, n_head=4, hidden_dropout=0.1)
    return _next_tokens(hf.BloomForCausalLM(config))


def falcon() -> Built:
    config = hf.FalconConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=64, alibi=True
    )
    return _next_tokens(hf.FalconForCausalLM(config))


def mamba() -> Built:
    config = hf.MambaConfig(vocab_size=200, hidden_size=32, state_size=4, num_hidden_layers=2, use_mambapy=False)
    return _next_tokens(hf.MambaForCausalLM(config), length=6)


def bart() -> Built:
    config = hf.BartConfig(
        vocab_size=200,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
    )
    model = hf.BartForConditionalGeneration(config)
    return model, {"input_ids": _ids(2, 16), "labels": _ids(2, 10), "use_cache": False}


def swin() -> Built:
    config = hf.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    return _classified_image(hf.SwinForImageClassification(config))


def deit() -> Built:
    return _classified_image(hf.DeiTForImageClassification(hf.DeiTConfig(**_VISION)))


def convnextv2() -> Built:
    config = hf.ConvNextV2Config(hidden_sizes=[8, 16, 32, 48], depths=[1, 1, 1, 1], drop_path_rate=0.1)
    return _classified_image(hf.ConvNextV2ForImageClassification(config))


def segformer() -> Built:
    config = hf.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[4, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
        num_labels=5,
    )
    labels = torch.randint(0, 5, (2, 32, 32), generator=torch.Generator().manual_seed(4))
    return hf.SegformerForSemanticSegmentation(config), {"pixel_values": _image(), "labels": labels}


def dinov2() -> Built:
    sizes = {name: value for name, value in _VISION.items() if name != "intermediate_size"}
    config = hf.Dinov2Config(**sizes, mlp_ratio=2, drop_path_rate=0.1)
    return _classified_image(hf.Dinov2ForImageClassification(config))


def whisper() -> Built:
    config = hf.WhisperConfig(
        vocab_size=200,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=16,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )
    features = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(3))
    model = hf.WhisperForConditionalGeneration(config)
    return model, {"input_features": features, "labels": _ids(2, 10), "use_cache": False}


def wav2vec2() -> Built:
    config = hf.Wav2Vec2Config(
        **{name: value for name, value in _TEXT.items() if name != "max_position_embeddings"},
        conv_dim=(16, 16, 16),
        conv_stride=(5, 4, 4),
        conv_kernel=(10, 8, 4),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        # Both draw numbers with NumPy or Python, which is not the graph's business.
        apply_spec_augment=False,
        layerdrop=0.0,
        classifier_proj_size=16,
        num_labels=2,
    )
    sound = torch.randn(2, 1200, generator=torch.Generator().manual_seed(5))
    return hf.Wav2Vec2ForSequenceClassification(config), {"input_values": sound, "labels": torch.tensor([0, 1])}


def clip() -> Built:
    text = {name: value for name, value in _TEXT.items() if name != "max_position_embeddings"}
    config = hf.CLIPConfig(
        text_config={**text, "max_position_embeddings": 16, "eos_token_id": 199},
        vision_config=_VISION,
        projection_dim=16,
    )
    ids = _ids(2, 12)
    ids[:, -1] = 199
    return hf.CLIPModel(config), {"input_ids": ids, "pixel_values": _image(), "return_loss": True}


ARCHITECTURES: dict[str, Callable[[], Built]] = {
    f.__name__: f
    for f in (
        *(zoo.bert, roberta, distilbert, albert, electra, deberta_v2, modernbert),
        *(zoo.gpt2, gpt_neox, opt, zoo.llama, mistral, qwen3, gemma, phi, bloom, falcon, mamba),
        *(zoo.t5, bart),
        *(zoo.vit, swin, deit, convnextv2, zoo.resnet, zoo.mobilenet_v2, segformer, dinov2),
        *(whisper, wav2vec2),
        clip,
    )
}


def build(name: str) -> Built:
    """The model and its arguments; the same weights every time."""
    torch.manual_seed(0)
    return ARCHITECTURES[name]()


if __name__ == "__main__":
    from tests.models.against_eager import write_table

    sys.exit(write_table())
