"""Steps of training: each program returns a loss, or an output that has one."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn

from benchmarks.cases.case import Case, Program
from benchmarks.cases.models import gpt2, mlp, resnet

__all__ = ["TRAINING"]


class _Classified(nn.Module):
    """A classifier with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(input), labels)


def _mlp() -> Program:
    return Program(_Classified(mlp()), {"input": torch.randn(128, 784), "labels": torch.randint(0, 10, (128,))})


def _resnet18() -> Program:
    return Program(resnet(18), {"pixel_values": torch.randn(4, 3, 224, 224), "labels": torch.randint(0, 2, (4,))})


def _tokens(**more: Any) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, 1000, (4, 64)), **more}


def _bert_small() -> Program:
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}
    # Without dropout: random numbers are ATen's in every one of these compilers but inductor.
    config = hf.BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return Program(hf.BertForSequenceClassification(config), _tokens(labels=torch.randint(0, 2, (4,))))


def _gpt2_small() -> Program:
    none: Any = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    model = gpt2(n_embd=512, n_layer=4, n_head=8, vocab_size=5000, **none)
    return Program(model, _tokens(labels=torch.randint(0, 1000, (4, 64)), use_cache=False))


TRAINING: tuple[Case, ...] = (
    Case("train_mlp", "training", _mlp),
    Case("train_resnet18", "training", _resnet18),
    Case("train_bert_small", "training", _bert_small),
    Case("train_gpt2_small", "training", _gpt2_small),
)
