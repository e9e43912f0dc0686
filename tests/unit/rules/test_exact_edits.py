"""A fix changes the tokens that it is about; comments, line ends, encodings and strings stay byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from tests.checking import apply_fix, only_finding
from tests.reading import HEAD, read_files

TEXT = (
    HEAD
    + '''
class A(GraphBusNode):  # é
    """Text \\
  badly indented é
"""

    @schema_method(
        input_schema = { 'x' : int } ,   # é: the input
    )
    def f( self,x , y = [ ] ) : # keep é
        s = """é
  not code: x
"""  ;  y.append( x )   # tail
        return s


    def g(self): return "é"   # next
'''
)


def variants(text: str) -> dict[str, bytes]:
    return {
        "utf-8": text.encode(),
        "CRLF": text.replace("\n", "\r\n").encode(),
        "CR": text.replace("\n", "\r").encode(),
        "byte order mark": b"\xef\xbb\xbf" + text.encode(),
        "latin-1": b"# -*- coding: latin-1 -*-\n" + text.encode("latin-1"),
        "form feeds": text.replace("\n\n    def g", "\n\x0c\n    def g").encode(),
        "tabs": text.replace("    ", "\t").encode(),
        "no final newline": text.rstrip("\n").encode(),
    }


EXPECTED = {
    "GB201": [("self,x ,", "self,x: int ,")],
    "GB301": [
        ("y = [ ]", "y = None"),
        ('        s = """', '        if y is None:\n            y = [ ]\n        s = """'),
    ],
}


@pytest.mark.parametrize("code", EXPECTED)
@pytest.mark.parametrize("name", variants(TEXT))
def test_all_but_the_tokens_concerned_stays_byte_for_byte(tmp_path: Path, name: str, code: str) -> None:
    data = variants(TEXT)[name]
    project = read_files(tmp_path, {"agents.py": data})
    finding = only_finding(project, code)
    fix = rules.fix_for(finding, project)
    assert fix is not None
    expected = TEXT
    for old, new in EXPECTED[code]:
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert apply_fix(project, fix).source("agents.py").data == variants(expected)[name]


def test_the_change_carries_what_it_was_made_for(tmp_path: Path) -> None:
    from hashlib import sha256

    project = read_files(tmp_path, {"agents.py": TEXT})
    change = rules.fix_for(only_finding(project, "GB201"), project).changes[0]
    assert (change.file_path, change.target, change.operation) == ("agents.py", "A.f", "replace_symbol")
    assert change.old_code.startswith("@schema_method(\n")
    assert change.old_code.endswith("return s")
    assert change.base_sha256 == sha256(change.old_code.encode()).hexdigest()
