"""New statements for a function: its decorators, signature and docstring stay, and nothing of the old statements does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from graphbus_core.editing.edits import apply_change, complete_definition, symbol_text
from graphbus_core.errors import EditError
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import CodeChange

SOURCE = '''\
class A:
    def one_line(self, a,
                 b): return 3

    @known
    def decorated(self):  # noqa
        # why
        @wraps(self.x)
        def inner(): pass
        return inner

    async def told(self):
        """Doc
        more"""
        # comment
        return 1
'''

ONE_LINE = "def one_line(self, a,\n                 b):\n"
TOLD = 'async def told(self):\n        """Doc\n        more"""\n'


def _changed(target: str, code: str, source: str = SOURCE) -> str:
    change = CodeChange(
        file_path="a.py", target=f"A.{target}", change_type="modify", operation="replace_symbol", new_code=code
    )
    data = source.encode()
    whole = replace(complete_definition(data, change), old_code=symbol_text(data, change.target))
    return symbol_text(apply_change(data, whole), change.target)


@pytest.mark.parametrize(
    ("target", "code", "expected"),
    [
        ("one_line", "return 4", ONE_LINE + "        return 4"),
        ("one_line", "def one_line(\n    self, a, b,\n): return 4", ONE_LINE + "        return 4"),
        ("decorated", "return 4", "@known\n    def decorated(self):  # noqa\n        return 4"),
        (
            "decorated",
            "def decorated(self):\n    @lru_cache\n    def x(): return 1\n    return x()",
            "@known\n    def decorated(self):  # noqa\n        @lru_cache\n        def x(): return 1\n        return x()",
        ),
        ("told", "return 2", TOLD + '        return 2'),
        ("told", '"""New."""\nreturn 2', 'async def told(self):\n        """New."""\n        return 2'),
        ("told", "x = 1\n        return x", TOLD + '        x = 1\n        return x'),
        ("told", 'x = """a\nb"""', TOLD + '        x = """a\nb"""'),
        ("told", "def told(self): return 'é'; x = 1", TOLD + '        return \'é\'; x = 1'),
    ],
)  # fmt: skip
def test_the_new_statements_take_the_place_of_the_old_ones(target: str, code: str, expected: str) -> None:
    assert _changed(target, code) == expected
    assert _changed(target, code, SOURCE.replace("\n", "\r\n")).replace("\r\n", "\n") == expected


@pytest.mark.parametrize("code", ["return (", "  x = 1\n y = 2", "class A:\nreturn 1"])
def test_code_that_does_not_parse_is_refused_with_a_code(code: str) -> None:
    with pytest.raises(EditError):
        _changed("told", code)


def test_a_class_has_no_statements_of_a_function() -> None:
    change = CodeChange(
        file_path="a.py", target="A", change_type="modify", operation="replace_symbol", new_code="x = 1"
    )
    with pytest.raises(EditError, match="meant for a class"):
        complete_definition(SOURCE.encode(), change)


@pytest.mark.parametrize("code", ["return 2", "return 2  # two", "x = 1\nreturn self.a  # type: ignore # why"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n    # next\r\n"])
def test_a_comment_behind_the_last_line_is_replaced_if_it_is_quoted(code: str, end: str) -> None:
    data = f"class A:\n    def f(self):\n        return self.a  # type: ignore # why{end}".encode()
    change = CodeChange(file_path="a.py", target="A.f", change_type="modify", operation="replace_symbol", new_code=code)
    quoted = symbol_text(data, change.target, has_comment=True)
    whole = replace(complete_definition(data, change), old_code=quoted, base_sha256=sha256_hex(quoted.encode()))

    assert apply_change(data, whole).decode().endswith(code.rpartition("\n")[2] + end)
