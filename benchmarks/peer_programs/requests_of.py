"""One of the flows of `flows/`: `requests_of.py FLOW` measures a request; three kinds of orders are tried first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from protocol import serve

sys.path.insert(0, str(Path(__file__).parent.parent / "flows"))
handle: Callable[[dict[str, object]], str] = import_module(sys.argv.pop(1)).handle
ORDER: dict[str, object] = {"order_id": "1001", "sku": "mug", "qty": 1}


def one_request() -> Callable[[], object]:
    """The same order again and again."""
    for wanted, changed in (("confirmed", {}), ("invalid", {"qty": 0}), ("sold out", {"sku": "vase"})):
        got = handle(ORDER | changed)
        assert got == wanted, (got, wanted)
    return lambda: handle(ORDER)


def first_event() -> None:
    """One request."""
    assert handle(ORDER) == "confirmed"


if __name__ == "__main__":
    serve({"request": one_request}, first_event)
