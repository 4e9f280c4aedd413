"""Small programs by family; importing this package registers all of them."""

import importlib
import pkgutil

from tests.conformance.programs.harness import PROGRAMS, Program, check

__all__ = ["PROGRAMS", "Program", "check"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
