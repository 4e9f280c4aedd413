"""Compilations beside each other: threads that wait for compiler processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from turbine_lite.compiler.client import most_at_once

__all__ = ["finished", "start"]

_T = TypeVar("_T")

_turns = threading.BoundedSemaphore(most_at_once())


def start(function: Callable[[], _T]) -> Future[_T]:
    """Call ``function`` in a thread of its own, at most as many at once as there may be compilers.

    Threads of an executor would be waited for when the interpreter exits.
    """
    future: Future[_T] = Future()
    turns = _turns

    def run() -> None:
        with turns:
            try:
                future.set_result(function())
            except BaseException as error:  # for whoever waits
                future.set_exception(error)

    threading.Thread(target=run, name="turbine_lite compilation", daemon=True).start()
    return future


def finished(function: Callable[[], _T]) -> Future[_T]:
    """Call ``function`` at once."""
    future: Future[_T] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future


def _forget_in_child() -> None:
    # Threads that held turns are not there in the child of a fork.
    global _turns
    _turns = threading.BoundedSemaphore(most_at_once())


os.register_at_fork(after_in_child=_forget_in_child)
