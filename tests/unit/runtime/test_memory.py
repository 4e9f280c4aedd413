"""Freed memory stays with the process, as far as the user lets it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

# Blocks that are all free at the end of each round, as activations are at the end of a call.
_SCRIPT = """
import ctypes
import resource
from turbine_lite.runtime import memory

print([memory.keep_freed_memory(count) for count in {counts}])
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for round in range(40):
    if round == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(4 << 20) for _ in range(6)]
    for block in blocks:
        ctypes.memset(block, 1, 4 << 20)
    for block in blocks:
        libc.free(block)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
memory.give_back_freed_memory()
"""

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc's settings are glibc's")


def _run(*counts, **environment):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(counts=counts)],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    told, faults = done.stdout.splitlines()
    return told, int(faults)


def test_a_call_finds_the_memory_of_the_one_before():
    told, faults = _run(256 << 20, 256 << 20, 1)
    assert told == "[True, False, False]"
    assert faults < 100


def test_nothing_is_changed_where_it_is_not_wanted():
    told, faults = _run(0)
    assert told == "[False]"
    assert faults > 1000  # or there would be nothing to do here


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_the_users_own_settings_stay(name):
    assert _run(256 << 20, **{name: "131072"})[0] == "[False]"
    assert _run(256 << 20, GLIBC_TUNABLES="glibc.malloc.trim_threshold=131072")[0] == "[False]"
