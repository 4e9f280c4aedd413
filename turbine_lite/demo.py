"""``python -m turbine_lite.demo``: a real model through every stage, checked against eager and timed."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

__all__ = ["ResNet18", "main"]


class _Block(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """The 18-layer residual network of He et al. 2015 (arXiv:1512.03385, table 1) for images of (n, 3, 224, 224)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks, channels = [], 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [_Block(channels, width, stride), _Block(width, width, 1)]
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of shape (n, classes)."""
        logits: torch.Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return logits


def main() -> int:
    """Compile and run ResNet-18, all of it in IREE and with the default options; exit status 1 for a wrong result."""
    torch.manual_seed(0)
    model, images = ResNet18().eval(), torch.randn(1, 3, 224, 224)
    print("ResNet-18, one image of 3x224x224, float32, random weights")
    with torch.no_grad():
        want = model(images)
        with tempfile.TemporaryDirectory() as directory:
            print("\nall of it in IREE (options={'extern': 'none'}):")
            in_iree, agrees = _compiled(model, images, want, extern="none", dump_dir=directory)
            _print_stages(Path(directory))
        print("\nwith the default options:")
        default, agrees_too = _compiled(model, images, want)
        _print_kernels()
        eager_ms, in_iree_ms, default_ms = _interleaved_medians(
            lambda: model(images), lambda: in_iree(images), lambda: default(images)
        )
    print(f"\nmedians of alternating runs, {torch.get_num_threads()} threads:")
    print(f"eager {eager_ms:.1f} ms, turbine_lite {default_ms:.1f} ms, ratio {eager_ms / default_ms:.2f}")
    print(f"all of it in IREE {in_iree_ms:.1f} ms, ratio {eager_ms / in_iree_ms:.2f}")
    return 0 if agrees and agrees_too else 1


def _compiled(model: nn.Module, images: torch.Tensor, want: torch.Tensor, **options: Any) -> tuple[Any, bool]:
    """The compiled model, and whether its result is eager's."""
    torch._dynamo.reset()
    counters.clear()
    run = torch.compile(model, backend="turbine_lite_cpu", options={"fallback": "error", **options})
    start = time.perf_counter()
    got = run(images)
    print(f"  first call, with compilation: {time.perf_counter() - start:.1f} s")
    error = float((got - want).abs().max() / want.abs().max())
    agrees = error < 1e-4
    print(f"  top class {int(got.argmax())}, eager's {int(want.argmax())}")
    print(f"  largest difference from eager, relative: {error:.1e} ({'equal within 1e-4' if agrees else 'WRONG'})")
    return run, agrees


def _print_kernels() -> None:
    counts = counters["turbine_lite"]
    kernels = {name.split()[1].rstrip(":"): n for name, n in counts.items() if name.endswith(": slower")}
    print(f"  operators in IREE: {counts['nodes native']}")
    for op, count in kernels.items():
        print(f"  in a kernel of oneDNN or ATen, by measurement the faster one: {count} {op}, with what follows fused")
    small = sum(count for name, count in counts.items() if name.endswith(": small"))
    print(f"  between those, too small for a call of IREE: {small}")


def _print_stages(directory: Path) -> None:
    for manifest_path in sorted(directory.glob("*/region_*/manifest.json")):
        region = manifest_path.parent
        seconds = json.loads(manifest_path.read_text())["seconds"]
        graph = (region / "fx_graph.py").read_text().count("torch.ops.")
        print(f"  FX graph                    {graph} ATen calls")
        print(f"  torch dialect               {_lines(region / 'torch.mlir')} lines of MLIR")
        print(f"  torch-to-iree               {_lines(region / 'iree-input.mlir')} lines, {seconds['lower']:.2f} s")
        dispatches = (region / "executable-sources.mlir").read_text().count("hal.executable.export")
        print(f"  IREE compiler               {dispatches} kernels, {seconds['compile']:.2f} s")
        print(f"  VMFB                        {(region / 'module.vmfb').stat().st_size / 1024:.0f} KiB")


def _lines(path: Path) -> int:
    return path.read_text().count("\n")


def _interleaved_medians(*functions: Callable[[], object]) -> list[float]:
    """Milliseconds of each; alternating, so that a machine whose speed drifts is fair to all."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(25):
        for function, seen in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            seen.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(seen[5:]) for seen in times]


if __name__ == "__main__":
    raise SystemExit(main())
