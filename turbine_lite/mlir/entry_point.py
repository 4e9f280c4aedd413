"""What the importer and the runtime agree on; apart from them so that neither loads the other's libraries."""

from __future__ import annotations

__all__ = ["CALL", "ENTRY_POINT", "PARAMETER_SCOPE", "parameter_name"]

# The function of a compiled module that is called.
ENTRY_POINT = "main"

# The operator that stands for a call of another function of the module, see ``composites.py``.
CALL = "turbine_lite.call_function.default"

# Parameters of a program are in this scope of IREE's.
PARAMETER_SCOPE = "model"


def parameter_name(position: int | str) -> str:
    """What the program calls the argument at this position, if it is a parameter."""
    return f"argument_{position}"
