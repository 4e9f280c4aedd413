"""Programs that this process has compiled already: the layers of a model are one program many times over."""

from __future__ import annotations

import threading
from collections import OrderedDict

from turbine_lite.compiler.cache_key import CacheKey
from turbine_lite.compiler.driver import Compiled

__all__ = ["get", "put"]

# Programs of a few layers have some 100 KB; what was used last stays.
_MOST_BYTES = 64 << 20

_programs: OrderedDict[str, Compiled] = OrderedDict()
_lock = threading.Lock()


def get(key: CacheKey) -> Compiled | None:
    """What was put under ``key``."""
    with _lock:
        compiled = _programs.get(key.digest)
        if compiled is not None:
            _programs.move_to_end(key.digest)
        return compiled


def put(key: CacheKey, compiled: Compiled) -> None:
    """Keep a program."""
    with _lock:
        _programs[key.digest] = compiled
        while sum(len(other.vmfb) for other in _programs.values()) > _MOST_BYTES:
            _programs.popitem(last=False)
