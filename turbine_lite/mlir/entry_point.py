"""What the importer and the runtime agree on; apart from them so that neither loads the other's libraries."""

from __future__ import annotations

__all__ = ["ENTRY_POINT"]

# The function of a compiled module that is called.
ENTRY_POINT = "main"
