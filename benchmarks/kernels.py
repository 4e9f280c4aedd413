"""How many times slower than a library's kernel IREE runs the operators of ``turbine_lite/graph/extern/choose.py``.

``python -m benchmarks.kernels`` prints the ratio of medians for each row of that table, timed in turns on all threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

__all__ = ["main"]

_ROUNDS = 15
_TRIAL_CALLS = 20


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
    yield "attention", nn.functional.scaled_dot_product_attention, (heads, heads, heads)


def _convolution_backward(gradient: Tensor, image: Tensor, weight: Tensor) -> Tensor:
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    of_image, of_weight, _ = torch.ops.aten.convolution_backward(
        gradient, image, weight, None, *geometry, [True, True, False]
    )
    return of_image.sum() + of_weight.sum()


def main() -> None:
    """Print the table."""
    for name, function, arguments in _cases():
        seconds: list[list[float]] = [[], []]
        with torch.no_grad():
            runs = []
            for extern in ("none", "all"):
                torch._dynamo.reset()
                runs.append(torch.compile(function, backend="turbine_lite_cpu", options={"extern": extern}))
                for _ in range(_TRIAL_CALLS):
                    runs[-1](*arguments)
            for _ in range(_ROUNDS):
                for run, times in zip(runs, seconds, strict=True):
                    run(*arguments)
                    started = time.perf_counter()
                    run(*arguments)
                    times.append(time.perf_counter() - started)
        iree, kernel = (statistics.median(times) for times in seconds)
        print(
            f"{name:26} IREE {iree * 1e3:7.3f} ms, kernel {kernel * 1e3:7.3f} ms, ratio {iree / kernel:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
