"""Programs that this process has compiled already: the layers of a model are one program many times over."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from turbine_lite.compiler.driver import Compiled

__all__ = ["get", "put"]

# Programs of a few layers have some 100 KB; what was used last stays.
_MOST_BYTES = 64 << 20

_programs: OrderedDict[Hashable, Compiled] = OrderedDict()
_lock = threading.Lock()


def get(key: Hashable) -> Compiled | None:
    """What was put under ``key``, which says all that a program depends on."""
    with _lock:
        compiled = _programs.get(key)
        if compiled is not None:
            _programs.move_to_end(key)
        return compiled


def put(key: Hashable, compiled: Compiled) -> None:
    """Keep a program."""
    with _lock:
        _programs[key] = compiled
        while sum(len(other.vmfb) for other in _programs.values()) > _MOST_BYTES:
            _programs.popitem(last=False)
