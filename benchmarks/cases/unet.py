"""A U-Net of Ronneberger et al. 2015 (arXiv:1505.04597) with padded convolutions."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["UNet"]


def _double(channels: int, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before in (channels, width):
        layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """From images (n, 3, h, w) to (n, classes, h, w); h and w are multiples of 2**(len(widths) - 1)."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256), classes: int = 2) -> None:
        super().__init__()
        self.down = nn.ModuleList(_double(a, b) for a, b in zip((3, *widths), widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(_double(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x, kept = images, []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for rise, block, skip in zip(self.rise, self.up, kept[-2::-1], strict=True):
            x = block(torch.cat([rise(x), skip], 1))
        logits: torch.Tensor = self.head(x)
        return logits
