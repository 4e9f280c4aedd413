"""The entry point that ``torch.compile(..., backend="turbine_lite_cpu")`` finds by name."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from turbine_lite.errors import UnsupportedError
from turbine_lite.graph.before_autograd import replace_before_autograd
from turbine_lite.options import Options
from turbine_lite.runtime.memory import keep_freed_memory

__all__ = ["compile_captured", "turbine_lite_cpu"]

# From a graph of AOTAutograd, the options and the graph's kind to what is called in its place (boxed).
CompileOne = Callable[[GraphModule, Options, str], Callable[[list[Any]], Any]]


def turbine_lite_cpu(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured.

    Args:
        gm: Dynamo's graph module.
        example_inputs: its arguments.
        mode: a key of :data:`turbine_lite.options.MODES`.
        options: fields of :class:`turbine_lite.Options`.

    Returns:
        A callable with the graph's signature.

    Raises:
        OptionError: an option or mode is unknown, or has a wrong type or value.
        UnsupportedError: an argument is no strided CPU tensor.
        CompilationError: with ``fallback="error"`` only, a part of the graph cannot be compiled.
    """
    chosen = Options.resolve(options, mode)
    keep_freed_memory(chosen.retain_bytes)
    return compile_captured(gm, example_inputs, chosen, _compile_one(chosen))


def _compile_one(options: Options) -> CompileOne:
    if options.autotune:
        from turbine_lite.autotune import compile_fastest

        return compile_fastest
    from turbine_lite.compile_graph import compile_graph

    return compile_graph


def compile_captured(
    gm: GraphModule, example_inputs: Sequence[Any], options: Options, compile_one: CompileOne
) -> Callable[..., Any]:
    """What :func:`turbine_lite_cpu` does, with another function for AOTAutograd's graphs.

    Raises:
        UnsupportedError: an argument is no strided CPU tensor.
    """
    _check_devices(example_inputs)
    replace_before_autograd(gm)
    with _without_collections():
        return _with_autograd(options, compile_one)(gm, example_inputs)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """No cyclic garbage is collected meanwhile.

    Capturing and compiling make so many objects that several full collections fall into them. Each looks at every
    object of the process, which takes 0.3 s beside a model library, and finds next to nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_devices(example_inputs: Sequence[Any]) -> None:
    for index, value in enumerate(example_inputs):
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise UnsupportedError(
                f"input {index} is on device {value.device}; turbine_lite_cpu compiles for CPUs: move the model and "
                f"its inputs with .to('cpu'), or choose another backend"
            )


def _with_autograd(
    options: Options, compile_one: CompileOne
) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    from turbine_lite.graph.decompositions import decompositions_before_partition
    from turbine_lite.graph.plain import needs_no_wrapper

    def compile_module(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        unwrapped: list[Callable[[list[Any]], Any]] = []
        # Of what runs in eager, gradients and autocast would make something else; the wrapper turns both off.
        is_plain = _is_inference(example_inputs) and not torch._C._is_any_autocast_enabled()

        def compile_kind(kind: str, graph: GraphModule, _inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
            run = compile_one(graph, options, kind)
            if kind == "inference" and is_plain and needs_no_wrapper(graph, len(example_inputs)):
                unwrapped.append(run)
            return run

        backend = aot_autograd(
            fw_compiler=functools.partial(compile_kind, "forward"),
            bw_compiler=functools.partial(compile_kind, "backward"),
            inference_compiler=functools.partial(compile_kind, "inference"),
            decompositions=decompositions_before_partition(),
            partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
        )
        wrapped: Callable[..., Any] = backend(gm, example_inputs)
        if len(unwrapped) != 1:
            return wrapped
        (run,) = unwrapped
        disable: Any = torch._dynamo.disable
        direct: Callable[..., Any] = disable(lambda *args: run(args), reason="a compiled program is not to be traced")
        return direct

    return compile_module


def _is_inference(example_inputs: Sequence[Any]) -> bool:
    needs_gradient = any(isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs)
    return not (needs_gradient and torch.is_grad_enabled())
