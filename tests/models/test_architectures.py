"""The table ``architectures.json`` against what happens now: with ``pytest -m full``."""

from __future__ import annotations

import json

import pytest

from tests.models.against_eager import MODES, TABLE, run
from tests.models.architectures import ARCHITECTURES

# Several minutes on two cores.
pytestmark = pytest.mark.full

_TABLE = json.loads(TABLE.read_text())


def test_the_table_has_every_architecture():
    assert {name: set(rows) for name, rows in _TABLE.items()} == {name: set(MODES) for name in ARCHITECTURES}


@pytest.mark.filterwarnings("ignore")  # of transformers' and Dynamo's own
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_row(name, mode):
    row, expected = run(name, mode), _TABLE[name][mode]
    hint = f"{name} in {mode} ran as {row}; if that is right, run `python -m tests.models.architectures -k {name}`"
    assert row["eager"].items() <= expected["eager"].items(), hint
    assert row["graphs"] <= expected["graphs"], hint
    assert row["regions"] <= expected["regions"], hint
    if row["native share"] is not None and expected["native share"] is not None:
        assert row["native share"] >= expected["native share"], hint
