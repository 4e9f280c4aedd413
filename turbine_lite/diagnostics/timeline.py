"""When what ran: events inside each other, from functions that are wrapped to tell."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Event", "Timeline", "seconds_of"]


def seconds_of(call: Callable[[], Any]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@dataclasses.dataclass(slots=True)
class Event:
    """A call. Times are those of ``time.perf_counter_ns``.

    Attributes:
        kind: what sort of thing was called; ``name`` says which.
        parent: the event during which it was called.
    """

    kind: str
    name: str
    parent: Event | None
    start: int = 0
    end: int = 0
    children: list[Event] = dataclasses.field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From start to end."""
        return (self.end - self.start) / 1e9

    @property
    def own_seconds(self) -> float:
        """The same without what was called meanwhile."""
        return self.seconds - sum(child.seconds for child in self.children)

    def walk(self) -> Iterator[Event]:
        """The event and all in it, in the order of their start."""
        yield self
        for child in self.children:
            yield from child.walk()


class Timeline:
    """Collects events while it is on, of the thread that switched it on; costs next to nothing otherwise."""

    def __init__(self) -> None:
        self._open: Event | None = None
        self._thread = 0

    def record(self, call: Callable[[], Any]) -> Event:
        """Make a call; returns its event, of the kind "call"."""
        event = Event("call", "", None)
        self._thread, self._open = threading.get_ident(), event
        try:
            event.start = time.perf_counter_ns()
            call()
            event.end = time.perf_counter_ns()
        finally:
            self._open, self._thread = None, 0
        return event

    def wrap(self, function: Callable[..., Any], kind: str, name: str) -> Callable[..., Any]:
        """The function, whose calls are events."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            parent = self._open
            if parent is None or self._thread != threading.get_ident():
                return function(*args, **kwargs)
            event = Event(kind, name, parent)
            parent.children.append(event)
            self._open = event
            event.start = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                event.end = time.perf_counter_ns()
                self._open = parent

        return timed
