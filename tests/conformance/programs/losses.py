"""Losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.conformance.programs.harness import ints, normal, positive, program

FAMILY = "losses"


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([0, 4, 2, 2])))
def cross_entropies(x, y):
    return F.cross_entropy(x, y), F.cross_entropy(x, y, reduction="none"), F.cross_entropy(x, y, reduction="sum")


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([0, -100, 2, 3]), positive(5)))
def cross_entropy_options(x, y, w):
    ignored = F.cross_entropy(x, y)
    weighted = F.cross_entropy(x, y.clamp_min(0), w, label_smoothing=0.2)
    return ignored, weighted, F.cross_entropy(x, y, w), F.cross_entropy(x, y % 5, ignore_index=3, reduction="none")


@program(FAMILY, inputs=lambda: (normal(4, 5), normal(4, 5)))
def cross_entropy_of_probabilities(x, y):
    return F.cross_entropy(x, y.softmax(1)), F.cross_entropy(x, y.softmax(1), label_smoothing=0.1, reduction="none")


@program(FAMILY, inputs=lambda: (normal(2, 3, 4, 5), ints(2, 4, 5, low=0, high=3), positive(3)))
def negative_log_likelihood_2d(x, y, w):
    log = F.log_softmax(x, 1)
    return F.nll_loss(log, y), F.nll_loss(log, y, w), F.cross_entropy(x, y, ignore_index=1)


@program(FAMILY, inputs=lambda: (normal(3, 4), torch.full((3,), -100)))
def everything_ignored(x, y):
    return F.cross_entropy(x, y), F.cross_entropy(x, y, reduction="sum")


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4)))
def distances(x, y):
    return F.mse_loss(x, y), F.l1_loss(x, y), F.mse_loss(x, y, reduction="none"), F.l1_loss(x, y, reduction="sum")


@program(FAMILY, inputs=lambda: (normal(3, 4) * 2, normal(3, 4)))
def robust_distances(x, y):
    return F.smooth_l1_loss(x, y), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y, delta=0.7)


@program(
    FAMILY,
    inputs=lambda: (normal(3, 4) * 20, positive(3, 4).clamp(max=1), positive(4)),
    eager={"aten.mean.default": "not-lowered"},
)
def binary_cross_entropies(x, y, w):
    logits = F.binary_cross_entropy_with_logits(x, y)
    weighted = F.binary_cross_entropy_with_logits(x, y, weight=w, pos_weight=w * 2)
    return logits, weighted, F.binary_cross_entropy(torch.sigmoid(x / 20), y), F.binary_cross_entropy(y * 0, y * 0 + 1)


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4)))
def divergences(x, y):
    p, q = x.log_softmax(1), y.softmax(1)
    return F.kl_div(p, q, reduction="batchmean"), F.kl_div(p, q.log(), log_target=True, reduction="sum")


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4), torch.tensor([1.0, -1.0, 1.0])))
def cosines(x, y, sign):
    return (
        F.cosine_similarity(x, y),
        F.cosine_embedding_loss(x, y, sign, margin=0.1),
        F.cosine_similarity(x, y * 0, dim=0),
    )


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4), normal(3, 4)))
def triplets(x, y, z):
    return F.triplet_margin_loss(x, y, z), F.triplet_margin_loss(x, y, z, margin=2, swap=True, reduction="none")


@program(FAMILY, inputs=lambda: (normal(4), normal(4), torch.tensor([1.0, -1.0, 1.0, -1.0])))
def margins(x, y, sign):
    return F.margin_ranking_loss(x, y, sign, margin=0.3), F.hinge_embedding_loss(x, sign), F.soft_margin_loss(x, sign)


@program(FAMILY, inputs=lambda: (normal(3, 4), torch.tensor([0, 3, 1]), ints(3, 4, low=0, high=2).float()))
def multi_class_margins(x, y, labels):
    return F.multi_margin_loss(x, y), F.multilabel_soft_margin_loss(x, labels)


@program(FAMILY, inputs=lambda: (positive(3, 4), ints(3, 4, low=0, high=5).float(), positive(3, 4)))
def likelihoods(x, y, variance):
    return F.poisson_nll_loss(x, y), F.poisson_nll_loss(x, y, log_input=False, full=True), (x - y).square() / variance


@program(
    FAMILY,
    inputs=lambda: (normal(8, 2, 5), ints(2, 3, low=1, high=5), torch.tensor([8, 7]), torch.tensor([3, 2])),
    breaks=True,
)
def connectionist(x, y, input_lengths, target_lengths):
    return F.ctc_loss(x.log_softmax(2), y, input_lengths, target_lengths)


@program(FAMILY, inputs=lambda: (normal(4, 5), torch.tensor([0, -100, 2, 3]), positive(5)), grad=True)
def grad_of_cross_entropy(x, y, w):
    return F.cross_entropy(x, y), F.cross_entropy(x, y, w.detach(), label_smoothing=0.1)


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4)), grad=True)
def grad_of_distances(x, y):
    return F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.cosine_similarity(x, y)


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4)), grad=True)
def grad_of_divergences(x, y):
    return F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.kl_div(x.log_softmax(1), y.softmax(1), reduction="sum")
