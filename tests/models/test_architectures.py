"""The table ``architectures.json`` against what happens now: with ``pytest -m full``."""

from __future__ import annotations

import json

import pytest

from tests.models.against_eager import MODES, TABLE, run
from tests.models.architectures import ARCHITECTURES

# Several minutes on two cores.
pytestmark = pytest.mark.full

_TABLE = json.loads(TABLE.read_text())

# One of each kind, those that compile fast; the ten models of test_models.py always run as well.
_SLICE = ("modernbert", "qwen3", "falcon", "dinov2", "wav2vec2", "clip")


def _check(name: str, mode: str) -> None:
    row, expected = run(name, mode), _TABLE[name][mode]
    hint = f"{name} in {mode} ran as {row}; if that is right, run `python -m tests.models.architectures -k {name}`"
    assert row["eager"].items() <= expected["eager"].items(), hint
    assert row["graphs"] <= expected["graphs"], hint
    assert row["regions"] <= expected["regions"], hint
    if row["native share"] is not None and expected["native share"] is not None:
        assert row["native share"] >= expected["native share"], hint


def test_the_table_has_every_architecture():
    assert {name: set(rows) for name, rows in _TABLE.items()} == {name: set(MODES) for name in ARCHITECTURES}


@pytest.mark.filterwarnings("ignore")  # of transformers' and Dynamo's own
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", _SLICE)
def test_slice(name, mode):
    _check(name, mode)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in _SLICE])
def test_rest(name, mode):
    _check(name, mode)
