"""Views and reshapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.conformance.programs.harness import ints, normal, program

FAMILY = "shapes"


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),))
def view_and_reshape(x):
    return x.view(6, 4) + 1, x.reshape(-1), x.view(2, -1, 2) * 2, x.reshape(4, 3, 2).sum(0)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4).transpose(0, 2),))
def reshape_that_copies(x):
    return x.reshape(6, 4), x.contiguous().view(-1), x.flatten(1) + 1


@program(FAMILY, inputs=lambda: (normal(2, 3, 4, 5),))
def flatten_and_unflatten(x):
    flat = x.flatten(1, 2)
    return flat.unflatten(1, (3, -1)) * 3, flat.exp().unflatten(-1, (5, 1)), torch.ravel(x) - 1


@program(FAMILY, inputs=lambda: (normal(2, 3, 4, 5),))
def permutations(x):
    return x.permute(3, 1, 0, 2) + 1, x.movedim(0, -1), x.swapaxes(1, 2).exp(), x.transpose(-1, -2).contiguous(), x.mT


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def result_keeps_transposed_strides(x):
    return x.t().exp(), torch.empty_like(x.t()).fill_(1.0), x.t().clone(), torch.zeros_like(x.t()) + x.t()


@program(FAMILY, inputs=lambda: (normal(1, 3, 1), normal(2, 1, 4)))
def expansions(x, y):
    return x.expand(2, 3, 4) + y, x.expand(-1, -1, 5).sum(2), torch.broadcast_to(y, (2, 3, 4)), y.expand_as(x * y)


@program(FAMILY, inputs=lambda: (normal(4, 1), normal(3)))
def broadcast_together(x, y):
    a, b = torch.broadcast_tensors(x, y)
    return a * b, a.contiguous()


@program(FAMILY, inputs=lambda: (normal(1, 3, 1, 2),))
def squeezes(x):
    return x.squeeze() + 1, x.squeeze(0), x.squeeze((0, 2)).exp(), x.unsqueeze(1).unsqueeze(-1) * 2, x.squeeze(1)


@program(FAMILY, inputs=lambda: (normal(12),))
def strided_windows(x):
    return x.as_strided((5, 4), (2, 1)) * 2, x.as_strided((3,), (3,), 1).exp()


@program(FAMILY, inputs=lambda: (normal(2, 10),))
def unfold_windows(x):
    return x.unfold(1, 4, 2).mean(-1), x.unfold(1, 3, 3) + 1, x.unfold(0, 2, 1).sum()


@program(FAMILY, inputs=lambda: (normal(2, 3, 5, 5),), eager={"aten.constant_pad_nd.default": "not-lowered"})
def image_to_columns(x):
    columns = F.unfold(x, (2, 3), padding=1, stride=2)
    return columns, F.fold(columns, (5, 5), (2, 3), padding=1, stride=2)


@program(FAMILY, inputs=lambda: (normal(7, 4),))
def splits(x):
    a, b, c = x.split([2, 4, 1])
    first, *rest = x.chunk(3)
    return a + 1, b * 2, c, first.exp(), rest[-1], x.tensor_split((1, 5))[1] - 1


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def unbind_and_stack(x):
    rows = x.unbind()
    return torch.stack(rows[::-1]), torch.stack([rows[0], rows[2]], -1), [column * 2 for column in x.unbind(1)]


@program(FAMILY, inputs=lambda: (normal(2, 3), normal(4, 3), normal(2, 1)))
def concatenations(x, y, z):
    columns = torch.hstack([x, z])
    return torch.cat([x, y]), torch.cat([x, z, x], dim=-1), torch.vstack([x, y]), columns, torch.dstack([x, x])


@program(FAMILY, inputs=lambda: (normal(2, 3), ints(2, 3), normal(0)))
def concatenations_of_kinds(x, n, empty):
    return torch.cat([x, n]), torch.cat([n, n > 0]), torch.cat([empty, x[0]]), torch.column_stack([x[0], n[0]])


@program(FAMILY, inputs=lambda: (normal(2, 3),))
def tilings(x):
    return x.tile((2, 2)), x.repeat(2, 1, 3), x.repeat_interleave(2, dim=1), x.repeat_interleave(3), x.tile((3,))


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def rolls(x):
    return x.roll(1, 0), x.roll((1, -2), (0, 1)), x.roll(5), x.roll(-9, 1)


@program(FAMILY, inputs=lambda: (normal(3, 4),))
def flips(x):
    return x.flip(0), x.flip((0, 1)), x.fliplr(), x.flipud() + 1, x.rot90(), x.rot90(2), x.rot90(-1)


@program(FAMILY, inputs=lambda: (normal(1, 8, 2, 3),))
def pixel_shuffles(x):
    up = F.pixel_shuffle(x, 2)
    return up, F.pixel_unshuffle(up, 2) + x, F.channel_shuffle(x, 4)


@program(FAMILY, inputs=lambda: (normal(4, 4), normal(2, 3, 4)))
def diagonals(x, y):
    return x.diagonal() + 1, x.diagonal(1) * 2, y.diagonal(dim1=0, dim2=2), torch.diag(x[0]), torch.diag(x, -1)


@program(FAMILY, inputs=lambda: (normal(2, 3),))
def embedded_diagonals(x):
    return torch.diag_embed(x), torch.diagflat(x), torch.diag_embed(x, offset=-1)


@program(
    FAMILY, inputs=lambda: (normal(2, 2), normal(1, 3), normal()), eager={"aten.empty_strided.default": "not-lowered"}
)
def blocks(x, y, z):
    return torch.block_diag(x, y, z)


@program(FAMILY, inputs=lambda: (normal(3), normal(2)))
def grids(x, y):
    a, b = torch.meshgrid(x, y, indexing="ij")
    c, d = torch.meshgrid(x, y, indexing="xy")
    return a * b, c + d, torch.cartesian_prod(x, y)


@program(FAMILY, inputs=lambda: (ints(3, 4, dtype=torch.int32), normal(4)))
def bits_seen_otherwise(n, x):
    return n.view(torch.float32).isnan(), x.view(torch.int32) + 1


@program(FAMILY, inputs=lambda: (normal(), normal(3)))
def ranks_raised(x, y):
    return torch.atleast_1d(x), torch.atleast_2d(y), torch.atleast_3d(y) * 2, x.view(1, 1), x.expand(3) + y


@program(FAMILY, inputs=lambda: (normal(2, 3, 4, 4).to(memory_format=torch.channels_last),))
def channels_last_stays(x):
    return x * 2, x.relu(), x.contiguous(), x.mean(1, keepdim=True), (x + 1).to(memory_format=torch.channels_last)


@program(FAMILY, inputs=lambda: (normal(2, 3, 4),), grad=True, eager={"aten.index_put.default": "not-lowered"})
def grad_of_views(x):
    return x.view(6, 4).t() * 2, x.unfold(2, 2, 1).exp(), x.as_strided((4, 3), (2, 1)).sin(), x.flip(1) * x


@program(FAMILY, inputs=lambda: (normal(4, 6),), grad=True, eager={"aten.roll.default": "not-lowered"})
def grad_of_splits(x):
    a, b, c = x.chunk(3, 1)
    return torch.cat([a * b, c.roll(1)]), torch.stack(x.unbind()).tile(1, 2) * 3, x.expand(2, 4, 6).sin()
