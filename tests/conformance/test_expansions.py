"""Operators that are written out for IREE: eager's values, and natively (``fallback="error"``)."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.helpers import assert_same, compiled

aten = torch.ops.aten

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, 20.0, -30.0, math.inf, -math.inf, math.nan])
FINITE = torch.linspace(0.05, 12.0, 40)

UNARY = [
    *(torch.signbit, torch.log10, torch.angle, torch.erfc, torch.special.erfcx, torch.erfinv, torch.special.ndtri),
    *(torch.lgamma, torch.digamma, torch.i0, torch.special.i0e, torch.special.i1, torch.special.i1e),
    *(torch.special.bessel_j0, torch.special.bessel_j1, torch.special.bessel_y0, torch.special.bessel_y1),
    *(torch.special.modified_bessel_i0, torch.special.modified_bessel_k0, torch.special.modified_bessel_k1),
]
BINARY = [torch.copysign, torch.hypot, torch.atan2, torch.fmax, torch.fmin, torch.pow, torch.nextafter]


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_unary(function):
    for x in (SPECIAL, FINITE, torch.tensor(0.3), torch.empty(0, 3)):
        torch._dynamo.reset()
        assert_same(compiled(lambda x: function(x))(x), function(x))


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_binary(function):
    a, b = SPECIAL[:, None], SPECIAL[None]
    assert_same(compiled(lambda a, b: function(a, b))(a, b), function(a, b))
    torch._dynamo.reset()
    zero = torch.tensor(-0.0)
    assert_same(compiled(lambda a, b: function(a, b))(a, zero), function(a, zero))


@pytest.mark.parametrize("function", [torch.hypot, torch.atan2, torch.pow], ids=lambda f: f.__name__)
def test_a_float64_scalar_does_not_widen_a_float32_tensor(function):
    scalar = torch.tensor(2.0, dtype=torch.float64)
    assert_same(compiled(lambda a, b: function(a, b))(FINITE, scalar), function(FINITE, scalar))


@pytest.mark.parametrize("function", [torch.argmax, torch.argmin, torch.max, torch.min], ids=lambda f: f.__name__)
def test_extremes_find_nan(function):
    x = torch.randn(4, 6)
    x[1, 2] = x[1, 4] = math.nan
    for dim in (0, 1):
        torch._dynamo.reset()
        assert_same(compiled(lambda x, dim=dim: function(x, dim))(x), function(x, dim))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
        lambda x: F.max_pool2d(x, (2, 3), 1, 1, dilation=(1, 2), return_indices=True),
        lambda x: F.max_pool2d(x[0], 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True, divisor_override=5),
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
        lambda x: torch.ops.aten.avg_pool2d(x, (2, 2), (), (0,), False, True, -2),
        lambda x: F.max_pool3d(x[:, :, None], (1, 2, 2), return_indices=True),
        lambda x: F.avg_pool3d(x[:, :, None], (1, 2, 3), 2),
    ],
)
def test_pooling(pool):
    x = torch.randn(2, 3, 7, 8)
    x[0, 1, 2, 3], x[1, 2] = math.nan, -math.inf
    assert_same(compiled(pool)(x), pool(x))


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter", "ignore:index_reduce")
@pytest.mark.parametrize(
    "write",
    [
        lambda x, s: torch.diagonal_scatter(x, s[0, :4], 0),
        lambda x, s: torch.as_strided_scatter(x, s[:2, :2], (2, 2), (7, 2), 1),
        lambda x, s: torch.as_strided_copy(x, (2, 3), (1, 4), 2),
        lambda x, s: x.put(torch.tensor([0, 5, -1]), s[0, :3]),
        lambda x, s: x.scatter_reduce(0, torch.tensor([[0, 1, 1, 3, 0]]), s[:1], "mean"),
        lambda x, s: x.scatter_reduce(0, torch.tensor([[0, 1, 1, 3, 0]]), s[:1], "mean", include_self=False),
        lambda x, s: x.index_reduce(0, torch.tensor([0, 3, 0]), s[:3], "mean"),
        lambda x, s: x.index_reduce(0, torch.tensor([0, 3, 0]), s[:3], "amax", include_self=False),
        lambda x, s: torch.scatter(x, 1, torch.tensor([[0, 1], [2, 2]]), s[:2, :2], reduce="multiply"),
        lambda x, s: F.pad(x, (-1, 2, 1, -2)),
    ],
)
def test_writes(write):
    x, source = torch.randn(4, 5), torch.randn(4, 5)
    assert_same(compiled(write)(x, source), write(x, source))


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_quantisation_operators():
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  # registers them

    quantized = torch.ops.quantized_decomposed
    x = torch.randn(4, 6) * 3

    def fake_quantize(x):
        levels = quantized.quantize_per_tensor(x, 0.1, 3, -300, 300, torch.int16)
        return quantized.dequantize_per_tensor(levels, 0.1, 3, -300, 300, torch.int16), levels

    assert_same(compiled(fake_quantize)(x), fake_quantize(x))


def test_sums_of_many_numbers():
    x = torch.rand(3, 1024, 2049) + 100

    def statistics(x):
        return x.sum(), x.mean((1, 2)), torch.var(x, (1, 2)), torch.std(x), torch.var_mean(x, (0, 1, 2))

    assert_same(compiled(statistics)(x), statistics(x))


@pytest.mark.parametrize(
    ("shift", "dims"), [(5, 0), (-1, 0), (0, 1), (-9, 1), (13, None), ((1, -2), (0, 1)), ((1, 7), (1, 1))], ids=str
)
def test_roll(shift, dims):
    x = torch.arange(12.0).reshape(3, 4)
    assert_same(compiled(lambda x: x.roll(shift, dims))(x), x.roll(shift, dims))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_shifts_and_powers_of_integers(dtype):
    x, count = torch.tensor([1, -3, 7, 100], dtype=dtype), torch.tensor([0, 1, torch.iinfo(dtype).bits, 5], dtype=dtype)

    def program(x, count):
        return x << count, x >> count, x << 3, x >> 2, x | 3, x ^ 5, x & 6, x**0, x**1, x**2, x**11

    assert_same(compiled(program)(x, count), program(x, count))


@pytest.mark.parametrize("value", [0.5, -math.inf, math.nan])
def test_softmax_of_a_scalar(value):
    x = torch.tensor(value, requires_grad=True)
    assert_same(compiled(lambda x: (x.softmax(0), x.log_softmax(-1)))(x.detach()), (x.softmax(0), x.log_softmax(-1)))
    compiled(lambda x: x.softmax(0) * 2)(x).backward()
    gradient = x.grad
    x.grad = None
    (x.softmax(0) * 2).backward()
    assert_same(gradient, x.grad)


def test_views_of_the_prims_namespace():
    prims = torch.ops.prims

    def program(x):
        return (
            prims.view_of(x) + 1,
            prims.split_dim(x, 1, 2) * 2,
            prims.squeeze(x[None], dimensions=[0]),
            prims.transpose(x, [1, 0]),
        )

    x = torch.arange(12.0).reshape(3, 4)
    assert_same(compiled(program)(x), program(x))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("shape", "position", "mask_shape", "value_shape"),
    [((5, 4), 0, (5,), ()), ((5, 4), 0, (5,), (4,)), ((5, 4), 0, (5,), (1, 4)), ((5, 4), 0, (5, 4), (1,)),
     ((2, 3, 4), 1, (3,), (2, 1, 4)), ((2, 3, 4), 1, (3, 4), (2, 1)), ((3, 4, 2), 0, (3, 4), (2,))],
)  # fmt: skip
def test_writes_through_a_mask(shape, position, mask_shape, value_shape, accumulate):
    x, value = torch.randn(shape), torch.randn(value_shape)

    def program(x, mask, value):
        return aten.index_put(x, [*[None] * position, mask], value, accumulate)

    for mask in (torch.rand(mask_shape) > 0.5, torch.zeros(mask_shape, dtype=torch.bool)):
        assert_same(compiled(program)(x, mask, value), program(x, mask, value))


@pytest.mark.parametrize("accumulate", [False, True])
def test_writes_of_one_value_for_each_true_run_in_eager(accumulate):
    x, mask = torch.zeros(5, 5), torch.tensor([True, False, True, False, False])
    run = torch.compile(lambda x, m, v: aten.index_put(x, [m], v, accumulate) + 1, backend="turbine_lite_cpu")
    for chosen, rows in ((mask, 2), (~mask, 3)):
        values = torch.randn(rows, 5)
        assert_same(run(x, chosen, values), aten.index_put(x, [chosen], values, accumulate) + 1)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("correction", [0, 1, 4, 7])
def test_variance_of_few_numbers(correction, dtype):
    x = torch.randn(3, 4, dtype=dtype)

    def program(x):
        return x.var(1, correction=correction), x[:, :1].std(1, keepdim=True), x[0, 0].var(), torch.var_mean(x[:1], 0)

    assert_same(compiled(program)(x), program(x))


@pytest.mark.parametrize("size", [16, 17, 3000])
def test_order_of_equal_numbers(size):
    x = torch.randint(0, 4, (3, size))
    run = torch.compile(lambda x: (x.sort(), x.argsort(descending=True), x.topk(5)), backend="turbine_lite_cpu")
    assert_same(run(x), (x.sort(), x.argsort(descending=True), x.topk(5)))


@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin", "logcumsumexp"])
def test_scans(name):
    scan = getattr(torch, name)
    x = torch.randn(3, 37)
    x[1, 5] = x[1, 30] = math.nan
    x[2, 4], x[2, 20], x[0, 9] = math.inf, -math.inf, x[0, 3]
    for value, dim in ((x, 1), (x.t(), 0), (x[:, :1], -1), (torch.tensor(2.0), 0)):
        torch._dynamo.reset()
        assert_same(compiled(lambda x, dim=dim: scan(x, dim))(value), scan(value, dim))
    if name != "logcumsumexp":
        torch._dynamo.reset()
        whole = torch.randint(-3, 4, (5, 9))
        assert_same(compiled(lambda x: scan(x, 1))(whole), scan(whole, 1))


def test_all_and_any_over_several_dimensions():
    x = torch.rand(3, 4, 5) > 0.1

    def program(x):
        return x.all((0, 2)), x.any((1, 2), keepdim=True), torch.all(x, dim=(-1, 0)), x.to(torch.int32).all((1, 0))

    assert_same(compiled(program)(x), program(x))


def test_remainder_of_a_scalar():
    x = torch.tensor([5.5, -5.5, 0.0, 19.0, 40.0])
    assert_same(compiled(lambda x: (x.fmod(19.0), x.fmod(-2.5)))(x), (x.fmod(19.0), x.fmod(-2.5)))


@pytest.mark.parametrize("order", range(7))
def test_polygamma(order):
    x = torch.cat([torch.linspace(-6.93, 12, 41), torch.tensor([100.0])])
    if order != 1:
        x = torch.cat([x, torch.tensor([0.0, -1.0, -3.0, math.inf, math.nan])])
    assert_same(compiled(lambda x: torch.polygamma(order, x))(x), torch.polygamma(order, x), rtol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_frexp(dtype):
    x = torch.cat([SPECIAL, torch.tensor([1e-40, 2.0**-126, 3e38, -1e-45, 0.1])]).to(dtype)
    assert_same(compiled(lambda x: tuple(torch.frexp(x)))(x), tuple(torch.frexp(x)))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_few(descending, dim):
    x = torch.randint(0, 4, (3, 16)).float()
    x[0, 3] = x[1, 2] = x[1, 5] = math.nan
    x[2, 1], x[2, 3] = -0.0, math.inf

    def program(x, whole):
        return (
            tuple(torch.sort(x, dim, descending)),
            tuple(torch.sort(x, dim=dim, descending=descending, stable=True)),
            torch.argsort(whole, dim, descending),
            tuple(torch.sort(whole > 1, dim, descending)),
            torch.topk(x, 2, dim, largest=descending)[0],
            torch.quantile(x[:, 6:], 0.3, dim),
        )

    whole = torch.randint(0, 4, (3, 16))
    assert_same(compiled(program)(x, whole), program(x, whole), strides=False)


@pytest.mark.parametrize("right", [False, True])
def test_searches(right):
    sequence = torch.randn(7).sort().values
    values = torch.cat([torch.randn(5), sequence[:2], torch.tensor([math.nan, math.inf])])
    sorter = torch.randperm(7)

    def program(s, v, sorter):
        return (
            torch.searchsorted(s, v, right=right),
            torch.searchsorted(s, 0.1, right=right, out_int32=True),
            torch.searchsorted(s.expand(3, 7).contiguous(), v.expand(3, 9).contiguous(), right=right),
            torch.searchsorted(s[sorter], v, right=right, sorter=sorter.argsort()),
            torch.searchsorted(s.flip(0), v, right=right),
            torch.bucketize(v, s, right=right),
        )

    assert_same(compiled(program)(sequence, values, sorter), program(sequence, values, sorter))


def test_masked_scatter():
    x, mask, source = torch.randn(3, 4), torch.rand(3, 4) > 0.5, torch.randn(12)

    def program(x, mask, source):
        return x.masked_scatter(mask, source), x.masked_scatter(mask[0], source), x.masked_scatter(mask & False, source)

    run = compiled(program)
    assert_same(run(x, mask, source), program(x, mask, source))
    with pytest.raises(RuntimeError, match="Number of elements of source"):
        compiled(lambda x, mask, source: x.masked_scatter(mask, source))(x, mask | True, source[:5])


@pytest.mark.parametrize("p", [0, 1, 2, 3.0, math.inf])
def test_distances_of_pairs(p):
    x = torch.randn(5, 3)
    assert_same(compiled(lambda x: F.pdist(x, p))(x), F.pdist(x, p))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float32], ids=str)
def test_integers_too(dtype):
    x = torch.randint(0, 9, (4, 5, 6)).to(dtype)

    def program(x):
        return (
            *(x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True), x.max(1), x.min(-1)),
            torch.addbmm(x[0, :, :5], x, x.transpose(1, 2), beta=2, alpha=3),
            torch.addmv(x[0, :, 0], x[0], x[0, 0], beta=0.6, alpha=2.3),
            *(torch.fmod(x, 4), torch.fmod(x - 5, -3), x.half(), x.bfloat16()),
        )

    assert_same(compiled(program)(x), program(x))
