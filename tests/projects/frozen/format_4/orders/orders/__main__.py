"""`python -m orders --chaos`: builds the pipeline, and runs it with orders that get into trouble, on a page to watch."""

from __future__ import annotations

import sys

from graphbus_core.__main__ import main

if __name__ == "__main__":
    if sys.argv[1:2] != ["--chaos"]:
        sys.exit("usage: python -m orders --chaos [OPTION OF graphbus run]...")
    more = sys.argv[2:]
    for words in (["build", "orders/"], ["run", "--serve", "--view", "--entrypoint", "orders.chaos:chaos", *more]):
        sys.argv[1:] = words
        if status := main():
            sys.exit(status)
