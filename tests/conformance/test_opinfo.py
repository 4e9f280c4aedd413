"""The table ``opinfo.json`` against what happens now: a slice always, all of it with ``pytest -m full``."""

from __future__ import annotations

import json

import pytest

from tests.conformance.opinfo import DTYPES, TABLE, run_op

_TABLE = json.loads(TABLE.read_text())
_ROWS = [(dtype, name) for dtype in _TABLE for name in _TABLE[dtype]]

# Every thirteenth row: all kinds of operators, a few minutes.
_SLICE = _ROWS[::13]


def _check(dtype: str, name: str) -> None:
    expected = _TABLE[dtype][name]
    status = run_op(name, DTYPES[dtype])
    new = set(status.split("; ")) - set(expected.split("; ")) - {"native"}  # an improvement is no failure
    assert not new, (
        f"{name} in {dtype} is {status!r}, the table says {expected!r}; if that is right, write the table anew with "
        f"`python -m tests.conformance.opinfo`"
    )


@pytest.mark.filterwarnings("ignore")  # of the operators' own deprecations
@pytest.mark.parametrize(("dtype", "name"), _SLICE)
def test_slice(dtype, name):
    _check(dtype, name)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dtype", "name"), [row for row in _ROWS if row not in set(_SLICE)])
def test_rest(dtype, name):
    _check(dtype, name)
