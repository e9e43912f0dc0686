"""Values that name others many times are read once each: a file that is made to grow without end keeps nobody waiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.reading import read_agent

MANY, LAST = 60, 9
ENTRY = '"k{i}": d{before}'
HEAD = """\
from graphbus_core import Event, GraphBusNode, publishes, subscribe

@publishes("/B", {"x": int})
class A(GraphBusNode):
    @subscribe("/A")
    def on_a(self, event: Event) -> None:
        v0 = event["x"]
        d0 = {"x": v0}
"""


def repeated(pattern: str, number: int, separator: str = ", ") -> str:
    return separator.join(pattern.format(i=i, before=number - 1) for i in range(MANY))


GROWING = {
    "tuples": lambda n: f"v{n} = ({repeated('v{before}', n)})",
    "lists": lambda n: f"v{n} = [{repeated('v{before}', n)}]",
    "alternatives": lambda n: f"v{n} = {repeated('v{before}', n, ' or ')}",
    "lambdas": lambda n: f"v{n} = lambda: {repeated('v{before}()', n, ' or ')}",
    "copies of a dict": lambda n: f"d{n} = {{{repeated('**d{before}', n)}}}",
    "a dict in a dict": lambda n: f"d{n} = {{{repeated(ENTRY, n)}}}",
    "calls of dict": lambda n: f"d{n} = dict({repeated('k{i}=d{before}', n)})",
    "comprehensions": lambda n: f"v{n} = [({repeated('i', n)}) for i in [v{n - 1}] * 2]",
}


@pytest.mark.parametrize("kind", GROWING)
def test_each_value_is_read_once(kind: str, tmp_path: Path, figure: Figure) -> None:
    lines = [
        *map(GROWING[kind], range(1, LAST)),
        'self.publish("/B", {"x": v8 if v0 else d8})',
        'self.publish("/B", d8)',
    ]
    text = HEAD + "".join(f"        {line}\n" for line in ("d8 = v8 = {}", *lines))
    begun = time.process_time()
    assert read_agent(tmp_path, text).name == "A"
    used_s = time.process_time() - begun
    figure(f"processor time to read {kind} that grow", f"{used_s:.1f} s")
    assert used_s < 30
