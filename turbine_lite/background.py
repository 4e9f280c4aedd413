"""``options={"compile": "background"}``: run in eager while the compiler works, and switch at a call."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from torch._dynamo.utils import counters

from turbine_lite.compiler import client
from turbine_lite.graph.report import GraphReport

__all__ = ["Background", "wait_for_compilation"]

log = logging.getLogger("turbine_lite")

_running: set[threading.Thread] = set()
_is_exiting = False
_SECONDS_AT_EXIT = 10.0


class Build(Protocol):
    """Something that a compiler works on."""

    def wait(self) -> None:
        """Return when the compiler is done."""

    def finish(self) -> Any:
        """What is to be called, with its ``report``."""


class Background:
    """Runs ``in_eager`` until ``build`` is finished in a thread of its own, then what that has made.

    An error of ``build`` (there is none but with ``fallback="error"``) is raised by the calls that follow.

    Args:
        in_eager: takes a list of arguments, as AOTAutograd passes them.
        build: is finished in a thread.
        report: what is said of the graph as long as it runs in eager.
    """

    def __init__(self, in_eager: Callable[[list[Any]], Any], build: Build, report: GraphReport) -> None:
        self._boxed_call = True  # what AOTAutograd looks for, among an object's own attributes
        self._run = in_eager
        self.report = report
        thread = threading.Thread(target=self._finish, args=(build,), name="turbine_lite background", daemon=True)
        _running.add(thread)
        thread.start()

    def __call__(self, args: list[Any]) -> Any:
        """Run with the list of arguments."""
        return self._run(args)

    def _finish(self, build: Build) -> None:
        try:
            build.wait()
            if _is_exiting:
                return
            run = build.finish()
            run.report.add_to(counters["turbine_lite"])
            self.report, self._run = run.report, run
            log.info("compiled in the background: %d operators in IREE", run.report.native_calls)
        except Exception as error:  # whatever it is, nobody looks at this thread: the next call raises it
            self._run = functools.partial(_raise, error)
        finally:
            _running.discard(threading.current_thread())


def _raise(error: Exception, args: list[Any]) -> NoReturn:
    raise error


def wait_for_compilation(timeout: float | None = None) -> bool:
    """Wait until all that compiles in the background is ready to be called, or has failed.

    Args:
        timeout: the most seconds to wait; None: as long as it takes.

    Returns:
        Whether all is done.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while threads := [thread for thread in list(_running) if thread.is_alive()]:
        if deadline is not None and time.monotonic() >= deadline:
            return False
        threads[0].join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    return True


def _end_at_exit() -> None:
    """No thread may be in the middle of something when the interpreter goes."""
    global _is_exiting
    _is_exiting = True
    if _running:
        client.shut_down(for_good=True)
        wait_for_compilation(_SECONDS_AT_EXIT)


atexit.register(_end_at_exit)
# Threads of the parent are not there in the child of a fork.
os.register_at_fork(after_in_child=_running.clear)
