"""How many times slower than a library's kernel IREE runs the operators of ``turbine_lite/graph/extern/choose.py``.

``python -m benchmarks.kernels`` prints the ratio of medians for each row of that table, timed in turns on all threads.
"Beside kernels" is what a call adds to a graph with another kernel, which leaves OpenMP's threads spinning.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from turbine_lite.graph.extern import choose

__all__ = ["main"]

_ROUNDS = 25
_TRIAL_CALLS = 20
_BESIDE = ", beside kernels"


def _cases() -> Iterator[tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]]:
    image = torch.randn(1, 64, 56, 56)
    yield "transposed convolution", nn.ConvTranspose2d(64, 64, 2, stride=2), (image,)
    yield "depthwise convolution", nn.Conv2d(64, 64, 3, padding=1, groups=64), (image,)
    yield "grouped convolution", nn.Conv2d(64, 64, 3, padding=1, groups=4), (image,)
    yield "1x1 convolution", nn.Conv2d(64, 256, 1), (image,)
    yield "convolution", nn.Conv2d(64, 64, 3, padding=1), (image,)
    weight = torch.randn(64, 64, 3, 3)
    yield "gradient of a convolution", _convolution_backward, (image, image, weight)
    yield "matmul with a parameter", nn.Linear(768, 3072), (torch.randn(128, 768),)
    yield "matmul of two arguments", torch.mm, (torch.randn(512, 512), torch.randn(512, 512))
    heads = torch.randn(1, 12, 128, 64)
    yield f"matmul of one row{_BESIDE}", nn.Linear(512, 1000), (torch.randn(1, 512),)
    yield f"matmul of 32 rows{_BESIDE}", nn.Linear(512, 64), (torch.randn(32, 512),)
    yield "attention", nn.functional.scaled_dot_product_attention, (heads, heads, heads)


def _convolution_backward(gradient: Tensor, image: Tensor, weight: Tensor) -> Tensor:
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    of_image, of_weight, _ = torch.ops.aten.convolution_backward(
        gradient, image, weight, None, *geometry, [True, True, False]
    )
    return of_image.sum() + of_weight.sum()


def _compiled(function: Callable[..., Any], arguments: tuple[Tensor, ...], **options: Any) -> Callable[[], Any]:
    torch._dynamo.reset()
    run = torch.compile(function, backend="turbine_lite_cpu", options=options)
    for _ in range(_TRIAL_CALLS):
        run(*arguments)
    return lambda: run(*arguments)


def _medians(*runs: Callable[[], Any]) -> list[float]:
    """Seconds of a call of each, timed in turns."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for run, times in zip(runs, seconds, strict=True):
            run()
            started = time.perf_counter()
            run()
            times.append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


def _alone(function: Callable[..., Any], arguments: tuple[Tensor, ...]) -> list[float]:
    return _medians(*(_compiled(function, arguments, extern=extern) for extern in ("none", "all")))


def _beside(function: Callable[..., Any], arguments: tuple[Tensor, ...]) -> list[float]:
    """What the function adds to a graph with a call that is left to a kernel."""
    factor = torch.randn(512, 512)
    everything = (factor, *arguments)
    kernel = _compiled(lambda factor, *rest: (factor @ factor, function(*rest)), everything)
    with mock.patch.object(choose, "_BESIDE", {}):
        iree = _compiled(lambda factor, *rest: (factor @ factor, function(*rest)), everything, min_block_size=1)
    *both, without = _medians(iree, kernel, _compiled(lambda factor: (factor @ factor,), (factor,)))
    return [seconds - without for seconds in both]


def main() -> None:
    """Print the table."""
    with torch.no_grad():
        for name, function, arguments in _cases():
            iree, kernel = (_beside if name.endswith(_BESIDE) else _alone)(function, arguments)
            print(
                f"{name:34} IREE {iree * 1e3:7.3f} ms, kernel {kernel * 1e3:7.3f} ms, ratio {iree / kernel:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
