"""The table ``opinfo.json`` against what happens now: a slice always, all of it with ``pytest -m full``."""

from __future__ import annotations

import pytest

from tests.conformance.opinfo import run_op
from tests.conformance.opinfo_table import load_table

_TABLE = load_table()
_ROWS = [(column, name) for column in _TABLE for name in _TABLE[column]]

# Some of all kinds of operators in all dtypes, a few minutes.
_SLICE = _ROWS[::67]


def _check(column: str, name: str) -> None:
    expected = _TABLE[column][name]
    status = run_op(name, column)
    new = set(status.split("; ")) - set(expected.split("; ")) - {"native"}  # an improvement is no failure
    assert not new, (
        f"{name} in {column} is {status!r}, the table says {expected!r}; if that is right, write the row anew with "
        f"`python -m tests.conformance.opinfo_table --column {column!r} -k {name!r}`"
    )


@pytest.mark.filterwarnings("ignore")  # of the operators' own deprecations
@pytest.mark.parametrize(("column", "name"), _SLICE)
def test_slice(column, name):
    _check(column, name)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("column", "name"), [row for row in _ROWS if row not in set(_SLICE)])
def test_rest(column, name):
    _check(column, name)
