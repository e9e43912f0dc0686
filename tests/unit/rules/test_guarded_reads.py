"""GB003 and conditions: a read behind a condition on the payload is never reported, any other is."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tests.checking import found, read

HEAD = """
class A(GraphBusNode):
    def go(self): self.publish("/T", {"x": 1})
class B(GraphBusNode):
    @subscribe("/T")
    def on(self, event):
"""


@pytest.mark.parametrize(
    "body",
    [
        "if set(event.payload) >= {'opt'}: self.log(event['opt'])",
        "if all(k in event.payload for k in ('opt', 'two')): self.log(event['opt'] + event['two'])",
        "keys = event.payload.keys()\nif 'opt' in keys: self.log(event['opt'])",
        "keys = event.payload.keys()\nif 'opt' not in keys: return\nself.log(event['opt'])",
        "if {'opt', 'two'} <= event.payload.keys(): self.log(event['two'])",
        "if len(event) > 5: self.log(event['six'])",
        "if len(event) < 5: self.log(event['x'])\nelse: self.log(event['six'])",
        "if len(event) < 5: return\nself.log(event['six'])",
        "if len(event) > 5:\n    pass\nelse:\n    return\nself.log(event['six'])",
        "for _ in range(3):\n    if len(event) < 5: continue\n    self.log(event['six'])",
        "assert len(event) > 5\nself.log(event['six'])",
        "while len(event) > 5: self.log(event['six'])",
        "y = event['six'] if len(event) > 5 else 0",
        "y = 0 if len(event) < 5 else event['six']",
        "y = len(event) > 5 and event['six']",
        "y = len(event) < 5 or (self.x and event['six'])",
        "y = [event['six'] for _ in range(3) if len(event) > 5]",
        "y = {event['six'] for _ in range(3) if len(event) > 5}",
        "y = {event['six']: event['seven'] for _ in range(3) if len(event) > 5}",
        "match len(event):\n    case 6: self.log(event['six'])",
        "match self.mode:\n    case 1 if len(event) > 5: self.log(event['six'])",
        "match event.payload:\n    case {'opt': _} if event['opt']: self.log(event['opt'])",
        "missing = [k for k in ('opt',) if k not in event]\nif missing: return\nself.log(event['opt'])",
        "if not self.is_whole(event): return\nself.log(event['opt'])",
        "is_whole = self.is_whole(event.payload)\nif not is_whole: return\nself.log(event['opt'])",
        "for key in event:\n    if key == 'opt': self.log(event['opt'])",
        "if (keys := set(event)) and self.x:\n    self.log(event['opt'])",
        "n: int = len(event)\nn += 1\nif n > 6:\n    if self.x:\n        self.log(event['opt'])",
        "if event['x'] == 2: self.log(event['opt'])",
        "if event.payload: self.log(event['opt'])",
        "def inner():\n    if len(event) > 5: return event['opt']\ninner()",
        "Missing = KeyError\ntry: self.log(event['opt'])\nexcept Missing: pass",
        "try: self.log(event['opt'])\nexcept (ValueError, errors.Missing): pass",
    ],
)
def test_a_read_behind_a_condition_on_the_payload_is_not_reported(tmp_path: Path, body: str) -> None:
    assert found(read(tmp_path, HEAD + indent(body, "        ")), "GB003") == []


@pytest.mark.parametrize(
    "body",
    [
        "self.log(event['opt'])",
        "if self.x: self.log(event['opt'])",
        "if len(event) > 5: pass\nself.log(event['opt'])",
        "self.log(event['opt'])\nif len(event) > 5: return",
        "if event['opt']: pass",
        "y = event['opt'] and event['x']",
        "if not event: return\nself.log(event['opt'])",
        "if not event.payload: return\nself.log(event['opt'])",
        "if event.payload is None or not isinstance(event.payload, dict): return\nself.log(event['opt'])",
        "if event['x'] < 0: raise ValueError\nself.log(event['opt'])",
        "if 'x' not in event or not event.get('x'): return\nself.log(event['opt'])",
        "if event.topic == '/Other': return\nself.log(event['opt'])",
        "if len(event) > 5:\n    x = 1\nelse:\n    x = 2\nself.log(event['opt'])",
        "y = [event['opt'] for _ in range(3) if self.x]",
        "match self.mode:\n    case 1: self.log(event['opt'])",
        "try: self.log(event['opt'])\nexcept ValueError: pass",
    ],
)
def test_a_read_that_no_condition_on_the_payload_stands_before_is_reported(tmp_path: Path, body: str) -> None:
    assert [code for _, _, code in found(read(tmp_path, HEAD + indent(body, "        ")), "GB003")] == ["GB003"]
