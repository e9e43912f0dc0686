"""A check after a change finds what a check of the whole project finds, however far a result travels."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from graphbus_core.compiler.rules.again import check_again
from tests.reading import HEAD, read_files

FILES = {
    "shelf.py": """
class Shelf(GraphBusNode):
    @schema_method({})
    def count(self):
        return {"books": 3}
""",
    "library.py": """
@depends_on("Shelf")
class Library(GraphBusNode):
    @schema_method({})
    def size(self):
        return self.call("Shelf", "count")
""",
    "desk.py": """
@depends_on("Library")
class Desk(GraphBusNode):
    @schema_method({}, {"books": int})
    def answer(self):
        return {"books": self.call("Library", "size")["books"]}
""",
}


@pytest.mark.parametrize(("wrong", "code"), [('{"books": "three"}', "GB103"), ('{"count": 3}', "GB111")])
def test_a_change_is_seen_by_an_agent_that_gets_the_result_over_another_one(
    tmp_path: Path, wrong: str, code: str
) -> None:
    before = read_files(tmp_path, {path: HEAD + text for path, text in FILES.items()})
    found = rules.check(before)
    after = before.with_files({"shelf.py": (HEAD + FILES["shelf.py"].replace('{"books": 3}', wrong)).encode()})
    again = check_again(after, before, found)
    assert [(each.code, each.agent) for each in again if each.severity == "error"] == [(code, "Desk")]
    assert again == rules.check(after)
    assert check_again(before, after, again) == found
