from __future__ import annotations

import pytest

from turbine_lite.errors import OptionError
from turbine_lite.options import MODES, Options


def resolve(options=None, mode=None, environ=None):
    return Options.resolve(options, mode, environ or {})


def test_defaults():
    options = resolve()
    assert options.fallback == "eager"
    assert options.compiler == "worker"
    assert options.dump_dir is None


def test_unknown_option_lists_the_known_and_suggests():
    with pytest.raises(OptionError, match=r"unknown option 'falback' \(did you mean 'fallback'\?\); known: .*driver"):
        resolve({"falback": "error"})


def test_unknown_mode_lists_the_known():
    with pytest.raises(OptionError, match=r"unknown mode 'fastest'.*default.*reduce-overhead"):
        resolve(mode="fastest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback": True}, "option 'fallback' must be of type str, not bool"),
        ({"fallback": "never"}, "must be one of eager, error, not 'never'"),
        ({"compile_timeout": "10"}, "must be of type float, not str"),
        ({"compile_timeout": True}, "must be of type float, not bool"),
        ({"compile_timeout": 0}, "a number above 0"),
        ({"compile_flags": ("O3",)}, "flags that start with '--'"),
        ({"compile_flags": "--x"}, "must be of type tuple, not str"),
        ({"disabled_ops": (1,)}, "must hold only strings"),
        ({"dump_weights": 1}, "must be of type bool, not int"),
    ],
)
def test_wrong_type_or_value(options, message):
    with pytest.raises(OptionError, match=message):
        resolve(options)


def test_options_must_be_a_dict():
    with pytest.raises(OptionError, match="must be a dict, not list"):
        resolve(["fallback"])


def test_precedence_is_options_mode_environment_default():
    environ = {"TURBINE_LITE_DRIVER": "local-task"}
    assert resolve(environ=environ).driver == "local-task"
    assert resolve(mode="reduce-overhead", environ=environ).driver == "local-sync"
    assert resolve({"driver": "auto"}, "reduce-overhead", environ).driver == "auto"
    assert resolve().driver == "auto"


def test_environment_is_parsed_by_type():
    environ = {
        "TURBINE_LITE_DUMP": "/tmp/x",
        "TURBINE_LITE_DUMP_WEIGHTS": "on",
        "TURBINE_LITE_COMPILE_TIMEOUT": "2.5",
        "TURBINE_LITE_DISABLED_OPS": "aten.gelu, aten.mm.default",
    }
    options = resolve(environ=environ)
    assert options.dump_dir == "/tmp/x"
    assert options.dump_weights is True
    assert options.compile_timeout == 2.5
    assert options.disabled_ops == ("aten.gelu", "aten.mm.default")


@pytest.mark.parametrize(
    ("name", "text"),
    [("TURBINE_LITE_DUMP_WEIGHTS", "maybe"), ("TURBINE_LITE_COMPILE_TIMEOUT", "soon"), ("TURBINE_LITE_FALLBACK", "x")],
)
def test_wrong_environment_names_the_variable(name, text):
    with pytest.raises(OptionError, match=name):
        resolve(environ={name: text})


def test_empty_environment_variable_is_unset():
    assert resolve(environ={"TURBINE_LITE_DUMP": ""}).dump_dir is None


def test_every_mode_is_a_valid_set_of_options():
    for mode in MODES:
        resolve(mode=mode)


def test_options_are_frozen_and_documented():
    with pytest.raises(AttributeError):
        resolve().fallback = "error"
    assert all(doc and env.startswith("TURBINE_LITE_") for _, _, env, doc in Options.table())
