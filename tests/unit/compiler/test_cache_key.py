"""What makes another program."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbine_lite.compiler import cache_key as module
from turbine_lite.compiler.cache_key import CacheKey, cache_key
from turbine_lite.compiler.flags import FlagSet, Traits, flag_sets
from turbine_lite.options import Options

_SET = FlagSet("fast", ("--cpu=host", "--level=O3"), ("--stack=1",))
_GIVEN = {
    "program": "p",
    "calling_convention": "c",
    "purpose": "all",
    "flag_sets": (_SET,),
    "compiler": "worker",
    "tag": "",
}


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"program": "q"}, "program"),
        ({"calling_convention": "d"}, "calling convention"),
        ({"purpose": "some"}, "pipeline"),
        ({"compiler": "in-process"}, "flags"),
        ({"tag": "mine"}, "tag"),
        ({"flag_sets": (_SET, _SET)}, "flags"),
        ({"flag_sets": (dataclasses.replace(_SET, session=("--cpu=host", "--level=O1")),)}, "flags"),
        ({"flag_sets": (dataclasses.replace(_SET, process_only=()),)}, "flags"),
    ],
)
def test_each_part_counts_and_is_named(changed, part):
    one, other = cache_key(**_GIVEN), cache_key(**_GIVEN | changed)
    assert one.digest != other.digest
    assert one.differs_in(other) == (part,)


@pytest.mark.parametrize(
    ("name", "part"), [("cpu_description", "cpu"), ("installed_versions", "versions"), ("_FORMAT", "format")]
)
def test_machine_versions_and_format_count(monkeypatch, name, part):
    one = cache_key(**_GIVEN)
    monkeypatch.setattr(module, name, 99 if name == "_FORMAT" else lambda: "another")
    assert one.differs_in(cache_key(**_GIVEN)) == (part,)


def test_a_program_for_a_named_cpu_is_one_for_all_machines(monkeypatch):
    given_cpu = _GIVEN | {"flag_sets": flag_sets(Options(target_cpu="x86-64-v3"), Traits(False, False))}
    one = cache_key(**given_cpu)
    monkeypatch.setattr(module, "cpu_description", lambda: "another")
    assert one.digest == cache_key(**given_cpu).digest


_FLAG = st.tuples(st.sampled_from(["--a", "--b", "--c", "--d"]), st.sampled_from("123")).map("=".join)


@given(st.lists(_FLAG, unique_by=lambda flag: flag[:3]), st.randoms())
def test_the_order_of_different_flags_does_not_count(flags, draw):
    shuffled = draw.sample(flags, len(flags))
    one, other = (cache_key(**_GIVEN | {"flag_sets": (FlagSet("s", tuple(f), ()),)}) for f in (flags, shuffled))
    assert one.digest == other.digest


def test_of_flags_of_one_name_the_order_counts():
    sets = [(FlagSet("s", flags, ()),) for flags in (("--a=1", "--a=2"), ("--a=2", "--a=1"))]
    assert len({cache_key(**_GIVEN | {"flag_sets": s}).digest for s in sets}) == 2


@given(st.dictionaries(st.text(), st.text()), st.randoms())
def test_the_order_of_parts_does_not_count(parts, draw):
    shuffled = dict(draw.sample(list(parts.items()), len(parts)))
    assert CacheKey(parts).digest == CacheKey(shuffled).digest


_SCRIPT = """
import torch
from turbine_lite.compiler import cached
{blank}
real = cached.cache_key
def shown(**given):
    key = real(**given)
    print(key.digest)
    return key
cached.cache_key = shown
{blank}
def function(x, y):
    return torch.special.airy_ai((x @ y).softmax(-1)) + torch.arange(4.0) * 3
torch.compile(function, backend="turbine_lite_cpu", options={options})(torch.ones(3, 5), torch.ones(5, 4))
"""


def _digests(tmp_path, seed, *, blank="", options="{}"):
    script = tmp_path / f"script_{seed}.py"
    script.write_text(_SCRIPT.format(blank=blank, options=options))
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(
        [sys.executable, "-W", "ignore", script], env=environment, check=True, capture_output=True, text=True
    ).stdout.split()


def test_process_source_lines_and_dumps_do_not_count(tmp_path):
    digests = _digests(tmp_path, 1)
    assert len(digests) == 1
    assert _digests(tmp_path, 2, blank="\n\n# moved\n") == digests
    others = "{'compile_timeout': 50.0, 'verify': True, 'dump_weights': True, 'cache_bytes': 10**9}"
    assert _digests(tmp_path, 3, options=others)[:1] == digests


def test_the_cpu_is_described():
    description = module.cpu_description()
    assert description
    assert description == module.cpu_description()
