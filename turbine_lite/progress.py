"""What a terminal shows while something takes more than a moment; elsewhere nothing is written."""

from __future__ import annotations

import concurrent.futures
import sys
import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from tqdm import tqdm

__all__ = ["progress_bar", "show_until_done"]

_SECONDS_BEFORE = 2.0
_SECONDS_BETWEEN = 0.2


def progress_bar(what: str, total: int, *, show: bool) -> tqdm[Any]:
    """A bar that disappears at its end. It is to be closed, as a context manager does.

    Args:
        what: what is being done.
        total: of how many steps.
        show: the option ``progress``; False shows nothing on terminals either.
    """
    return tqdm(total=total, desc=f"turbine_lite: {what}", leave=False, disable=None if show else True)


def show_until_done(what: str, futures: Collection[Future[Any]], *, show: bool) -> None:
    """Wait for all of them; after two seconds with a bar of how many are done, and the time."""
    started = time.monotonic()
    is_shown = show and sys.stderr.isatty()
    pending = concurrent.futures.wait(futures, timeout=_SECONDS_BEFORE if is_shown else None).not_done
    if not pending:
        return
    with progress_bar(what, len(futures), show=show) as bar:
        bar.start_t -= time.monotonic() - started
        while pending:
            bar.n = len(futures) - len(pending)
            bar.refresh()
            pending = concurrent.futures.wait(pending, timeout=_SECONDS_BETWEEN).not_done
