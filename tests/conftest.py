from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from turbine_lite.runtime import eager_trial

# The models of the tests are made from configurations; a hub that is not there must not be waited for.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in list(os.environ):
        if name.startswith("TURBINE_LITE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TURBINE_LITE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _iree_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested must not depend on how fast the machine is at the moment."""
    monkeypatch.setattr(eager_trial, "_MUCH_SLOWER", float("inf"))
