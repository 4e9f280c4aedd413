"""Small programs against eager, with ``pytest -m full``: they take a quarter of an hour."""

from __future__ import annotations

import pytest

from tests.conformance.programs import PROGRAMS, check

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta"),
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions"),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name])
