"""Compilations beside each other: threads that wait for compiler processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["finished", "start"]

_T = TypeVar("_T")


def start(function: Callable[[], _T], *, here: bool = False) -> Future[_T]:
    """Call ``function`` in a thread of its own, or ``here``, in the caller's.

    How many compilers work at once, ``client`` sees to. Threads of an executor would be waited for when the interpreter
    exits.
    """
    if here:
        return finished(function)
    future: Future[_T] = Future()

    def run() -> None:
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
    except Exception as error:  # as from a thread: for whoever asks for the result
        future.set_exception(error)
    return future
