"""Element-wise programs: arithmetic, comparisons, special values."""

from __future__ import annotations

import math

import torch

from tests.conformance.programs.harness import flags, ints, normal, positive, program, special

FAMILY = "elementwise"


@program(FAMILY, inputs=lambda: (normal(3, 5), normal(5)))
def polynomial(x, y):
    return 2 * x**3 - x * y + y / 3 - 1


@program(FAMILY, inputs=lambda: (positive(4, 3),), eager={"region": "not-lowered"})
def logarithms_and_roots(x):
    return x.log(), x.log2(), x.log10(), x.log1p(), x.sqrt(), x.rsqrt(), x.reciprocal()


@program(FAMILY, inputs=lambda: (normal(7),))
def exponentials(x):
    return x.exp(), x.exp2(), torch.expm1(x * 1e-3), torch.logaddexp(x, -x), torch.logaddexp2(x, 2 * x)


@program(FAMILY, inputs=lambda: (torch.linspace(-0.99, 0.99, 9),))
def inverse_trigonometry(x):
    return x.asin(), x.acos(), x.atan(), x.atanh(), x.asinh(), (x + 2.5).acosh()


@program(FAMILY, inputs=lambda: (torch.linspace(-6, 6, 13),))
def trigonometry(x):
    return x.sin(), x.cos(), x.sinh(), x.cosh(), x.tanh(), torch.sinc(x)


@program(FAMILY, inputs=lambda: (torch.linspace(-1.2, 1.2, 9),))
def tangent(x):
    return x.tan() * x


@program(FAMILY, inputs=lambda: (special(),), eager={"aten.signbit.default": "not-lowered"})
def classify(x):
    return x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf(), torch.signbit(x)


@program(FAMILY, inputs=lambda: (special(),))
def replace_special(x):
    return torch.nan_to_num(x), torch.nan_to_num(x, nan=1.5, posinf=9.0, neginf=-9.0)


@program(FAMILY, inputs=lambda: (special(),))
def clamp_special(x):
    return x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=-0.5), x.clamp(2, -2), x.clamp_min(float("nan"))


@program(FAMILY, inputs=lambda: (special(), special().flip(0)))
def clamp_between_tensors(x, y):
    return torch.clamp(x, min=y), torch.clamp(x, y, y + 1), torch.clamp(x, max=y)


@program(
    FAMILY,
    inputs=lambda: (special()[:, None], special()[None]),
    eager={"aten.fmax.default": "not-lowered", "aten.fmin.default": "not-lowered"},
)
def extrema_of_pairs(x, y):
    return torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y)


@program(FAMILY, inputs=lambda: (special()[:, None], special()[None]))
def compare_pairs(x, y):
    return x == y, x != y, x < y, x <= y, x > y, x >= y


@program(FAMILY, inputs=lambda: (special(), ints(12)))
def compare_with_scalars(x, n):
    return x > 0, x <= 1, x == 0.5, n < 3, n >= -2.5, n == 2.0, n != 1


@program(FAMILY, inputs=lambda: (special(),))
def compare_with_itself(x):
    return x == x, x != x, x < x, torch.isclose(x, x), torch.isclose(x, x, equal_nan=True)


@program(FAMILY, inputs=lambda: (torch.tensor([-7.5, -3.0, -0.5, 0.0, 0.5, 3.0, 7.5])[:, None], normal(5).add(3)))
def float_remainders(x, y):
    return (
        x % y,
        torch.fmod(x, y),
        x // y,
        torch.div(x, -y, rounding_mode="floor"),
        torch.div(x, y, rounding_mode="trunc"),
    )


@program(FAMILY, inputs=lambda: (torch.arange(-8, 9)[:, None], torch.tensor([-5, -3, -1, 1, 2, 7])))
def int_remainders(n, m):
    return n % m, torch.fmod(n, m), n // m, torch.div(n, m, rounding_mode="trunc"), n / m


@program(
    FAMILY,
    inputs=lambda: (torch.arange(-8, 9, dtype=torch.int32),),
    eager={"aten.fmod.Scalar": "not-lowered", "aten.remainder.Scalar_Tensor": "not-importable"},
)
def int_remainders_by_scalars(n):
    return n % 3, n % -3, n // 4, n // -4, torch.fmod(n, -3), 7 % (n.abs() + 1)


@program(FAMILY, inputs=lambda: (torch.tensor([2**31 - 1, -(2**31), 2**30, -1, 46341], dtype=torch.int32),))
def int32_wraps(n):
    return n + 1, n - 1, n * 3, n * n, -n, n.abs()


@program(FAMILY, inputs=lambda: (torch.tensor([2**15 - 1, -(2**15), 181, -1, 182], dtype=torch.int16),))
def int16_wraps(n):
    return n + 1, n - 2, n * n, -n, n << 1


@program(FAMILY, inputs=lambda: (torch.tensor([2**63 - 1, -(2**63), 2**62, 2**53 + 1, -(2**53) - 1]),))
def int64_is_exact(n):
    return n + 1, n * 2, n // 3, n % 10, -n, n.clamp(-(2**60), 2**60)


@program(FAMILY, inputs=lambda: (ints(4, 3), ints(3)), eager={"aten.bitwise_xor.Scalar": "not-importable"})
def bitwise(n, m):
    return n & m, n | m, n ^ m, ~n, n & 6, n ^ -1


@program(
    FAMILY,
    inputs=lambda: (ints(6, low=-64, high=64), torch.tensor([0, 1, 2, 3, 4, 5])),
    eager={"aten.__lshift__.Tensor": "not-importable", "aten.__rshift__.Tensor": "not-importable"},
)
def shifts(n, by):
    return n << by, n >> by, n << 2, n >> 1


@program(FAMILY, inputs=lambda: (flags(3, 4), flags(4)))
def booleans(p, q):
    return p & q, p | q, p ^ q, ~p, torch.logical_and(p, q), torch.logical_xor(p, q), p == q, p > q, p + q


@program(FAMILY, inputs=lambda: (special(), ints(12, low=-1, high=2)))
def logic_of_numbers(x, n):
    return torch.logical_not(x), torch.logical_and(x, n), torch.logical_or(x, n), torch.logical_xor(n, n > 0)


@program(FAMILY, inputs=lambda: (flags(3, 1), normal(3, 4), normal(4)))
def where_broadcasts(p, x, y):
    return torch.where(p, x, y), torch.where(x > 0, x, 0.0), torch.where(p, 1, x), torch.where(p, 2.0, -2.0)


@program(FAMILY, inputs=lambda: (special(),))
def rounding(x):
    return x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), x.sign(), torch.sgn(x)


@program(FAMILY, inputs=lambda: (torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1.005]),))
def rounding_to_even(x):
    return x.round(), torch.round(x, decimals=1), torch.round(x * 100, decimals=-1)


@program(
    FAMILY,
    inputs=lambda: (special(), special().flip(0)),
    eager={
        "aten.copysign.Scalar": "not-importable",
        "aten.copysign.Tensor": "not-lowered",
        "aten.hypot.default": "not-importable",
    },
)
def copysign_hypot(x, y):
    return torch.copysign(x, y), torch.hypot(x, y), torch.copysign(x, -0.0)


@program(FAMILY, inputs=lambda: (normal(9), positive(9)), eager={"aten.atan2.default": "known-wrong"})
def angle_of_point(y, x):
    return torch.atan2(y, x) * 180 / math.pi


@program(
    FAMILY,
    inputs=lambda: (torch.linspace(-3, 3, 11),),
    eager={"aten.erfc.default": "not-importable", "aten.erfinv.default": "not-lowered"},
)
def error_functions(x):
    return x.erf(), x.erfc(), torch.erfinv(x / 4)


@program(
    FAMILY,
    inputs=lambda: (positive(9),),
    eager={"aten.digamma.default": "not-importable", "aten.lgamma.default": "not-importable"},
)
def gamma_functions(x):
    return torch.lgamma(x), torch.digamma(x), torch.special.gammaln(x + 1)


@program(FAMILY, inputs=lambda: (torch.tensor([0.0, 0.3, 1.0, 2.0, float("nan")]),))
def entropies(x):
    return torch.special.entr(x), torch.xlogy(x, x), torch.special.xlog1py(x, x), torch.logit(x, eps=1e-3)


@program(
    FAMILY,
    inputs=lambda: (torch.linspace(-2, 2, 9),),
    eager={
        "aten.i0.default": "not-importable",
        "aten.special_bessel_j0.default": "not-importable",
        "aten.special_i0e.default": "not-importable",
    },
)
def bessel(x):
    return torch.special.i0(x), torch.special.i0e(x), torch.special.bessel_j0(x)


@program(FAMILY, inputs=lambda: (torch.tensor([-8.0, -1.0, -0.0, 0.0, 0.25, 4.0, float("inf"), float("nan")]),))
def powers(x):
    return x**2, x**0.5, x**-1, x**-2, x**3, x**0, x**1.5


@program(
    FAMILY,
    inputs=lambda: (torch.tensor([0.0, 2.0, -2.0, 4.0]), torch.tensor([0.0, -1.0, 3.0, 0.5])),
    eager={"aten.pow.Tensor_Tensor": "known-wrong", "aten.pow.Scalar": "known-wrong"},
)
def powers_of_tensors(x, y):
    return x**y, 2**x, (-2.0) ** y


@program(
    FAMILY,
    inputs=lambda: (ints(3, 4, low=-3, high=4), ints(4, low=0, high=5)),
    eager={"aten.pow.Tensor_Scalar": "not-lowered", "aten.pow.Tensor_Tensor": "not-lowered"},
)
def int_powers(n, m):
    return n**2, n**m, n**0, n.pow(3)


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4), normal(3, 4)))
def fused_arithmetic(x, y, z):
    return torch.addcmul(x, y, z, value=0.5), torch.addcdiv(x, y, z.abs() + 1, value=-2), torch.lerp(x, y, z)


@program(FAMILY, inputs=lambda: (normal(5), normal(5)))
def sub_with_alpha(x, y):
    return torch.sub(x, y, alpha=3), torch.add(x, y, alpha=-0.5), torch.rsub(x, 2), torch.lerp(x, y, 0.25)


@program(
    FAMILY,
    inputs=lambda: (ints(8, low=0, high=40), ints(8, low=1, high=40)),
    eager={"aten.gcd.default": "not-importable", "aten.lcm.default": "not-importable"},
)
def number_theory(n, m):
    return torch.gcd(n, m), torch.lcm(n, m)


@program(FAMILY, inputs=lambda: (special(), torch.tensor([0.0, 0.5])))
def heaviside_and_steps(x, y):
    return torch.heaviside(x, y[1]), torch.threshold(x, 0.1, -7.0), (x > 0).float() - (x < 0).float()


@program(
    FAMILY,
    inputs=lambda: (normal(6), normal(6)),
    eager={"aten.frexp.Tensor": "not-importable", "aten.nextafter.default": "not-importable"},
)
def next_floats(x, y):
    return torch.nextafter(x, y), torch.ldexp(x, torch.tensor(3)), torch.frexp(y)


@program(FAMILY, inputs=lambda: (normal(4, 4).t(), normal(4, 4)))
def transposed_operand(x, y):
    return x + y, x * 2, x.exp(), (y + x).t()


@program(FAMILY, inputs=lambda: (normal(0, 3), normal(3)))
def empty_operand(x, y):
    return x + y, x.exp().sum(), torch.cat([x, y[None]])


@program(FAMILY, inputs=lambda: (normal(), normal(2, 2)))
def zero_dim_operand(s, x):
    return s * x, s + 1, s.exp(), x.clamp(max=s), torch.where(x > s, s, x)


@program(FAMILY, inputs=lambda: (torch.tensor([1e-3, 1e3, 1e-8]), torch.deg2rad(torch.tensor([0.0, 90.0, 45.0]))))
def degrees(x, y):
    return torch.rad2deg(y), torch.deg2rad(x), x.square(), x.positive()


@program(
    FAMILY,
    inputs=lambda: (torch.tensor([0.5, 1.5, 80.0]), torch.tensor([1.0, -1.0, 0.0])),
    eager={"aten.fmod.Scalar": "not-lowered"},
)
def divide_by_zero(x, y):
    return x / y, y / (x - x), x.fmod(0), torch.reciprocal(y)


@program(FAMILY, inputs=lambda: (normal(3, 4), positive(4)), grad=True)
def grad_arithmetic(x, y):
    return x * y / (x.square() + 1), (y.log() * x).exp().rsqrt()


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(3, 4)), grad=True)
def grad_extrema(x, y):
    return torch.maximum(x, y) - torch.minimum(x, 0.5 * y), x.clamp(-0.5, 0.5), torch.where(x > y, x, y * y)


@program(FAMILY, inputs=lambda: (torch.linspace(-0.9, 0.9, 7),), grad=True)
def grad_trigonometry(x):
    return x.sin() * x.cosh(), x.asin() + x.atan(), x.erf(), x.abs(), x.sigmoid() * x.tanh()
