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

aten = torch.ops.aten

_ROUNDS = 25
_TRIAL_CALLS = 20
_BESIDE = ", beside kernels"
_CALLS_BESIDE = 8


def _cases() -> Iterator[tuple[str, Callable[..., Any], tuple[Tensor, ...]]]:
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
    attended = aten._scaled_dot_product_flash_attention_for_cpu(heads, heads, heads)
    yield "gradient of attention", _attention_backward, (heads, heads, heads, heads, *attended)
    images, rows, channels = torch.randn(8, 64, 56, 56), torch.randn(512, 768), torch.rand(64)
    statistics_of = (images.mean((0, 2, 3)), images.var((0, 2, 3)).rsqrt())
    yield f"batch norm in training{_BESIDE}", _batch_norm, (images, channels)
    yield f"gradient of batch norm{_BESIDE}", _batch_norm_backward, (images, images, channels, *statistics_of)
    yield f"layer norm{_BESIDE}", nn.LayerNorm(768), (rows,)
    of_rows = (rows.mean(-1, keepdim=True), rows.var(-1, keepdim=True).rsqrt())
    yield f"gradient of layer norm{_BESIDE}", _layer_norm_backward, (rows, rows, *of_rows, torch.rand(768))
    yield f"group norm{_BESIDE}", nn.GroupNorm(32, 64), (image,)
    tokens = torch.randint(0, 2000, (1, 128))
    yield f"gradient of an embedding{_BESIDE}", _embedding_backward, (torch.randn(1, 128, 512), tokens)
    yield f"gradient of GELU{_BESIDE}", aten.gelu_backward, (rows, rows)


def _attention_backward(*arguments: Tensor) -> tuple[Tensor, ...]:
    gradients: tuple[Tensor, ...] = aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, 0.0, False)
    return gradients


def _embedding_backward(gradient: Tensor, tokens: Tensor) -> Tensor:
    weights: Tensor = aten.embedding_dense_backward(gradient, tokens, 2000, -1, False)
    return weights


def _batch_norm(images: Tensor, channels: Tensor) -> tuple[Tensor, ...]:
    statistics = (channels, channels, channels, channels)
    results: tuple[Tensor, ...] = aten._native_batch_norm_legit_functional(images, *statistics, True, 0.1, 1e-5)
    return results


def _batch_norm_backward(gradient: Tensor, images: Tensor, channels: Tensor, *saved: Tensor) -> tuple[Tensor, ...]:
    gradients: tuple[Tensor, ...] = aten.native_batch_norm_backward(
        gradient, images, channels, None, None, *saved, True, 1e-5, [True, True, True]
    )
    return gradients


def _layer_norm_backward(
    gradient: Tensor, rows: Tensor, mean: Tensor, scale: Tensor, weight: Tensor
) -> tuple[Tensor, ...]:
    gradients: tuple[Tensor, ...] = aten.native_layer_norm_backward(
        gradient, rows, [768], mean, scale, weight, weight, [True, True, True]
    )
    return gradients


def _convolution_backward(gradient: Tensor, image: Tensor, weight: Tensor) -> Tensor:
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    of_image, of_weight, _ = aten.convolution_backward(gradient, image, weight, None, *geometry, [True, True, False])
    return of_image.sum() + of_weight.sum()


def _compiled(function: Callable[..., Any], arguments: tuple[Any, ...], **options: Any) -> Callable[[], Any]:
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
    """What each of several calls adds to a graph with another call that is left to a kernel."""
    factor = torch.randn(512, 512)
    copies = [[argument.clone() for argument in arguments] for _ in range(_CALLS_BESIDE)]

    def program(factor: Tensor, copies: list[list[Tensor]]) -> Any:
        return factor @ factor, [function(*copy) for copy in copies]

    kernel = _compiled(program, (factor, copies))
    with mock.patch.object(choose, "_BESIDE", {}):
        iree = _compiled(program, (factor, copies), min_block_size=1)
    *both, without = _medians(iree, kernel, _compiled(program, (factor, [])))
    return [(seconds - without) / _CALLS_BESIDE for seconds in both]


def main() -> None:
    """Print the table."""
    with torch.no_grad():
        for name, function, arguments in _cases():
            torch._dynamo.reset()  # here and not between the two, which would compile the first one again
            iree, kernel = (_beside if name.endswith(_BESIDE) else _alone)(function, arguments)
            print(
                f"{name:34} IREE {iree * 1e3:7.3f} ms, kernel {kernel * 1e3:7.3f} ms, ratio {iree / kernel:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
