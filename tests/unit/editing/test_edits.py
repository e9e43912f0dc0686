"""Edits of one file: what they change, what they leave alone, and what they refuse."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.edits import apply_change, symbol_text, unified_diff
from graphbus_core.editing.text.source_text import first_difference
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange
from tests.symbols import find_symbol

SHOP = '''\
# -*- heading -*-
"""Shop."""

import os


class Shop:
    """A shop."""

    limit = 3

    @first
    @second(a=1,
            b=2)
    def sell(self, item):
        """Sell
an item."""
        return item  # sold

    async def buy(self): return 1  # bought

    class Till:
        def open(self):
            return """
    code = 1
"""


def helper():
    return 0


if __name__ == "__main__":
    helper()
'''


def change(
    target: str = "", new: str = "", old: str = "", operation: str = "replace_symbol", **more: Any
) -> CodeChange:
    return CodeChange(
        file_path="shop.py",
        target=target,
        change_type="modify",
        operation=operation,
        old_code=old,
        new_code=new,
        **more,
    )


def edit(text: str, target: str, new: str, operation: str = "replace_symbol") -> str:
    """Apply a change that was written for the text as it is."""
    data = text.encode()
    old = symbol_text(data, target) if operation != "add_symbol" else ""
    return apply_change(data, change(target, new, old, operation)).decode()


def refused(data: str | bytes, wanted: CodeChange) -> EditError:
    with pytest.raises(EditError) as caught:
        apply_change(data.encode() if isinstance(data, str) else data, wanted)
    return caught.value


# --- finding ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "begins", "ends"),
    [
        ("Shop", "class Shop:", '"""'),
        ("Shop.sell", "@first", "return item"),
        ("Shop.buy", "async def buy", "return 1"),
        ("Shop.Till.open", "def open", '"""'),
        ("helper", "def helper", "return 0"),
    ],
)
def test_a_symbol_goes_from_its_first_decorator_to_its_last_statement(target: str, begins: str, ends: str) -> None:
    start, end = find_symbol(SHOP.encode(), target)
    assert SHOP[start:end].startswith(begins)
    assert SHOP[start:end].endswith(ends)
    assert symbol_text(SHOP.encode(), target) == SHOP[start:end]


@pytest.mark.parametrize(
    "decorated",
    [
        "@(  # see @other\n    outer\n)\ndef f(): pass",
        "@ spaced\ndef f(): pass",
        "@\\\nfolded\ndef f(): pass",
        "\f@fed\ndef f(): pass",
    ],
)
def test_a_decorator_is_found_however_it_is_written(decorated: str) -> None:
    assert symbol_text(f"x = 1\n{decorated}\n".encode(), "f") == decorated.lstrip("\f")


@pytest.mark.parametrize(
    "text",
    [
        "def f(): pass\ndef f(): pass\n",
        "if x:\n    def f(): pass\nelse:\n    def f(): pass\n",
        "try:\n    def f(): pass\nexcept E:\n    def f(): pass\n",
        "match x:\n    case 1:\n        def f(): pass\n    case 2:\n        def f(): pass\n",
        "@overload\ndef f(a: int): ...\ndef f(a): return a\n",
        "with a:\n    def f(): pass\nfor b in c:\n    def f(): pass\n",
    ],
)
def test_a_name_with_several_definitions_is_refused(text: str) -> None:
    assert refused(text, change("f", "def f(): return 1", old="def f(): pass")).code == "GBE302"


def test_an_unknown_symbol_is_refused_with_the_names_that_there_are() -> None:
    error = refused(SHOP, change("Shop.sel", "def sel(self): pass", old="-"))
    assert error.code == "GBE301"
    assert "Did you mean 'Shop.sell'?" in str(error)
    assert "Shop.Till.open" in error.hint
    assert refused("def f():\n    def g(): pass\n", change("g", "def g(): return 1", old="-")).code == "GBE301"


# --- replacing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "new",
    [
        "def sell(self, item):\n    return None",
        "    def sell(self, item):\n        return None",
        "def sell(self, item):\n        return None",
        "\n\n\tdef sell(self, item):\n\t    return None\n\n",
        "        def sell(self, item):\r\n            return None\r\n",
    ],
    ids=["left margin", "as in the file", "from the first character", "tab", "deeper, CRLF"],
)
def test_new_code_is_indented_like_its_place(new: str) -> None:
    result = edit(SHOP, "Shop.sell", new)
    assert symbol_text(result.encode(), "Shop.sell") == "def sell(self, item):\n        return None"
    assert "  # sold\n" in result


def test_the_inside_of_strings_is_not_indented() -> None:
    new = 'def open(self):\n    a = """\nleft\n  """\n    return f"""\n{a}\n""" "x"\n'
    result = edit(SHOP, "Shop.Till.open", new)
    assert '            a = """\nleft\n  """\n            return f"""\n{a}\n""" "x"\n' in result
    to_the_left = '    def helper():\n        return """\n        kept"""'
    assert 'def helper():\n    return """\n        kept"""' in edit(SHOP, "helper", to_the_left)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark_survive(newline: str, mark: bytes) -> None:
    data = mark + SHOP.replace("\n", newline).encode()
    start, end = find_symbol(data, "Shop.sell")
    wanted = change("Shop.sell", "def sell(self, item):\n    return 1", old=symbol_text(data, "Shop.sell"))
    expected = f"def sell(self, item):{newline}        return 1".encode()
    assert apply_change(data, wanted) == data[:start] + expected + data[end:]


def test_the_encoding_of_the_coding_line_is_kept() -> None:
    data = "# coding: latin-1\ns = 'é'\ndef f():\n    return 'é'\ndef g(): return 'ü'\n".encode("latin-1")
    result = apply_change(data, change("f", "def f():\n    return 'ß'", old="def f():\n    return 'é'"))
    assert result == data.replace(b"    return '\xe9'", b"    return '\xdf'")
    error = refused(data, change("f", "def f(): return '🐍'", old="def f():\n    return 'é'"))
    assert error.code == "GBE311"
    other = change("", "# coding: utf-8", old="# coding: latin-1", operation="search_replace")
    assert refused("# coding: latin-1\nx = 1\n", other).code == "GBE311"


@pytest.mark.parametrize(
    ("text", "target", "new", "gone", "come"),
    [
        (
            "a = 1\r\nb = 2\nc = 3\rdef f():\r\n    return 1\r\nd = 4\n",
            "f",
            "def f():\n    return 2",
            "1\r\nd",
            "2\r\nd",
        ),
        (
            'x = "ä🐍"\n\nclass Ä:\n    s = "é"; t = 1\n    def ö(self): return 1  # ü\n',
            "Ä.ö",
            "def ö(self): return '🐍'",
            " 1  #",
            " '🐍'  #",
        ),
        (
            "a = 1\n\f\nclass A:\n\tdef f(self):\n\t\treturn 1\n\f\n\tdef g(self): 2\n",
            "A.f",
            "def f(self):\n\treturn 3",
            "n 1",
            "n 3",
        ),
        ("def f():\n    return 0\n", "f", "@cached\nasync def f():\n    return 0", "def", "@cached\nasync def"),
    ],
    ids=["mixed line ends", "characters outside of ASCII", "form feeds and tabs", "decorated and async"],
)
def test_what_is_around_a_symbol_stays(text: str, target: str, new: str, gone: str, come: str) -> None:
    assert edit(text, target, new) == text.replace(gone, come)


@pytest.mark.parametrize(
    ("new", "code", "says"),
    [
        ("def other(): pass", "GBE309", "function other"),
        ("def helper(): pass\ndef more(): pass", "GBE309", "the function helper, the function more"),
        ("helper = 1", "GBE309", "an assignment"),
        ("", "GBE309", "empty"),
        ("def helper(:", "GBE309", "not valid Python"),
        ("  def helper(): pass\nx = 1", "GBE309", "not valid Python"),
        ("  if a: pass\n  else: pass", "GBE309", "the statement `if`"),
        ("def helper():\n    return 0", "GBE304", "has no effect"),
        ("def helper():\n    return '\udcff'", "GBE309", "utf-8"),
    ],
)
def test_new_code_that_is_not_the_one_definition_is_refused(new: str, code: str, says: str) -> None:
    error = refused(SHOP, change("helper", new, old="def helper():\n    return 0"))
    assert error.code == code
    assert says in str(error)


# --- the text that a change was written for ------------------------------------------------


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("old", ["def helper():\n    return 0", "def helper():\r\n    return 0\r\n"])
def test_the_quoted_text_may_have_other_line_ends(old: str) -> None:
    apply_change(SHOP.encode(), change("helper", "def helper(): pass", old=old))


@pytest.mark.parametrize("old", ["def helper():\n    return 7", "def helper():", "  def helper():\n    return 0", "x"])
def test_a_change_written_for_another_text_is_refused(old: str) -> None:
    error = refused(SHOP, change("helper", "def helper(): pass", old=old))
    assert error.code == "GBE303"
    if old.endswith("7"):
        assert error.hint == (
            "Read the file again, then write the change for its current code. "
            "Line 30 is now 'return 0'; the change has 'return 7'."
        )


@pytest.mark.parametrize(
    ("operation", "target", "quoted", "new"),
    [
        ("replace_symbol", "helper", "def helper():\n    return 0", "def helper(): pass"),
        ("add_symbol", "Shop.Till.more", symbol_text(SHOP.encode(), "Shop.Till"), "def more(self): pass"),
        ("search_replace", "", SHOP, "    return 7"),
    ],
)
def test_a_digest_may_stand_for_the_quoted_text(operation: str, target: str, quoted: str, new: str) -> None:
    old = "    return 0" if operation == "search_replace" else ""
    apply_change(SHOP.encode(), change(target, new, old, operation, base_sha256=digest(quoted)))
    assert refused(SHOP, change(target, new, old, operation, base_sha256=digest("x"))).code == "GBE303"


@pytest.mark.parametrize("operation", ["replace_symbol", "delete_symbol", "set_decorator_argument", "search_replace"])
def test_a_change_that_does_not_say_what_it_was_written_for_is_refused(operation: str) -> None:
    assert refused(SHOP, change("Shop.sell", "second(a=2)", operation=operation)).code == "GBE313"


@pytest.mark.parametrize(
    "data",
    [
        b"def f(:\n",
        b"# coding: no-such-codec\ndef f(): pass\n",
        b"a = 1\nb = 2\ndef f(): return '\xff'\n",
        b"def f(): pass\n\0",
        b"\xef\xbb\xbf# coding: latin-1\ndef f(): pass\n",
        b"# coding: utf-7\ndef f(): return '+AGE-'\n",
        b"def f(): return " + b"(" * 500 + b")" * 500 + b"\n",
    ],
    ids=["syntax", "unknown codec", "not UTF-8", "null byte", "mark against line", "unfaithful", "deep"],
)
def test_a_file_that_cannot_be_read_is_refused(data: bytes) -> None:
    assert refused(data, change("f", "def f(): return 1", old="-")).code == "GBE312"


# --- adding and deleting -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "new", "expected"),
    [
        ("", "f", "def f(): pass", "def f(): pass\n"),
        ("#!/bin/py\n# coding: utf-8\n", "f", "def f(): pass", "#!/bin/py\n# coding: utf-8\n\n\ndef f(): pass\n"),
        ("a = 1", "f", "def f(): pass", "a = 1\n\n\ndef f(): pass\n"),
        ("a = 1\r\n", "f", "def f(): pass", "a = 1\r\n\r\n\r\ndef f(): pass\r\n"),
        (
            "a = 1\nif __name__ == '__main__': a()\n",
            "f",
            "def f(): pass",
            "a = 1\n\n\ndef f(): pass\nif __name__ == '__main__': a()\n",
        ),
        (
            "class A:\n  x = 1\n\n\nb = 2\n",
            "A.f",
            "def f(self):\n    pass",
            "class A:\n  x = 1\n\n  def f(self):\n    pass\n\n\nb = 2\n",
        ),
    ],
)
def test_a_definition_is_added_at_the_end_of_its_block(text: str, target: str, new: str, expected: str) -> None:
    assert edit(text, target, new, "add_symbol") == expected


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("Shop.sell", "GBE310"),
        ("Shop.limit", "GBE310"),
        ("os", "GBE310"),
        ("Shop.Till.open.inner", "GBE315"),
        ("Nothing.f", "GBE301"),
    ],
)
def test_a_name_that_is_taken_or_has_no_place_is_refused(target: str, code: str) -> None:
    name = target.rpartition(".")[2]
    assert refused(SHOP, change(target, f"def {name}(self): pass", operation="add_symbol")).code == code


@pytest.mark.parametrize(
    "binding",
    [
        *(
            "f = 1",
            "f: int = 1",
            "import f.g",
            "from x import f",
            "import x as f",
            "for f in y: pass",
            "with y as f: pass",
        ),
        *("try: pass\nexcept E as f: pass", "match y:\n    case [*f]: pass", "if (f := 1): pass", "class f: pass"),
    ],
)
def test_every_way_of_binding_a_name_counts(binding: str) -> None:
    assert refused(binding + "\n", change("f", "def f(): pass", operation="add_symbol")).code == "GBE310"


@pytest.mark.parametrize(
    "other", ["x = [f for f in y]", "x = lambda f: f", "def g(f): f = 1", "f.g = 1", "from x import f as g"]
)
def test_names_of_other_scopes_do_not_count(other: str) -> None:
    assert edit(other + "\n", "f", "def f(): pass", "add_symbol").startswith(other)


def test_a_deleted_symbol_leaves_with_its_lines_and_its_comment() -> None:
    result = edit(SHOP, "Shop.buy", "", "delete_symbol")
    assert "bought" not in result
    assert "return item  # sold\n\n    class Till:" in result
    assert edit("a = 1\n\n\ndef f(): pass", "f", "", "delete_symbol") == "a = 1\n"
    only = change("A.f", old="def f(self): pass", operation="delete_symbol")
    assert refused("class A:\n    def f(self): pass\n", only).code == "GBE315"


# --- decorator arguments -------------------------------------------------------------------

CONTRACT = """\
class A:
    @schema_method(
        input_schema={"a": int},  # in
        output_schema={"b": str},
    )
    @subscribe("/Old/Topic")
    @plain
    @depends_on()
    @late(
        1  # one
    )
    def f(self): pass
"""


@pytest.mark.parametrize(
    ("new", "old_line", "new_line"),
    [
        ('schema_method(input_schema={"a": str})', '{"a": int},  # in', '{"a": str},  # in'),
        ('@schema_method(title="T")', '{"b": str},\n', '{"b": str}, title="T"\n'),
        ('subscribe("/New/Topic")', "/Old/Topic", "/New/Topic"),
        ('subscribe("/Old/Topic", retries=3)', '"/Old/Topic")', '"/Old/Topic", retries=3)'),
        ('subscribe("/Old/Topic", "/More")', '"/Old/Topic")', '"/Old/Topic", "/More")'),
        ("plain(x=1)", "@plain", "@plain(x=1)"),
        ('depends_on("B", "C")', "depends_on()", 'depends_on("B", "C")'),
        ("late(b=2)", "1  #", "1, b=2  #"),
    ],
)
def test_an_argument_of_a_decorator_is_set_and_the_rest_stays(new: str, old_line: str, new_line: str) -> None:
    assert edit(CONTRACT, "A.f", new, "set_decorator_argument") == CONTRACT.replace(old_line, new_line)


@pytest.mark.parametrize(
    ("text", "new", "says"),
    [
        (CONTRACT, "missing(a=1)", "does not have it"),
        (CONTRACT, "schema_method", "are not a call"),
        (CONTRACT, "schema_method(", "not valid Python"),
        (CONTRACT, "schema_method()", "single values or keywords"),
        (CONTRACT, "schema_method(**x)", "single values or keywords"),
        (CONTRACT, "a(b=1)\nc(d=2)", "are not a call"),
        (CONTRACT, 'schema_method({"a": int})', "cannot be matched"),
        ("class A:\n    @s('a')\n    @s('b')\n    def f(self): pass\n", "s('c')", "it occurs 2 times"),
        ("class A:\n    @s(*a)\n    def f(self): pass\n", "s('c')", "cannot be matched"),
    ],
)
def test_arguments_that_cannot_be_set_one_by_one_are_refused(text: str, new: str, says: str) -> None:
    old = symbol_text(text.encode(), "A.f")
    error = refused(text, change("A.f", new, old=old, operation="set_decorator_argument"))
    assert error.code == "GBE314"
    assert says in str(error)


# --- imports -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("", "import a", "import a\n"),
        ("import b\nx = 1\n", "import a", "import b\nimport a\nx = 1\n"),
        ("import b; x = '''\n'''\ny = 2\n", "import a", "import b; x = '''\n'''\nimport a\ny = 2\n"),
        ('"""Doc."""\nx = 1\n', "import a", '"""Doc."""\n\nimport a\n\nx = 1\n'),
        ('"""Doc."""\n\nx = 1\n', "import a", '"""Doc."""\n\nimport a\n\nx = 1\n'),
        ("#!/bin/py\n# coding: utf-8\nx = 1\n", "import a", "#!/bin/py\n# coding: utf-8\n\nimport a\n\nx = 1\n"),
        ("x = 1\n", "from __future__ import annotations", "from __future__ import annotations\n\nx = 1\n"),
        ("import b", "import a", "import b\nimport a\n"),
        ("import b\r\n", "from a import c, d as e", "import b\r\nfrom a import c, d as e\r\n"),
        ("import os\n", "import os.path", "import os\nimport os.path\n"),
        ("import b\n", "import a\nimport b\nfrom c import d", "import b\nimport a\nfrom c import d\n"),
        ("from t import a\n", "from t import a, b", "from t import a\nfrom t import a, b\n"),
    ],
)
def test_an_import_goes_behind_those_at_the_head(text: str, new: str, expected: str) -> None:
    assert apply_change(text.encode(), change("", new, operation="add_import")).decode() == expected


@pytest.mark.parametrize(
    ("text", "new", "code"),
    [
        ("from a import b, c\n", "from a import c", "GBE304"),
        ("from a import b\n", "from z import b", "GBE310"),
        ("b = 1\n", "import b", "GBE310"),
        ("import x as os\n", "import os", "GBE310"),
        ("from x import os\n", "import os.path", "GBE310"),
        ("", "import a\nx = 1", "GBE309"),
        ("", "", "GBE309"),
        ("", "import", "GBE309"),
    ],
)
def test_an_import_that_is_none_or_is_there_or_hides_a_name_is_refused(text: str, new: str, code: str) -> None:
    assert refused(text, change("", new, operation="add_import")).code == code


# --- search and replace --------------------------------------------------------------------


def search(text: str, old: str, new: str, target: str = "") -> str:
    return apply_change(text.encode(), change(target, new, old, "search_replace")).decode()


BODY = (
    "class A:\n    def f(self):\n        a = 1   \n        b = 2\n        c = 3\n        return a\n"
    "    def g(self):\n        a = 1\n"
)


@pytest.mark.parametrize(
    ("old", "new", "gone", "come"),
    [
        ("b = 2", "b = 5", "b = 2", "b = 5"),
        ("        a = 1\n        b = 2\n", "        b = 5\n", "        a = 1   \n        b = 2", "        b = 5"),
        ("b = 2\nc = 3", "b = 2\nif b:\n    c = 4", "c = 3", "if b:\n            c = 4"),
        ("            b = 2\n            c = 3", "            c = 4", "        b = 2\n        c = 3", "        c = 4"),
        ("        b = 2\n", "", "        b = 2\n", ""),
        ("b = 2\nc = 3", 'b = """\nleft\n"""\nc = 3', "b = 2", 'b = """\nleft\n"""'),
        ("c = 3", "log()\nc = 3", "c = 3", "log()\n        c = 3"),
    ],
    ids=["exact", "trailing blanks", "shifted right", "shifted left", "removed", "with a string", "a flat line"],
)
def test_a_quoted_text_is_found_on_each_rung(old: str, new: str, gone: str, come: str) -> None:
    assert search(BODY, old, new, "A.f") == BODY.replace(gone, come, 1)


@pytest.mark.parametrize(
    ("old", "code"),
    [
        ("a = 1", "GBE308"),
        ("        a = 1  \n        b = 2\n", "GBE306"),
        ("    a = 1 \n", "GBE308"),
        ("b = 3", "GBE307"),
        ("b = 2\n\nc = 3", "GBE307"),
        ("b = 2\n  c = 3", "GBE307"),
        ("        b = 2\n        ...\n        return a", "GBE307"),
        ("   \n", "GBE313"),
    ],
)
def test_a_quoted_text_that_is_not_there_exactly_once_is_refused(old: str, code: str) -> None:
    assert refused(BODY, change("", "x = 1\n...\ny = 2", old, "search_replace")).code == code


def test_the_nearest_lines_are_shown() -> None:
    assert (
        refused(BODY, change("A.f", "x", "retrun a", "search_replace")).hint
        == "Quote the text exactly as it is in the file. The most similar lines: line 6 'return a'."
    )
    assert "No line is similar" in refused(BODY, change("A.f", "x", "zzzz", "search_replace")).hint


def test_a_search_stays_inside_its_symbol() -> None:
    assert search(BODY, "a = 1", "a = 9", "A.g") == BODY[:-6] + "a = 9\n"


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ("return a", "return a\n    x = 1", {"GBE305"}),
        ("def f(self)", "def h(self)", {"GBE305"}),
        ("def f(self)", "def g(self)", {"GBE305"}),
        ("f(self):", "f(self): pass\n    def f(self):", {"GBE305", "GBE306"}),
        ("return a", "return (", {"GBE306"}),
    ],
)
def test_a_replacement_that_leaves_its_symbol_is_refused(old: str, new: str, codes: set[str]) -> None:
    assert refused(BODY, change("A.f", new, old, "search_replace")).code in codes


def test_only_the_matched_lines_change_in_a_file_with_mixed_line_ends() -> None:
    data = b"a = 1\r\nb = 2\nc = 3\r\nd = 4\r\ne = 5\n"
    result = apply_change(data, change("", "c = 7\nx = 8", "c = 3", "search_replace"))
    assert result == b"a = 1\r\nb = 2\nc = 7\r\nx = 8\r\nd = 4\r\ne = 5\n"


def test_a_shifted_replacement_inside_a_string_or_with_a_quoted_one_moves_as_a_whole() -> None:
    text = 'def f():\n    """Doc.\n\n    one\n    two\n    """\n    return 1\n'
    assert search(text, "one\ntwo\n", "one\nthree\n") == text.replace("two", "three")
    string = 'def f():\n    x = """\n    kept\n    """\n    return x\n'
    old = 'x = """\nkept\n"""\n'
    assert search(string, old, f"{old}y = 1\n") == string.replace("    return", "    y = 1\n    return")


# --- the proof that nothing else changed, and diffs ----------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("x = 1", "x = 1.0", 1),
        ("x = 0.0", "x = -0.0", 1),
        ("x = 1", "x = True", 1),
        ("x = f(a)", "x = f(a, b)", 1),
        ("a = 1\nb = 2", "a = 1\nc = 0\nb = 2", 2),
        ("a = 1", "a = 1\ndef f(): pass", 2),
        ("a: int", "a: int = 1", 1),
        ("a = 1\nb = 2", "a = 1", 1),
    ],
)
def test_every_difference_of_two_trees_is_found(old: str, new: str, line: int) -> None:
    assert first_difference(ast.parse(old), ast.parse(old)) is None
    assert first_difference(ast.parse(old), ast.parse(new)) == line


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc\n", b"a\nx\nc\n"),
        (b"a\nb", b"a\nx"),
        (b"a\n", b"a"),
        (b"a", b"a\n"),
        (b"a\r\nb\r\n", b"a\r\nx\r\n"),
        (b"", b"a\n"),
        ("ä\u2028\fb\n".encode(), "ä\u2028\fc\n".encode()),
    ],
)
def test_a_diff_can_be_applied_by_git(before: bytes, after: bytes, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(before)
    diff = unified_diff("f.py", before, after).encode()
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=tmp_path, input=diff, check=True)
    assert (tmp_path / "f.py").read_bytes() == after
    assert unified_diff("f.py", after, after) == ""


def test_a_diff_of_what_is_no_text_shows_what_can_be_shown() -> None:
    assert "-\ufffd" in unified_diff("f.py", b"\xff\n", b"a\n")


def test_lines_that_go_take_their_line_ends_along() -> None:
    assert apply_change(b"a = 1  \nb = 2\n", change("", "", "a = 1\nb = 2", "search_replace")) == b""
    assert apply_change(b"x\na = 1  \nb = 2\ny\n", change("", "", "a = 1\nb = 2", "search_replace")) == b"x\ny\n"


def test_a_shifted_replacement_that_ends_a_string_moves_as_a_whole() -> None:
    source = b'def f():\n    """One\n    two\n    """\n    return 1\n'
    fresh = apply_change(source, change("", 'three\n"""', 'two\n"""', "search_replace"))
    assert fresh == source.replace(b"two", b"three")


def test_a_new_definition_may_come_with_what_its_author_saw() -> None:
    added = change("h", "def h(): ...", "import os", "add_symbol")
    assert b"def h(): ..." in apply_change(b"import os\n", added)


def test_a_digest_may_be_one_of_whole_lines() -> None:
    text = "def g():\n    return 2\n"
    seen = change("g", "def g(): ...", base_sha256=hashlib.sha256(text.encode()).hexdigest())
    assert apply_change(text.encode(), seen) == b"def g(): ...\n"
