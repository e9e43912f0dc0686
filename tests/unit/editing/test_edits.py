"""Edits of one file: what they change, what they leave alone, and what they refuse."""

from __future__ import annotations

import ast
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.edits import apply_change, find_symbol, symbol_text, unified_diff
from graphbus_core.editing.text.source_text import first_difference
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange

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
        ("Shop.Till", "class Till", '"""'),
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
        "@(a\n @ b)\ndef f(): pass",
    ],
)
def test_a_decorator_is_found_however_it_is_written(decorated: str) -> None:
    text = f"x = 1\n{decorated}\n"

    assert symbol_text(text.encode(), "f") == decorated.lstrip("\f")


@pytest.mark.parametrize(
    "text",
    [
        "def f(): pass\ndef f(): pass\n",
        "if x:\n    def f(): pass\nelse:\n    def f(): pass\n",
        "try:\n    def f(): pass\nexcept E:\n    def f(): pass\nfinally:\n    pass\n",
        "match x:\n    case 1:\n        def f(): pass\n    case 2:\n        def f(): pass\n",
        "@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\ndef f(a): return a\n",
        "with a:\n    def f(): pass\nfor b in c:\n    def f(): pass\n",
    ],
)
def test_a_name_with_several_definitions_is_refused(text: str) -> None:
    error = refused(text, change("f", "def f(): return 1", old="def f(): pass"))

    assert error.code == "GBE302"
    assert "1" in str(error) or "2" in str(error)


def test_property_getter_and_setter_are_ambiguous() -> None:
    text = "class A:\n    @property\n    def x(self): return 1\n    @x.setter\n    def x(self, v): pass\n"

    assert refused(text, change("A.x", "def x(self): return 2", old="-")).code == "GBE302"


def test_an_unknown_symbol_is_refused_with_the_names_that_there_are() -> None:
    error = refused(SHOP, change("Shop.sel", "def sel(self): pass", old="-"))

    assert error.code == "GBE301"
    assert "Did you mean 'Shop.sell'?" in str(error)
    assert "Shop.Till.open" in error.hint


def test_many_names_are_cut_short_and_none_is_said() -> None:
    many = "".join(f"def f{n}(): pass\n" for n in range(20))

    assert refused(many, change("x", "def x(): pass", old="-")).hint.endswith("....")
    assert "no definitions" in refused("a = 1\n", change("x", "def x(): pass", old="-")).hint


def test_a_function_inside_a_function_is_no_symbol_of_the_file() -> None:
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


def test_strings_stay_when_indented_code_moves_to_the_left() -> None:
    new = '    def helper():\n        return """\n        kept"""'

    assert 'def helper():\n    return """\n        kept"""' in edit(SHOP, "helper", new)


def test_blank_lines_and_comments_to_the_left_are_left_alone() -> None:
    new = "def sell(self, item):\n\n    # why\n    return (1 +\n2)"

    assert "    def sell(self, item):\n\n        # why\n        return (1 +\n    2)  # sold\n" in edit(
        SHOP, "Shop.sell", new
    )


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark_survive(newline: str, mark: bytes) -> None:
    data = mark + SHOP.replace("\n", newline).encode()
    start, end = find_symbol(data, "Shop.sell")

    result = apply_change(
        data, change("Shop.sell", "def sell(self, item):\n    return 1", old=symbol_text(data, "Shop.sell"))
    )

    assert result[:start] == data[:start]
    assert result.endswith(data[end:])
    assert result[start:].startswith(f"def sell(self, item):{newline}        return 1".encode())


def test_mixed_line_ends_outside_of_the_symbol_survive() -> None:
    data = b"a = 1\r\nb = 2\nc = 3\rdef f():\r\n    return 1\r\nd = 4\n"

    result = apply_change(data, change("f", "def f():\n    return 2", old="def f():\n    return 1"))

    assert result == b"a = 1\r\nb = 2\nc = 3\rdef f():\r\n    return 2\r\nd = 4\n"


def test_the_encoding_of_the_coding_line_is_kept() -> None:
    data = "# coding: latin-1\ns = 'é'\ndef f():\n    return 'é'\ndef g(): return 'ü'\n".encode("latin-1")

    result = apply_change(data, change("f", "def f():\n    return 'ß'", old="def f():\n    return 'é'"))

    assert result == data.replace(b"    return '\xe9'", b"    return '\xdf'")


def test_characters_outside_of_ascii_before_a_symbol_do_not_move_it() -> None:
    text = 'x = "äöü🐍"\n\nclass Ä:\n    s = "é"; t = 1\n    def ö(self): return "ä"  # ü\n'

    assert edit(text, "Ä.ö", 'def ö(self): return "🐍"') == text.replace('return "ä"', 'return "🐍"')


def test_form_feeds_and_tabs_survive() -> None:
    text = "a = 1\n\f\nclass A:\n\tdef f(self):\n\t\treturn 1\n\f\n\tdef g(self):\n\t\treturn 2\n"

    assert edit(text, "A.f", "def f(self):\n\treturn 3") == text.replace("return 1", "return 3")


def test_a_decorator_can_be_added_and_removed() -> None:
    result = edit(SHOP, "helper", "@cached\ndef helper():\n    return 0")

    assert "\n\n\n@cached\ndef helper():\n    return 0\n" in result
    assert edit(result, "helper", "def helper():\n    return 0") == SHOP


def test_a_function_may_become_async() -> None:
    assert "async def helper():" in edit(SHOP, "helper", "async def helper():\n    return 0")


def test_a_comment_before_the_new_definition_is_kept() -> None:
    assert "# why\ndef helper(): pass" in edit(SHOP, "helper", "# why\ndef helper(): pass")


# --- refusals of replace_symbol ----------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "code", "says"),
    [
        ("def other(): pass", "GBE309", "FunctionDef other"),
        ("def helper(): pass\ndef more(): pass", "GBE309", "FunctionDef helper, FunctionDef more"),
        ("helper = 1", "GBE309", "Assign"),
        ("", "GBE309", "nothing"),
        ("def helper(:", "GBE309", "no Python"),
        ("  def helper(): pass\nx = 1", "GBE309", "no Python"),
        ("  if a: pass\n  else: pass", "GBE309", "If"),
        ("def helper():\n    return 0", "GBE304", "changes nothing"),
        ("def helper():\n    return '\udcff'", "GBE309", "utf-8"),
    ],
)
def test_new_code_that_is_not_the_one_definition_is_refused(new: str, code: str, says: str) -> None:
    error = refused(SHOP, change("helper", new, old="def helper():\n    return 0"))

    assert error.code == code
    assert says in str(error)


@pytest.mark.parametrize(
    "old",
    [
        "def helper():\n    return 0",
        "def helper():\r\n    return 0\r\n",
        "def helper():\n    return 0\n",
    ],
)
def test_the_quoted_text_may_have_other_line_ends(old: str) -> None:
    apply_change(SHOP.encode(), change("helper", "def helper(): pass", old=old))


def test_the_quoted_text_may_have_the_indentation_of_its_first_line() -> None:
    old = "    async def buy(self): return 1"

    result = apply_change(SHOP.encode(), change("Shop.buy", "async def buy(self): return 2", old=old))

    assert b"async def buy(self): return 2  # bought" in result


@pytest.mark.parametrize("old", ["def helper():\n    return 1", "def helper():", "  def helper():\n    return 0", "x"])
def test_a_change_written_for_another_text_is_refused(old: str) -> None:
    error = refused(SHOP, change("helper", "def helper(): pass", old=old))

    assert error.code == "GBE303"
    assert "is now" in error.hint


def test_the_first_differing_line_is_shown() -> None:
    error = refused(SHOP, change("helper", "def helper(): pass", old="def helper():\n    return 7"))

    assert error.hint == "Line 30 is now 'return 0'; the change has 'return 7'."


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_digest_may_stand_for_the_quoted_text() -> None:
    sha = digest("def helper():\n    return 0")

    apply_change(SHOP.encode(), change("helper", "def helper(): pass", base_sha256=sha))
    assert refused(SHOP, change("helper", "def helper(): pass", base_sha256=digest("x"))).code == "GBE303"


def test_a_digest_of_another_text_is_refused_although_the_quoted_text_is_right() -> None:
    old = "def helper():\n    return 0"

    assert refused(SHOP, change("helper", "def helper(): pass", old=old, base_sha256=digest("x"))).code == "GBE303"


@pytest.mark.parametrize("operation", ["replace_symbol", "delete_symbol", "set_decorator_argument", "search_replace"])
def test_a_change_that_does_not_say_what_it_was_written_for_is_refused(operation: str) -> None:
    assert refused(SHOP, change("Shop.sell", "second(a=2)", operation=operation)).code == "GBE313"


@pytest.mark.parametrize(
    "data",
    [
        b"def f(:\n",
        b"# coding: no-such-codec\ndef f(): pass\n",
        b"def f(): return '\xff'\n",
        b"def f(): pass\n\0",
        b"\xef\xbb\xbf# coding: latin-1\ndef f(): pass\n",
        b"a = 1\nb = 2\ndef f(): return '\xff'\n",
        b"# coding: utf-7\ndef f(): return '+AGE-'\n",
        b"def f(): return " + b"(" * 500 + b")" * 500 + b"\n",
    ],
    ids=[
        "syntax",
        "unknown codec",
        "not UTF-8",
        "null byte",
        "mark against line",
        "not UTF-8 below",
        "unfaithful",
        "deep",
    ],
)
def test_a_file_that_cannot_be_read_is_refused(data: bytes) -> None:
    assert refused(data, change("f", "def f(): return 1", old="-")).code == "GBE312"


def test_a_change_of_the_coding_line_is_refused() -> None:
    text = "# coding: utf-8\nx = 1\n"

    error = refused(text, change("", "# coding: latin-1", old="# coding: utf-8", operation="search_replace"))

    assert error.code == "GBE311"


def test_text_after_the_symbol_that_would_be_swallowed_is_refused() -> None:
    text = "class A:\n    def f(self): return 1;\n"

    error = refused(text, change("A.f", "def f(self): return 2 \\", old="def f(self): return 1;"))

    assert error.code == "GBE309"


def test_characters_that_the_encoding_lacks_are_refused() -> None:
    data = "# coding: latin-1\ndef f(): return 'é'\n".encode("latin-1")

    error = refused(data, change("f", "def f(): return '🐍'", old="def f(): return 'é'"))

    assert error.code == "GBE311"
    assert "iso-8859-1" in str(error)


# --- adding ------------------------------------------------------------------------------


def test_a_method_is_added_at_the_end_of_its_class() -> None:
    result = edit(SHOP, "Shop.Till.close", "def close(self):\n    pass", "add_symbol")

    assert '    code = 1\n"""\n\n        def close(self):\n            pass\n\n\ndef helper' in result


def test_a_function_is_added_before_the_main_guard() -> None:
    result = edit(SHOP, "more", "def more():\n    pass", "add_symbol")

    assert "    return 0\n\n\ndef more():\n    pass\n\n\nif __name__" in result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "def f(): pass\n"),
        ("# only a comment\n", "def f(): pass\n# only a comment\n"),
        ("#!/usr/bin/env python\n# coding: utf-8\n", "#!/usr/bin/env python\n# coding: utf-8\n\n\ndef f(): pass\n"),
        ("a = 1", "a = 1\n\n\ndef f(): pass\n"),
        ("a = 1\r\n", "a = 1\r\n\r\n\r\ndef f(): pass\r\n"),
        ("if __name__ == '__main__': a()\n", "def f(): pass\nif __name__ == '__main__': a()\n"),
    ],
)
def test_a_function_is_added_to_any_module(text: str, expected: str) -> None:
    assert edit(text, "f", "def f(): pass", "add_symbol") == expected


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
        "f = 1",
        "f: int = 1",
        "import f",
        "import f.g",
        "from x import f",
        "import x as f",
        "for f in y: pass",
        "with y as f: pass",
        "try: pass\nexcept E as f: pass",
        "match y:\n    case f: pass",
        "match y:\n    case [*f]: pass",
        "if (f := 1): pass",
        "class f: pass",
    ],
)
def test_every_way_of_binding_a_name_counts(binding: str) -> None:
    error = refused(binding + "\n", change("f", "def f(): pass", operation="add_symbol"))

    assert error.code == "GBE310"


@pytest.mark.parametrize("other", ["x = [f for f in y]", "x = lambda f: f", "def g(f): f = 1", "f.g = 1", "del x"])
def test_names_of_other_scopes_do_not_count(other: str) -> None:
    assert edit(other + "\n", "f", "def f(): pass", "add_symbol").startswith(other)


def test_a_class_on_one_line_takes_no_method() -> None:
    assert refused("class A: pass\n", change("A.f", "def f(self): pass", operation="add_symbol")).code == "GBE315"


def test_an_addition_may_say_which_class_it_was_written_for() -> None:
    text = "class A:\n    x = 1\n"
    fits = change("A.f", "def f(self): pass", old="class A:\n    x = 1", operation="add_symbol")
    stale = change("A.f", "def f(self): pass", base_sha256=digest("class A: pass"), operation="add_symbol")

    assert apply_change(text.encode(), fits) == b"class A:\n    x = 1\n\n    def f(self): pass\n"
    assert refused(text, stale).code == "GBE303"


# --- deleting ----------------------------------------------------------------------------


def test_a_deleted_symbol_leaves_with_its_lines_and_its_comment() -> None:
    result = edit(SHOP, "Shop.buy", "", "delete_symbol")

    assert "bought" not in result
    assert "return item  # sold\n\n    class Till:" in result


def test_the_last_symbol_of_a_file_without_final_line_end_can_be_deleted() -> None:
    assert edit("a = 1\n\n\ndef f(): pass", "f", "", "delete_symbol") == "a = 1\n"


def test_the_only_statement_of_a_block_is_not_deleted() -> None:
    assert (
        refused(
            "class A:\n    def f(self): pass\n", change("A.f", old="def f(self): pass", operation="delete_symbol")
        ).code
        == "GBE315"
    )


def test_a_first_method_that_hides_a_docstring_is_not_deleted() -> None:
    text = 'def f(): pass\n"text"\n'

    assert edit(text, "f", "", "delete_symbol") == '"text"\n'


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
    ],
)
def test_an_argument_of_a_decorator_is_set_and_the_rest_stays(new: str, old_line: str, new_line: str) -> None:
    assert edit(CONTRACT, "A.f", new, "set_decorator_argument") == CONTRACT.replace(old_line, new_line)


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ("missing(a=1)", "there is none"),
        ("schema_method", "must be written as"),
        ("schema_method(", "do not parse"),
        ("schema_method()", "only single arguments"),
        ("schema_method(**x)", "only single arguments"),
        ("schema_method(*x)", "only single arguments"),
        ("a(b=1)\nc(d=2)", "must be written as"),
        ('schema_method({"a": int})', "do not line up"),
    ],
)
def test_arguments_that_cannot_be_set_one_by_one_are_refused(new: str, says: str) -> None:
    old = symbol_text(CONTRACT.encode(), "A.f")

    error = refused(CONTRACT, change("A.f", new, old=old, operation="set_decorator_argument"))

    assert error.code == "GBE314"
    assert says in str(error)
    assert "@schema_method, @subscribe, @plain, @depends_on" in error.hint


def test_a_decorator_that_occurs_twice_or_takes_stars_is_refused() -> None:
    twice = "@s('a')\n@s('b')\ndef f(): pass\n"
    stars = "@s(*a)\ndef f(): pass\n"
    bare = "def f(): pass\n"

    for text in (twice, stars, bare):
        old = symbol_text(text.encode(), "f")
        assert refused(text, change("f", "s('c')", old=old, operation="set_decorator_argument")).code == "GBE314"


def test_arguments_on_several_lines_are_appended_behind_the_last_one() -> None:
    text = "class A:\n    @s(\n        1  # one\n    )\n    def f(self): pass\n"

    assert edit(text, "A.f", "s(b=2)", "set_decorator_argument") == text.replace("1  #", "1, b=2  #")


# --- imports -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("", "import a", "import a\n"),
        ("import b\nx = 1\n", "import a", "import b\nimport a\nx = 1\n"),
        ("import b; x = 1\ny = 2\n", "import a", "import b; x = 1\nimport a\ny = 2\n"),
        ("import b; x = '''\n'''\ny = 2\n", "import a", "import b; x = '''\n'''\nimport a\ny = 2\n"),
        ('"""Doc."""\nx = 1\n', "import a", '"""Doc."""\n\nimport a\n\nx = 1\n'),
        ('"""Doc."""\n\nx = 1\n', "import a", '"""Doc."""\n\nimport a\n\nx = 1\n'),
        ('"""Doc."""', "import a", '"""Doc."""\n\nimport a\n'),
        ("#!/bin/py\n# coding: utf-8\nx = 1\n", "import a", "#!/bin/py\n# coding: utf-8\n\nimport a\n\nx = 1\n"),
        ("x = 1\n", "from __future__ import annotations", "from __future__ import annotations\n\nx = 1\n"),
        (
            "from __future__ import division\nimport b\n",
            "from __future__ import annotations",
            "from __future__ import division\nfrom __future__ import annotations\nimport b\n",
        ),
        ("import b", "import a", "import b\nimport a\n"),
        ("import b\r\n", "from a import c, d as e", "import b\r\nfrom a import c, d as e\r\n"),
        ("import os\n", "import os.path", "import os\nimport os.path\n"),
        ("import b\n", "import a\nimport b\nfrom c import d", "import b\nimport a\nfrom c import d\n"),
        ("from t import a\n", "from t import a, b", "from t import a\nfrom t import a, b\n"),
        ("from .x import a\n", "from ..x import b", "from .x import a\nfrom ..x import b\n"),
    ],
)
def test_an_import_goes_behind_those_at_the_head(text: str, new: str, expected: str) -> None:
    result = apply_change(text.encode(), change("", new, operation="add_import"))

    assert result.decode() == expected


@pytest.mark.parametrize(
    ("text", "new", "code"),
    [
        ("import a\n", "import a", "GBE304"),
        ("from a import b, c\n", "from a import c", "GBE304"),
        ("from a import b\n", "from z import b", "GBE310"),
        ("b = 1\n", "import b", "GBE310"),
        ("import x as os\n", "import os", "GBE310"),
        ("from x import os\n", "import os.path", "GBE310"),
        ("", "x = 1", "GBE309"),
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
        (
            "b = 2\nc = 3",
            "b = 2\nif b:\n    c = 4",
            "        b = 2\n        c = 3",
            "        b = 2\n        if b:\n            c = 4",
        ),
        ("            b = 2\n            c = 3", "            c = 4", "        b = 2\n        c = 3", "        c = 4"),
        (
            "def f(self):\n    a = 1\n    ...\n    return a",
            "def f(self):\n    a = 7\n    ...\n    return b",
            None,
            None,
        ),
        ("        b = 2\n", "", "        b = 2\n", ""),
    ],
    ids=["exact", "trailing blanks", "shifted right", "shifted left", "elision", "removed"],
)
def test_a_quoted_text_is_found_on_each_rung(old: str, new: str, gone: str | None, come: str) -> None:
    result = search(BODY, old, new, "A.f")

    if gone is None:
        assert result == BODY.replace("a = 1   ", "a = 7").replace("return a", "return b")
    else:
        assert result == BODY.replace(gone, come, 1)


@pytest.mark.parametrize(
    ("old", "code"),
    [
        ("a = 1", "GBE308"),
        ("        a = 1  \n        b = 2\n", "GBE306"),
        ("    a = 1 \n", "GBE308"),
        ("b = 3", "GBE307"),
        ("zzzzzzzz", "GBE307"),
        ("b = 2\n\nc = 3", "GBE307"),
        ("b = 2\n  c = 3", "GBE307"),
        ("...\n        b = 2", "GBE307"),
        ("        b = 2\n...\n\n", "GBE307"),
        ("        return a\n...\n        b = 2", "GBE307"),
        ("        b = 2\n...\n        zz = 1", "GBE307"),
        ("        b = 2\n...\n    return a", "GBE307"),
        ("        b = 2\n...\n        a = 1", "GBE308"),
        ("   \n", "GBE313"),
    ],
)
def test_a_quoted_text_that_is_not_there_exactly_once_is_refused(old: str, code: str) -> None:
    assert refused(BODY, change("", "x = 1\n...\ny = 2", old, "search_replace")).code == code


def test_an_elision_must_be_on_both_sides() -> None:
    old = "        b = 2\n        ...\n        return a"

    assert refused(BODY, change("", "        return 1", old, "search_replace")).code == "GBE307"


def test_the_nearest_lines_are_shown() -> None:
    assert refused(BODY, change("A.f", "x", "retrun a", "search_replace")).hint == "Nearest: line 6 'return a'."
    assert "No line there" in refused(BODY, change("A.f", "x", "zzzz", "search_replace")).hint


def test_a_search_stays_inside_its_symbol() -> None:
    result = search(BODY, "a = 1", "a = 9", "A.g")

    assert result == BODY[:-6] + "a = 9\n"


def test_a_search_in_a_symbol_that_reaches_the_end_of_line_comment_is_allowed() -> None:
    assert "return 1  # paid" in search(SHOP, "return 1  # bought", "return 1  # paid", "Shop.buy")


def test_a_replacement_that_leaves_its_symbol_is_refused() -> None:
    error = refused(BODY, change("A.f", "return a\n    x = 1", "return a", "search_replace"))

    assert error.code == "GBE305"
    assert "x = 1" in str(error)


@pytest.mark.parametrize(
    ("old", "new"),
    [("def f(self)", "def h(self)"), ("def f(self)", "def g(self)"), ("f(self):", "f(self): pass\n    def f(self):")],
)
def test_a_replacement_that_renames_or_doubles_its_symbol_is_refused(old: str, new: str) -> None:
    assert refused(BODY, change("A.f", new, old, "search_replace")).code in {"GBE305", "GBE306"}


def test_a_replacement_that_does_not_parse_is_refused() -> None:
    error = refused(BODY, change("A.f", "return (", "return a", "search_replace"))

    assert error.code == "GBE306"
    assert error.where is not None
    assert error.where.line in {6, 7}


def test_only_the_matched_lines_change_in_a_file_with_mixed_line_ends() -> None:
    data = b"a = 1\r\nb = 2\nc = 3\r\nd = 4\r\ne = 5\n"

    result = apply_change(data, change("", "c = 7\nx = 8", "c = 3", "search_replace"))

    assert result == b"a = 1\r\nb = 2\nc = 7\r\nx = 8\r\nd = 4\r\ne = 5\n"


def test_lines_at_the_end_are_removed_with_the_line_end_before_them() -> None:
    assert search("a = 1\nb = 2", "b = 2 \n", "") == "a = 1"


def test_the_whole_text_may_be_quoted_line_by_line() -> None:
    assert search("a = 1 ", "a = 1\n", "") == ""


def test_strings_in_a_shifted_replacement_are_not_moved() -> None:
    old = "b = 2\nc = 3"
    new = 'b = """\nleft\n"""\nc = 3'

    assert '        b = """\nleft\n"""\n        c = 3\n' in search(BODY, old, new)


def test_a_shifted_replacement_inside_a_string_moves_as_a_whole() -> None:
    text = 'def f():\n    """Doc.\n\n    one\n    two\n    """\n    return 1\n'

    assert search(text, "one\ntwo\n", "one\nthree\n") == text.replace("two", "three")


def test_a_shifted_replacement_with_an_open_string_is_refused() -> None:
    assert refused(BODY, change("", 'b = """\nc = 3', "b = 2\nc = 3", "search_replace")).code == "GBE306"


def test_a_search_may_say_which_file_it_was_written_for() -> None:
    good = change("", "b = 5", "b = 2", "search_replace", base_sha256=digest(BODY))
    stale = change("", "b = 5", "b = 2", "search_replace", base_sha256=digest("x"))

    assert b"b = 5" in apply_change(BODY.encode(), good)
    assert refused(BODY, stale).code == "GBE303"


# --- the proof that nothing else changed ---------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("x = 1", "x = 1.0", 1),
        ("x = 0.0", "x = -0.0", 1),
        ("x = 1", "x = True", 1),
        ("x = f(a)", "x = f(a, b)", 1),
        ("a = 1\nb = 2", "a = 1\nc = 0\nb = 2", 3),
        ("a = 1", "a = 1\ndef f(): pass", 2),
        ("a: int", "a: int = 1", 1),
        ("a = 1\nb = 2", "a = 1", 1),
        ("global_ = a", "global_ = b", 1),
    ],
)
def test_every_difference_of_two_trees_is_found(old: str, new: str, line: int) -> None:
    assert first_difference(ast.parse(old), ast.parse(old)) is None
    assert first_difference(ast.parse(old), ast.parse(new)) == line


# --- diffs -----------------------------------------------------------------------------------


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
    diff = unified_diff("f.py", before, after)

    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], cwd=tmp_path, input=diff.encode(), check=True, capture_output=True
    )

    assert (tmp_path / "f.py").read_bytes() == after


def test_no_difference_gives_an_empty_diff_and_odd_bytes_are_shown_somehow() -> None:
    assert unified_diff("f.py", b"a\n", b"a\n") == ""
    assert "-a" in unified_diff("f.py", b"a\n", b"\xff\n")


LAST_LINE = b"class A:\n    def f(self):\n        total = 1\n"


@pytest.mark.parametrize("new", ["log()\ntotal = 1", "log()\n        total = 1", "        log()\n        total = 1"])
def test_a_line_that_is_quoted_without_its_indentation_takes_no_other_line_out_of_its_block(new: str) -> None:
    old = "        total = 1" if new.startswith(" ") else "total = 1"
    change = CodeChange(
        file_path="a.py", target="", change_type="modify", operation="search_replace", old_code=old, new_code=new
    )
    assert apply_change(LAST_LINE, change) == b"class A:\n    def f(self):\n        log()\n        total = 1\n"


def test_a_string_that_was_quoted_shifted_is_written_back_as_it_was() -> None:
    data = b'def f():\n    x = """\n    kept\n    """\n    return x\n'
    old = 'x = """\nkept\n"""\n'
    change = CodeChange(
        file_path="a.py",
        target="",
        change_type="modify",
        operation="search_replace",
        old_code=old,
        new_code=f"{old}y = 1\n",
    )
    assert apply_change(data, change) == data.replace(b'    """\n    return', b'    """\n    y = 1\n    return')
