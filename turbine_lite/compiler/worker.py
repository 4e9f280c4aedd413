"""The compiler process: reads requests from standard input, writes responses to standard output.

Started as ``python -m turbine_lite.compiler.worker`` by :mod:`turbine_lite.compiler.client`. Messages are pickles
with a length in front; both ends are the same program, so nothing untrusted is unpickled. The first message holds
the process-wide compiler flags; the others say themselves how they are run.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
import threading
import time
from typing import Any, BinaryIO

from turbine_lite.compiler.pipeline import set_global_flags

__all__ = ["main", "read_message", "write_message"]

_LENGTH = struct.Struct("<Q")


def write_message(stream: BinaryIO, message: Any) -> None:
    """Write one message and flush."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_message(stream: BinaryIO) -> Any:
    """Read one message.

    Raises:
        EOFError: if the other end is gone, also in the middle of a message.
    """
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return pickle.loads(_read_exactly(stream, length))


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError("the other end of the compiler's pipe is closed")
    return data


def _exit_with_parent(parent: int) -> None:
    # The parent may be killed while a compilation runs (or hangs): end of input would be seen only after it.
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _limit_memory() -> None:
    # Passes that do not end have been seen to take 20 GB; at the limit the compiler dies, and milder flags follow.
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def main() -> int:
    """Serve until standard input ends."""
    # Ctrl-C in a terminal reaches the whole process group; what to do about it is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = os.fdopen(os.dup(0), "rb")
    responses = os.fdopen(os.dup(1), "wb")
    # The compiler may print; that must not reach the pipe.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _limit_memory()
    try:
        parent, global_flags = read_message(requests)
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
        set_global_flags(global_flags)
        while True:
            write_message(responses, read_message(requests).run())
    except (EOFError, BrokenPipeError):
        return 0


if __name__ == "__main__":
    # Not sys.exit: the compiler's own static destructors have been seen to crash, and nothing is left to clean up.
    code = main()
    sys.stderr.flush()
    os._exit(code)
