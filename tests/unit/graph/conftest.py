from __future__ import annotations

import pytest

from turbine_lite.graph.extern import choose


@pytest.fixture
def small_is_enough(monkeypatch):
    """Kernels are taken for the sizes of tests, too."""
    monkeypatch.setattr(choose, "LEAST_OPERATIONS", 0)
    monkeypatch.setattr(choose, "LEAST_OPERATIONS_OF_SMALL", 0)
