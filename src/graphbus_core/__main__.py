"""`python -m graphbus_core` is the command `graphbus`."""

import sys

from graphbus_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
