"""Fourier transforms and complex numbers."""

from __future__ import annotations

import torch

from tests.conformance.programs.harness import normal, program


def _complex(*shape):
    return torch.complex(normal(*shape), normal(*shape))


@program(
    "fft",
    inputs=lambda: (normal(3, 8),),
    eager={"aten._fft_c2r.default": "dtype", "aten._fft_r2c.default": "dtype", "aten.abs.default": "dtype"},
)
def real_and_back(x):
    spectrum = torch.fft.rfft(x * 2)
    return spectrum.abs(), torch.fft.irfft(spectrum, n=8) + 1


@program(
    "fft",
    inputs=lambda: (_complex(2, 6),),
    eager={"aten._fft_c2c.default": "dtype", "aten.constant_pad_nd.default": "dtype"},
)
def complex_and_back(x):
    return torch.fft.fft(x), torch.fft.ifft(torch.fft.fft(x, norm="ortho")), torch.fft.fft(x, n=4, dim=0)


@program(
    "fft",
    inputs=lambda: (normal(2, 4, 6),),
    eager={
        "aten._fft_c2c.default": "dtype",
        "aten._fft_c2r.default": "dtype",
        "aten._fft_r2c.default": "dtype",
        "aten.view_as_real.default": "dtype",
        "prims.convert_element_type.default": "dtype",
    },
)
def two_dimensions(x):
    return torch.fft.fft2(x), torch.fft.rfft2(x), torch.fft.irfft2(torch.fft.rfft2(x), s=(4, 6)), torch.fft.fftn(x).real


@program(
    "fft",
    inputs=lambda: (normal(6),),
    eager={"aten.fft_fftfreq.default": "not-importable", "aten.fft_rfftfreq.default": "not-importable"},
)
def frequencies(x):
    return torch.fft.fftfreq(6), torch.fft.rfftfreq(6, 0.5), torch.fft.fftshift(x), torch.fft.ifftshift(x) * 2


@program(
    "fft",
    inputs=lambda: (normal(2, 16),),
    eager={
        "aten._fft_r2c.default": "dtype",
        "aten.abs.default": "dtype",
        "aten.transpose.int": "dtype",
        "aten.view_as_real.default": "dtype",
    },
)
def short_time(x):
    window = torch.hann_window(8)
    spectrum = torch.stft(x, 8, hop_length=4, window=window, return_complex=True)
    return spectrum.abs().log1p(), torch.view_as_real(spectrum)


@program(
    "fft",
    inputs=lambda: (normal(2, 8), normal(3)),
    eager={"aten._fft_c2r.default": "dtype", "aten._fft_r2c.default": "dtype", "aten.mul.Tensor": "dtype"},
)
def convolution_by_fft(x, kernel):
    product = torch.fft.rfft(x, n=10) * torch.fft.rfft(kernel, n=10)
    return torch.fft.irfft(product, n=10).relu()


@program(
    "fft",
    inputs=lambda: (normal(2, 8),),
    grad=True,
    eager={
        "aten._fft_c2c.default": "dtype",
        "aten._fft_c2r.default": "dtype",
        "aten._fft_r2c.default": "dtype",
        "aten.abs.default": "dtype",
        "aten.copy.default": "dtype",
        "aten.div.Tensor": "dtype",
        "aten.empty_strided.default": "dtype",
        "aten.full_like.default": "dtype",
        "aten.mul.Scalar": "dtype",
        "aten.mul.Tensor": "dtype",
        "aten.scalar_tensor.default": "dtype",
        "aten.slice.Tensor": "dtype",
        "aten.slice_scatter.default": "dtype",
        "aten.view_as_real.default": "dtype",
        "aten.where.self": "dtype",
    },
)
def grad_of_spectrum(x):
    return torch.fft.rfft(x).abs().square(), torch.fft.irfft(torch.fft.rfft(x) * 2)


@program(
    "complex",
    inputs=lambda: (_complex(3, 4), _complex(4)),
    eager={
        "aten._conj.default": "dtype",
        "aten.add.Tensor": "dtype",
        "aten.clone.default": "dtype",
        "aten.div.Tensor": "dtype",
        "aten.mul.Tensor": "dtype",
        "aten.sub.Tensor": "dtype",
    },
)
def arithmetic(x, y):
    return x * y, x + 1, x / y, x - y.conj(), x * 2j


@program(
    "complex",
    inputs=lambda: (_complex(3, 4),),
    eager={
        "aten._conj.default": "dtype",
        "aten._neg_view.default": "not-importable",
        "aten.abs.default": "dtype",
        "aten.angle.default": "dtype",
        "aten.view_as_real.default": "dtype",
    },
)
def parts(x):
    return x.real + 1, x.imag * 2, x.abs(), x.angle(), x.conj().imag


@program(
    "complex",
    inputs=lambda: (normal(3, 4, 2), _complex(3)),
    eager={"aten.mul.Tensor": "dtype", "aten.view_as_complex.default": "dtype", "aten.view_as_real.default": "dtype"},
)
def seen_as_real(x, y):
    return torch.view_as_complex(x) * 1j, torch.view_as_real(y) + 1, torch.view_as_complex(x * 2)


@program(
    "complex",
    inputs=lambda: (normal(5).abs(), normal(5)),
    eager={
        "aten.complex.default": "dtype",
        "aten.mul.Tensor": "dtype",
        "aten.polar.default": "dtype",
        "aten.view_as_real.default": "dtype",
    },
)
def polar(r, phi):
    z = torch.polar(r, phi)
    return z, torch.complex(r, phi) * z, z.real.sum()


@program(
    "complex",
    inputs=lambda: (normal(2, 4, 3, 2), normal(4, 3)),
    eager={
        "aten.mul.Tensor": "dtype",
        "aten.polar.default": "dtype",
        "aten.view_as_complex.default": "dtype",
        "aten.view_as_real.default": "dtype",
    },
)
def rotary_by_complex(x, phi):
    rotation = torch.polar(torch.ones_like(phi), phi)
    return torch.view_as_real(torch.view_as_complex(x) * rotation).flatten(-2)


@program(
    "complex",
    inputs=lambda: (_complex(3, 4), _complex(4, 2)),
    eager={
        "aten._conj_physical.default": "dtype",
        "aten.abs.default": "dtype",
        "aten.mm.default": "dtype",
        "aten.mul.Tensor": "dtype",
        "aten.select.int": "dtype",
        "aten.sum.dim_IntList": "dtype",
    },
)
def products(x, y):
    return x @ y, x.mH, torch.vdot(x[0], x[1]), x.sum(0), (x @ y).abs().relu()


@program(
    "complex",
    inputs=lambda: (_complex(4),),
    eager={
        "aten.eq.Tensor": "dtype",
        "aten.exp.default": "dtype",
        "aten.pow.Tensor_Scalar": "dtype",
        "aten.sin.default": "dtype",
        "aten.sqrt.default": "dtype",
        "prims.convert_element_type.default": "dtype",
    },
)
def functions(x):
    return x.exp(), x.sqrt(), x.sin(), x**2, x == x, x.to(torch.complex128)


@program(
    "complex",
    inputs=lambda: (normal(3, 2), normal(3)),
    grad=True,
    eager={
        "aten._conj.default": "dtype",
        "aten.abs.default": "dtype",
        "aten.add.Tensor": "dtype",
        "aten.clone.default": "dtype",
        "aten.detach.default": "dtype",
        "aten.div.Tensor": "dtype",
        "aten.mul.Scalar": "dtype",
        "aten.mul.Tensor": "dtype",
        "aten.polar.default": "dtype",
        "aten.scalar_tensor.default": "dtype",
        "aten.view_as_complex.default": "dtype",
        "aten.view_as_real.default": "dtype",
        "aten.where.self": "dtype",
    },
)
def grad_of_complex(x, y):
    z = torch.view_as_complex(x) * torch.polar(torch.ones_like(y), y)
    return z.real * 2, z.abs()
