"""ResNet-18, ViT, BERT and GPT-2 (random weights), exported, saved, and compiled by IREE from the files alone."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from safetensors import safe_open
from torch.export import Dim

import turbine_lite
from tests.helpers import relative_error
from turbine_lite.compiler.dialects import DIALECTS
from turbine_lite.errors import CompilationError

_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def _built(name):
    torch.manual_seed(0)
    if name == "resnet18":
        config = hf.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 32, 64], depths=[2] * 4, layer_type="basic")
        return hf.ResNetForImageClassification(config).eval(), {"pixel_values": torch.randn(2, 3, 64, 64)}
    if name == "vit":
        config = hf.ViTConfig(**_SMALL, image_size=32, patch_size=8)
        return hf.ViTForImageClassification(config).eval(), {"pixel_values": torch.randn(2, 3, 32, 32)}
    ids = torch.randint(0, 200, (2, 12))
    if name == "bert":
        model = hf.BertModel(hf.BertConfig(**_SMALL, vocab_size=200)).eval()
        return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    config = hf.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=200, n_positions=64, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    return hf.GPT2LMHeadModel(config).eval(), {"input_ids": ids}


def _shapes(arguments, dims):
    batch, length, height = Dim("batch", min=1, max=16), Dim("length", min=2, max=64), Dim("height", min=33, max=128)
    second = {2: height} if "pixel_values" in arguments else {1: length}
    return {name: {0: batch, **(second if dims == 2 else {})} for name in arguments}


def _examples(arguments, dims):
    """Arguments of other sizes, where these are dynamic."""
    yield arguments
    for batch, shorter in ((3, 0), (1, 5 if dims == 2 else 0)) if dims else ():
        yield {name: _resized(value, batch, shorter) for name, value in arguments.items()}


def _resized(value, batch, shorter):
    second = 2 if value.dim() == 4 else 1  # the height of images, or the length
    return value[:1].repeat_interleave(batch, 0).narrow(second, 0, value.shape[second] - shorter).contiguous()


def _check_saved(name, dialect, weights, folder, dims=0):
    model, arguments = _built(name)
    shapes = _shapes(arguments, dims) if dims else None
    exported = turbine_lite.export(model, kwargs=arguments, dialect=dialect, weights=weights, dynamic_shapes=shapes)
    module, *beside = exported.save(folder / "model.mlir")
    given = []
    if weights == "external":
        with safe_open(beside[0], "pt") as file:
            given = [file.get_tensor(weight) for weight in file.metadata()["main"].split(",")]
    run = turbine_lite.load_mlir(module)
    for used in _examples(arguments, dims):
        with torch.no_grad():
            want = model(**used).to_tuple()
        got = run(*given, *used.values())
        for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            assert relative_error(a, b) < 1e-4


@pytest.mark.parametrize(
    ("name", "dialect", "weights"),
    [
        ("resnet18", "stablehlo", "external"),
        ("gpt2", "linalg-on-tensors", "external"),
    ],
)
def test_from_saved_text(name, dialect, weights, tmp_path):
    _check_saved(name, dialect, weights, tmp_path)


@pytest.mark.parametrize(
    ("name", "dialect", "dims"), [("vit", "linalg-on-tensors", 1), ("bert", "stablehlo", 2), ("gpt2", "torch", 2)]
)
def test_dynamic(name, dialect, dims, tmp_path):
    _check_saved(name, dialect, "external", tmp_path, dims)


@pytest.mark.full
@pytest.mark.parametrize("weights", ["embedded", "external"])
@pytest.mark.parametrize("dialect", ["stablehlo", "linalg-on-tensors"])
@pytest.mark.parametrize("name", ["resnet18", "vit", "bert", "gpt2"])
def test_all_from_saved_text(name, dialect, weights, tmp_path):
    _check_saved(name, dialect, weights, tmp_path)


_NOT_POSSIBLE = {
    ("resnet18", 2, "stablehlo"): r"stablehlo\.convolution",  # with a dynamic height, for IREE
    ("gpt2", 2, "stablehlo"): r"torch\.aten\.cumsum",  # along a dynamic dimension, for torch-mlir
}


@pytest.mark.full
@pytest.mark.parametrize("dialect", ["stablehlo", "linalg-on-tensors", "torch"])
@pytest.mark.parametrize(
    ("name", "dims"),
    [("resnet18", 1), ("resnet18", 2), ("vit", 1), ("bert", 1), ("bert", 2), ("gpt2", 1), ("gpt2", 2)],
)
def test_all_dynamic(name, dims, dialect, tmp_path):
    why_not = _NOT_POSSIBLE.get((name, dims, dialect))
    if why_not is None:
        _check_saved(name, dialect, "external", tmp_path, dims)
    else:
        with pytest.raises(CompilationError, match=why_not):
            _check_saved(name, dialect, "external", tmp_path, dims)


@pytest.mark.full
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("name", "dims"),  # of ViT, the size of the images is the model's
    [(name, dims) for name in ("resnet18", "vit", "bert", "gpt2") for dims in (0, 1, 2) if (name, dims) != ("vit", 2)],
)
def test_every_dialect_can_be_written(name, dims, dialect):
    model, arguments = _built(name)
    shapes = _shapes(arguments, dims) if dims else None
    exported = turbine_lite.export(model, kwargs=arguments, dialect=dialect, weights="external", dynamic_shapes=shapes)
    if dims and dialect == "tosa":
        with pytest.raises(CompilationError, match=r"aten\.size\.int"):  # which TOSA has nothing for
            exported.bytecode()
    elif (name, dims, dialect) == ("gpt2", 2, "stablehlo"):
        with pytest.raises(CompilationError, match="cumsum"):  # of a dynamic dimension
            exported.bytecode()
    else:
        assert exported.bytecode()
