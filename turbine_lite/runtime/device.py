"""IREE's VM instance and CPU devices: one of each per process, made on first use.

IREE's runtime keeps threads and native objects that neither survive a fork nor like to be torn down at interpreter
exit in arbitrary order, so this module owns them all and says when they go.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from typing import Any

from iree import runtime
from iree.runtime import _binding

from turbine_lite.compiler.flags import STACK_BYTES

__all__ = ["Device", "get_device", "on_fork"]


class Device:
    """An IREE device with what a call needs of it.

    Attributes:
        instance: the VM instance, shared by all devices of the process.
        handle: the ``iree.runtime.HalDevice``.
        hal_module: IREE's HAL module bound to the device, shared by all contexts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.instance = _instance()
        self.handle = runtime.get_driver(name).create_default_device()
        self.hal_module = runtime.create_hal_module(self.instance, self.handle)


_lock = threading.RLock()
_devices: dict[str, Device] = {}
# What a forked child inherited: its threads do not exist there, so it must be neither used nor destroyed.
_inherited: list[object] = []
_fork_listeners: weakref.WeakSet[Any] = weakref.WeakSet()


def get_device(name: str) -> Device:
    """The process's device of one driver, ``"local-sync"`` or ``"local-task"``.

    In the child of a fork it is always local-sync: IREE keeps one local-task driver per process, and the child has
    inherited one whose threads do not exist there.
    """
    with _lock:
        if _inherited:
            name = "local-sync"
        if name not in _devices:
            _devices[name] = Device(name)
        return _devices[name]


def on_fork(listener: Any) -> None:
    """Have ``listener.forget_device()`` called in the child of a fork; the listener is held weakly."""
    _fork_listeners.add(listener)


@functools.cache
def _instance() -> Any:
    # Objects that live until interpreter exit are reported as leaks otherwise.
    _binding.disable_leak_checker()
    # Threads as torch has; stacks for the compiler's stack limit, with room for the runtime's own frames.
    runtime.flags.parse_flags(
        f"--task_topology_group_count={_threads()}",
        f"--task_worker_stack_size={4 * STACK_BYTES}",
    )
    return runtime.VmInstance()


def _threads() -> int:
    """As many as torch uses; where nobody has imported torch, as many as this process has CPUs."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _forget_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    _inherited.append(dict(_devices))
    _devices.clear()
    _inherited.extend(listener.forget_device() for listener in list(_fork_listeners))


os.register_at_fork(after_in_child=_forget_in_child)
