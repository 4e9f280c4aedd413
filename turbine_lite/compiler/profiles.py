"""Sets of compiler flags that are the fastest for some programs and not for others: what max-autotune tries."""

from __future__ import annotations

__all__ = ["PROFILES"]

# Added to those of ``flags.py``, which are the best on the whole.
PROFILES: dict[str, tuple[str, ...]] = {
    "default": (),
    # Smaller parts for each thread: what is computed beside a sum (a residual sum and its layer norm) goes through the
    # stack, and 64 rows of it do not fit into the first cache: (1, 128, 768) 468 us -> 154 us.
    "small-tiles": ("--iree-llvmcpu-distribution-size=16",),
}
