"""Copies of arguments that are like the originals in all that a program could tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["copy_arguments"]


def copy_arguments(arguments: Sequence[Any]) -> list[Any]:
    """Copies with the same strides and offsets, sharing memory among them as the originals do.

    Memory: as much as all storages that the arguments lie in.
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        original = tensor.untyped_storage()
        identity = original._cdata  # not the address, which is the same for all empty storages
        if identity not in storages:
            storages[identity] = original.clone()  # type: ignore[no-untyped-call]  # torch's
        made = torch.empty(0, dtype=tensor.dtype)
        made.set_(storages[identity], tensor.storage_offset(), tensor.shape, tensor.stride())
        if tensor.is_neg():
            made = torch._neg_view(made)
        return made.conj() if tensor.is_conj() else made

    return [copy(value.detach()) if isinstance(value, torch.Tensor) else value for value in arguments]
