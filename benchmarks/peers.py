"""Who is timed: ways to run a PyTorch program on a CPU.

A peer that does not install beside this project's own packages has an environment of its own, see
``benchmarks.environments``.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["OURS", "PEERS", "TUNED", "Peer"]

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A way to run a program.

    Attributes:
        name: what tables call it.
        compile: a module or function -> what is called in its place.
        package: what has to be importable, if not just torch.
        groups: the groups of cases that it is timed in.
    """

    name: str
    compile: Compile
    package: str | None = None
    groups: tuple[str, ...] = ("overhead", "micro", "model", "training")

    @property
    def is_here(self) -> bool:
        """Whether this interpreter can run it."""
        return self.package is None or importlib.util.find_spec(self.package) is not None


def _eager(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


def _backend(name: str, **more: Any) -> Compile:
    return lambda call: torch.compile(call, backend=name, **more)


def _freezing(call: Callable[..., Any]) -> Callable[..., Any]:
    import torch._inductor.config

    torch._inductor.config.freezing = True  # read when the first call compiles; a process has one peer
    return torch.compile(call, backend="inductor")


def _openvino(call: Callable[..., Any]) -> Callable[..., Any]:
    import openvino.torch  # noqa: F401  # registers the backend

    return torch.compile(call, backend="openvino")


def _onnxruntime(call: Callable[..., Any]) -> Callable[..., Any]:
    """Exported at the first call, and then run from numpy arrays that share memory with the tensors."""
    import onnxruntime

    sessions: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        if not sessions:
            module = call if isinstance(call, torch.nn.Module) else _Function(call)
            model: Any = torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, verbose=False)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            sessions.append(onnxruntime.InferenceSession(model.model_proto.SerializeToString(), options))
        (session,) = sessions
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        feeds = {spec.name: tensor.numpy() for spec, tensor in zip(session.get_inputs(), tensors, strict=True)}
        return [torch.from_numpy(result) for result in session.run(None, feeds)]

    return run


class _Function(torch.nn.Module):
    """A function as a module, which is what the exporter takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


OURS = "turbine_lite"
TUNED = f"{OURS} max-autotune"

_INFERENCE = ("overhead", "micro", "model")
_LARGE = ("model", "training")

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("eager", _eager),
        Peer("aot_eager", _backend("aot_eager"), None, ("overhead",)),  # what torch.compile itself costs
        Peer(OURS, _backend("turbine_lite_cpu"), "turbine_lite"),
        Peer(f"{OURS} all in IREE", _backend("turbine_lite_cpu", options={"extern": "none"}), "turbine_lite", _LARGE),
        Peer(TUNED, _backend("turbine_lite_cpu", mode="max-autotune"), "turbine_lite", _LARGE),
        Peer("inductor", _backend("inductor")),
        Peer("inductor freezing", _freezing, None, _INFERENCE),
        Peer("openvino", _openvino, "openvino", _INFERENCE),
        Peer("onnxruntime", _onnxruntime, "onnxruntime", _INFERENCE),
        Peer("turbine_cpu", _backend("turbine_cpu"), "iree.turbine", _INFERENCE),
    )
}
