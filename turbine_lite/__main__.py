"""``python -m turbine_lite``: the ``turbine-lite`` command."""

import sys

from turbine_lite.cli import main

if __name__ == "__main__":
    sys.exit(main())
