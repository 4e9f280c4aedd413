"""Linear algebra."""

from __future__ import annotations

import torch
from torch import nn

from tests.conformance.programs.harness import ints, normal, program

FAMILY = "linalg"


def _symmetric(n):
    x = normal(n, n)
    return x @ x.T + n * torch.eye(n)


@program(FAMILY, inputs=lambda: (normal(3, 4), normal(4, 5), normal(4), normal(2, 4, 5), normal(2, 3, 4)))
def matmul_ranks(x, y, v, z, w):
    return x @ y, x @ v, v @ y, v @ v, x @ z, w @ z, w @ y, v @ z


@program(FAMILY, inputs=lambda: (normal(2, 1, 3, 4), normal(5, 4, 2)))
def matmul_broadcasts(x, y):
    return torch.matmul(x, y), x.squeeze(1) @ y[:2]


@program(FAMILY, inputs=lambda: (normal(4, 3), normal(5, 4), normal(3, 2, 4)))
def matmul_of_transposed(x, y, z):
    return x.t() @ y.t(), z.permute(1, 0, 2) @ y.t(), (y @ x).t()


@program(FAMILY, inputs=lambda: (ints(3, 4), ints(4, 2), ints(2, 3, 4, dtype=torch.int32)))
def matmul_of_integers(n, m, k):
    return n @ m, torch.bmm(k, k.mT), n[0] @ m


@program(FAMILY, inputs=lambda: (normal(3, 0), normal(0, 4), normal(0, 3)))
def matmul_of_nothing(x, y, z):
    return x @ y, z @ normal_constant(), (x @ y).sum()


def normal_constant():
    return torch.arange(6.0).reshape(3, 2)


@program(FAMILY, inputs=lambda: (normal(3, 5), normal(3, 4), normal(4, 5), normal(5)))
def scaled_sums(x, y, z, v):
    return (
        torch.addmm(x, y, z, beta=0.5, alpha=2),
        torch.addmm(v, y, z),
        torch.addmv(y[:, 0], x, v),
        torch.addr(x, y[:, 0], v),
    )


@program(FAMILY, inputs=lambda: (normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5)))
def batched_sums(x, y, z):
    return torch.bmm(y, z), torch.baddbmm(x, y, z, beta=0.3, alpha=-1), torch.addbmm(x[0], y, z)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4), normal(4, 5), normal(2, 3)))
def sums_by_einstein(x, y, z):
    return (
        torch.einsum("bij,jk->bik", x, y),
        torch.einsum("bij,bi->j", x, z),
        torch.einsum("bij->ib", x),
        torch.einsum("ij,kl->ikjl", z, y),
        torch.einsum("...j,jk->k...", x, y),
        torch.einsum("bij,bij->", x, x),
    )


@program(FAMILY, inputs=lambda: (normal(3, 3), normal(2, 3, 3)))
def diagonals_by_einstein(x, y):
    return torch.einsum("ii->i", x) * 2, torch.einsum("bii->b", y), torch.einsum("ij,ji->", x, x)


@program(FAMILY, inputs=lambda: (normal(3), normal(4), normal(2, 3), normal(2, 3)))
def products_of_vectors(x, y, a, b):
    crossed = torch.linalg.cross(a, b)
    return torch.outer(x, y), torch.inner(a, b), torch.dot(x, x), crossed, torch.linalg.vecdot(a, b), torch.vdot(x, x)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4), normal(4, 3, 2)))
def contractions(x, y):
    return (
        torch.tensordot(x, y, dims=([1, 2], [1, 0])),
        torch.tensordot(x, y[..., 0], 1),
        torch.linalg.multi_dot([x[0], y[:, 0], x[1, :2]]),
    )


@program(FAMILY, inputs=lambda: (normal(2, 2), normal(1, 3)))
def kronecker(x, y):
    return torch.kron(x, y), torch.kron(x, x)


@program(
    FAMILY,
    inputs=lambda: (_symmetric(3), normal(3, 2)),
    eager={
        "aten._linalg_slogdet.default": "not-importable",
        "aten._linalg_solve_ex.default": "not-importable",
        "aten.linalg_inv_ex.default": "not-importable",
        "with_effects": "effect",
    },
)
def systems(a, b):
    return torch.linalg.solve(a, b), torch.linalg.inv(a) @ b, torch.linalg.det(a), torch.linalg.slogdet(a).logabsdet


@program(
    FAMILY,
    inputs=lambda: (_symmetric(4), normal(4, 2)),
    eager={
        "aten.cholesky_solve.default": "not-importable",
        "aten.linalg_cholesky_ex.default": "not-importable",
        "aten.linalg_solve_triangular.default": "not-importable",
        "with_effects": "effect",
    },
)
def cholesky(a, b):
    factor = torch.linalg.cholesky(a)
    solved = torch.linalg.solve_triangular(factor, b, upper=False)
    return factor @ factor.T, solved, torch.cholesky_solve(b, factor)


@program(FAMILY, inputs=lambda: (normal(4, 3),), eager={"aten.linalg_qr.default": "not-lowered"})
def orthogonal_triangular(x):
    q, r = torch.linalg.qr(x)
    return q @ r, q.T @ q


@program(
    FAMILY,
    inputs=lambda: (normal(4, 3),),
    eager={"aten._linalg_svd.default": "not-importable", "aten.linalg_pinv.atol_rtol_tensor": "not-importable"},
)
def singular_values(x):
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    return (u * s) @ vh, s, torch.linalg.pinv(x) @ x, torch.linalg.matrix_norm(x, "nuc")


@program(FAMILY, inputs=lambda: (_symmetric(3),), eager={"aten._linalg_eigh.default": "not-importable"})
def eigenvalues(a):
    values, vectors = torch.linalg.eigh(a)
    return values, vectors @ torch.diag(values) @ vectors.T, torch.linalg.eigvalsh(a)


@program(FAMILY, inputs=lambda: (normal(3, 3) / 2,), eager={"aten.linalg_matrix_exp.default": "not-importable"})
def powers(x):
    return torch.matrix_power(x, 3), torch.matrix_power(x, 0), torch.matrix_exp(x), x.trace()


@program(FAMILY, inputs=lambda: (normal(4, 5), ints(3, 3), normal(2, 3, 3)))
def triangles(x, n, y):
    return x.tril(), x.triu(1), n.tril(-1), y.triu(), torch.tril_indices(3, 3), torch.vander(x[0], 3)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
class Linears(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.bilinear = nn.Bilinear(6, 4, 2, bias=False)

    def forward(self, x):
        return self.bilinear(self.linear(x), x), nn.functional.linear(x[0], self.linear.weight)


@program(FAMILY, inputs=lambda: (normal(3, 4, dtype=torch.float64), normal(4, 3, dtype=torch.bfloat16)))
def matmul_of_other_floats(x, y):
    return x @ x.T, y @ y.T, (y @ y.T).float() @ x.float().T


@program(FAMILY, inputs=lambda: (normal(2, 3, 4), normal(4, 5), normal(5)), grad=True)
def grad_of_products(x, y, v):
    return torch.addmm(v, x[0], y), torch.einsum("bij,jk->bki", x, y), x @ y @ v, torch.outer(v, v)


@program(
    FAMILY,
    inputs=lambda: (_symmetric(3), normal(3, 2)),
    grad=True,
    eager={
        "aten._linalg_det.default": "not-lowered",
        "aten._linalg_solve_ex.default": "not-importable",
        "aten.linalg_cholesky_ex.default": "not-importable",
        "aten.linalg_lu_solve.default": "not-importable",
        "aten.linalg_solve_triangular.default": "not-importable",
        "with_effects": "effect",
    },
)
def grad_of_systems(a, b):
    return torch.linalg.solve(a, b), torch.linalg.cholesky(a) * 2, torch.linalg.det(a)
