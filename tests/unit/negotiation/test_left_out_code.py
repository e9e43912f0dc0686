"""Code that a model has not written out is refused; code that only looks a little like it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.negotiation import answers
from graphbus_core.negotiation.answers import Malformed
from graphbus_core.negotiation.edit_blocks import left_out, marked
from graphbus_core.negotiation.views import View
from tests.fakes import model_texts as texts
from tests.unit.negotiation.prompted_shop import shop, view_of

OLD = "def place(self, sku):\n    # keep the order of events\n    self.publish('/Order/Placed', {'sku': sku})\n    return {}\n"
PLACEHOLDERS = [
    "# ...",
    "# …",
    "…",
    "#...",
    "# ... rest of the code unchanged",
    "# ... (rest of the method)",
    "# ... existing code ...",
    "# [existing code]",
    "# rest unchanged",
    "# rest of the code",
    "# Rest of the class remains the same",
    "# The rest of the method is unchanged.",
    "# rest of the file as before",
    "# existing code here",
    "# existing implementation",
    "# keep existing code",
    "# other methods unchanged",
    "# other methods remain unchanged",
    "# remaining methods...",
    "# previous code here",
    "# original implementation goes here",
    "# your code here",
    "# same as before",
    "# unchanged",
    "# (unchanged)",
    "# no changes here",
    "# code omitted",
    "# omitted for brevity",
    "# everything else is unchanged",
]
COMMENTS = [
    "# existing orders are kept",
    "# the rest of the stock is counted by the shelf",
    "# unchanged orders are not published",
    "# other agents read this topic",
    "# returns the same code as before, but cheaper",
    "# previous code of the article, if it had one",
    "# no changes of price after this line",
    "# e.g. 3 ... 5 items",
    "# same order as in the file of the shop",
    "# remaining lines of the order are billed later",
    "# original file name",
]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    project: Project = shop(tmp_path_factory.mktemp("shop"))
    return view_of(project)


def written(comment: str) -> str:
    return f"def place(self, sku):\n    {comment}\n    return {{}}\n"


@pytest.mark.parametrize("comment", PLACEHOLDERS)
def test_a_placeholder_is_no_code(comment: str) -> None:
    assert left_out(written(comment), OLD) == comment


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_comment_is_no_placeholder(comment: str) -> None:
    assert left_out(written(comment), OLD) == ""


@pytest.mark.parametrize("comment", PLACEHOLDERS)
def test_what_was_there_before_is_no_placeholder(comment: str) -> None:
    assert left_out(written(comment), written(comment)) == ""


GAPS = {
    "among statements": "def place(self, sku):\n    ...\n    return {}\n",
    "at the end": "def place(self, sku):\n    x = 1\n    ...\n",
    "in a branch": "def place(self, sku):\n    if sku:\n        x = 1\n        ...\n    return {}\n",
    "for a body": "def place(self, sku): ...\n",
    "for a body, behind a docstring": 'def place(self, sku):\n    """Place."""\n    ...\n',
    "indented, with a bare first line": "def place(self, sku):\n        ...\n        return {}\n",
    "in lines that cannot be parsed": "else:\n    x = 1\n...\n",
}


@pytest.mark.parametrize("name", GAPS)
def test_dots_in_the_place_of_code_are_a_gap(name: str) -> None:
    assert left_out(GAPS[name], OLD) == "..."


def test_a_method_of_a_class_that_had_a_body_needs_one() -> None:
    old = "@agent\n    class Order:\n        def place(self):\n            return 1\n\n        def size(self): ...\n"
    kept = "class Order:\n    def place(self):\n        return 2\n    def size(self): ...\n"
    assert left_out(kept, old) == ""
    assert left_out(kept.replace("\n        return 2", " ..."), old.replace("def size(self): ...", "x = 1")) == "..."


@pytest.mark.parametrize(
    ("code", "old"),
    [
        ("def size(self) -> int: ...\n", ""),
        ("class Sized(Protocol):\n    def size(self) -> int: ...\n    def name(self) -> str:\n        ...\n", ""),
        ("def place(self, *args: tuple[int, ...]):\n    return args[..., 0]\n", OLD),
        ("try:\n    x = 1\nexcept KeyError:\n    ...\n", "x = 1\n"),
        ("a = 1\n...\nb = 2\n", "a = 0\n...\nb = 0\n"),
        ('def place(self):\n    """Like this:\n\n    ...\n    """\n    return 1\n', OLD),
        ("", "x = 1\n"),
    ],
)
def test_dots_that_are_meant_are_none(code: str, old: str) -> None:
    assert left_out(code, old) == ""


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("+def place(self):\n+    return 1\n", "the marks of a diff"),
        (" def place(self):\n-    return 1\n+    return 2\n", "the marks of a diff"),
        ("12: def place(self):\n13:     return 1\n", "line numbers"),
        ("  12 | def place(self):\n  13 |     return 1\n", "line numbers"),
        ("def place(self):\n    return 1\n", ""),
        ("def place(self:\n    return 1\n", ""),
        ("", ""),
    ],
)
def test_a_diff_and_a_listing_are_told_from_code(code: str, what: str) -> None:
    assert marked(code) == what


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (written("# ... rest unchanged"), "leaves code out: '# ... rest unchanged'. Write every line"),
        ("def place(self, sku: str) -> dict: ...\n", "leaves code out: '...'"),
        ("+def place(self):\n+    return 1\n", "has the marks of a diff in its code"),
    ],
)
def test_an_edit_with_a_gap_goes_back_with_a_sentence_that_helps(code: str, says: str, view: View) -> None:
    with pytest.raises(Malformed) as caught:
        answers.read_drafts(
            texts.proposal("x", texts.edit("replace_symbol", "agents/order.py", "Order.place", code)), view
        )
    assert caught.value.faults[0].startswith("Proposal 1: The edit replace_symbol agents/order.py Order.place ")
    assert says in caught.value.faults[0]


def test_a_quoted_text_that_leaves_lines_out_may_do_so_on_both_sides(view: View) -> None:
    old = '    def place(self, sku: str) -> dict:\n...\n        return {"total": self.total([1.0])}'
    swap = texts.swap("agents/order.py", old, old.replace("1.0", "2.0"), "Order")
    assert answers.read_drafts(texts.proposal("x", swap), view)
    with pytest.raises(Malformed):
        answers.read_drafts(texts.proposal("x", texts.swap("agents/order.py", "LIMIT = 10", "LIMIT = 11\n# ...")), view)


def test_no_code_of_the_standard_library_is_taken_for_a_gap() -> None:
    import ast

    for path in sorted(Path(ast.__file__).parent.glob("[a-d]*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert left_out(text, "") in ("", "..."), path.name
