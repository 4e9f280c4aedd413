"""Type promotion, casts and quantisation."""

from __future__ import annotations

import torch
from torch import nn

from tests.conformance.programs.harness import flags, ints, normal, positive, program
from tests.helpers import TOLERANCE

# bfloat16 in the middle of a chain, whose result is float32, is rounded once where eager rounds at each step.
_NARROW = TOLERANCE[torch.bfloat16]


@program("promotion", inputs=lambda: (ints(3, 4), normal(4), ints(3, 4, dtype=torch.int32), flags(3, 4)))
def kinds(n, x, m, p):
    return n + x, n + m, n * p, m / 2, n / m.clamp_min(1), p * 2.5, x - m, p + p


@program("promotion", inputs=lambda: (torch.tensor(2.5, dtype=torch.float64), torch.tensor(3), normal(4), ints(4)))
def zero_dim_with_vectors(d, i, x, n):
    return d * x, i * x, d + n, i + n, d + i, torch.where(x > 0, d, x)


@program("promotion", inputs=lambda: (ints(4, dtype=torch.int16), ints(4, dtype=torch.int32), flags(4)))
def scalars(s, n, p):
    return s + 1, s * 1.5, n // 2, p + 1, p * 1.0, n > 1.5, s + True, 2**30 + n


@program(
    "promotion",
    tolerance=_NARROW,
    inputs=lambda: (normal(4, dtype=torch.float16), normal(4, dtype=torch.bfloat16), normal(4)),
)
def narrow_floats(h, b, x):
    return h + b, h * x, b + 1, h / 3, b.sum() + x, h @ h, b > h


@program(
    "promotion", inputs=lambda: (normal(4, dtype=torch.float64), normal(4), ints(4)), eager={"region": "not-lowered"}
)
def doubles(d, x, n):
    return d + x, d * n, d / 3, (d + 1e-12) - d, d.sin(), d.softmax(0), x.double().exp()


@program("promotion", inputs=lambda: (flags(3, 4), flags(4)), eager={"aten.bitwise_or.Scalar": "not-importable"})
def boolean_arithmetic(p, q):
    return p + 1, p * q, p.sum() / 4, p.int() - q.int(), p.float().mean(0), p.cumsum(1), p | 2 > 1


@program(
    "promotion",
    inputs=lambda: (ints(4, dtype=torch.uint8, low=0, high=256), ints(4, dtype=torch.int8)),
    eager={
        "aten.add.Tensor": "dtype",
        "aten.bitwise_not.default": "dtype",
        "aten.div.Tensor_mode": "dtype",
        "aten.mul.Tensor": "dtype",
        "aten.sub.Tensor": "dtype",
        "prims.convert_element_type.default": "dtype",
    },
)
def bytes_wrap(u, s):
    return u + 200, u * u, s - 100, u // 3, u + s, ~u, u.float() * 2


@program(
    "promotion",
    inputs=lambda: (normal(6) * 100, ints(6, low=-1000, high=1000)),
    eager={"prims.convert_element_type.default": "dtype"},
)
def casts_to_narrow_integers(x, n):
    return x.to(torch.int16), n.to(torch.int8), n.to(torch.uint8), n.to(torch.int16) * 2, x.int(), x.bool()


@program("promotion", inputs=lambda: (normal(5) * 3, ints(5), flags(5)))
def casts(x, n, p):
    return x.long(), x.half(), x.bfloat16(), n.float(), p.long(), n.bool(), x.double().float(), n.half() + 1


@program("promotion", inputs=lambda: (torch.tensor([1e5, -1e5, 65504.0, 1e-8, 1 / 3]),))
def narrowing_overflow(x):
    return x.half(), x.bfloat16(), x.half().float() * 2, (x.half() + x.half()).isinf()


@program("promotion", inputs=lambda: (normal(4), ints(4)))
def results_of_scalar_arguments(x, n):
    return torch.add(n, 1, alpha=2), torch.full_like(n, 3) * x, torch.ones_like(x, dtype=torch.int32) + n, x.type_as(n)


@program("promotion", tolerance=_NARROW, inputs=lambda: (normal(4, dtype=torch.float16), normal(4)), grad=True)
def grad_of_casts(h, x):
    return h.float() * x, (x.double() * 2).sum(), x.to(torch.bfloat16) * 3


@program("promotion", inputs=lambda: (normal(3, 8),))
class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x).relu().softmax(-1)


@program(
    "quantised",
    inputs=lambda: (normal(3, 4), positive(4), torch.zeros(4, dtype=torch.int32)),
    eager={"aten.fake_quantize_per_channel_affine_cachemask.default": "not-lowered"},
)
def fakes(x, scale, zero):
    whole = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127)
    return whole * 2, torch.fake_quantize_per_channel_affine(x, scale, zero, 1, 0, 255)


@program("quantised", inputs=lambda: (normal(3, 4),), eager={"prims.convert_element_type.default": "dtype"})
def by_hand(x):
    scale = x.abs().amax(1, keepdim=True) / 127
    quantised = (x / scale).round().clamp(-128, 127).to(torch.int8)
    return quantised, quantised.float() * scale


@program(
    "quantised",
    inputs=lambda: (ints(3, 8, low=-128, high=128, dtype=torch.int8), positive(3), normal(2, 8)),
    eager={"prims.convert_element_type.default": "dtype"},
)
def weight_only(w, scale, x):
    return torch.nn.functional.linear(x, w.to(x.dtype) * scale[:, None])


@program(
    "quantised",
    inputs=lambda: (ints(2, 4, low=0, high=256, dtype=torch.uint8),),
    eager={
        "aten.__rshift__.Scalar": "dtype",
        "aten.bitwise_and.Scalar": "dtype",
        "aten.cat.default": "dtype",
        "aten.unsqueeze.default": "dtype",
        "aten.view.default": "dtype",
        "prims.convert_element_type.default": "dtype",
    },
)
def unpacked_nibbles(packed):
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2).to(torch.float32) - 8


@program(
    "quantised",
    inputs=lambda: (normal(3, 4),),
    grad=True,
    eager={"aten.fake_quantize_per_tensor_affine_cachemask.default": "not-lowered"},
)
def grad_of_straight_through(x):
    rounded = x + (x.round() - x).detach()
    return rounded * 2, torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -2, 1)


@program(
    "quantised",
    inputs=lambda: (normal(3, 4),),
    breaks=True,
    eager={"aten.dequantize.self": "not-lowered", "aten.quantize_per_tensor.default": "not-lowered"},
)
def per_tensor(x):
    quantised = torch.quantize_per_tensor(x * 2, 0.1, 10, torch.quint8)
    return quantised.dequantize() + 1


@program(
    "quantised",
    inputs=lambda: (normal(3, 4).to(torch.float8_e4m3fn),),
    eager={"prims.convert_element_type.default": "dtype"},
)
def eight_bit_floats(x):
    return x.to(torch.float32) * 2, (x.float() + 1).to(torch.float8_e5m2)
