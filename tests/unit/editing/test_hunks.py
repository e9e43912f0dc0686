"""A diff of somebody else becomes edits by content, or is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.editing.edits import apply_change, unified_diff
from graphbus_core.editing.patches import changes_of_diff
from graphbus_core.errors import EditError

TEXT = """\
def first(x):
    y = x + 1
    return y


def second(x):
    y = x + 2
    return y


maximum = 1
"""


def _applied(diff: str, text: str = TEXT, path: str = "agents/a.py") -> str:
    data = text.encode()
    for change in changes_of_diff(diff, {path: text}.__getitem__):
        data = apply_change(data, change)
    return data.decode()


def _diff(new: str, old: str = TEXT) -> str:
    return unified_diff("agents/a.py", old.encode(), new.encode())


def _hunk(*lines: str, header: str = "@@ -1,1 +1,1 @@") -> str:
    return "\n".join(["--- a/agents/a.py", "+++ b/agents/a.py", header, *lines, ""])


@pytest.mark.parametrize(
    "new",
    [
        TEXT.replace("x + 2", "x + 3"),
        TEXT.replace("x + 1", "x + 10").replace("x + 2", "x + 20"),
        "import os\n\n" + TEXT,
        TEXT + "minimum = 0\n",
        TEXT.replace("maximum = 1\n", ""),
        TEXT.replace("def first(x):\n    y = x + 1\n    return y\n\n\n", ""),
        TEXT.replace("def first(x):\n", "def first(x):\n    if x:\n        return 0\n\n"),
    ],
)
def test_a_computed_diff_comes_back_as_the_same_text(new: str) -> None:
    assert _applied(_diff(new)) == new


@pytest.mark.parametrize("header", ["@@", "@@ @@", "@@ -999,7 +3,1 @@", "@@ ... @@ def second(x):", "@@ -1,3 +1,3 @@"])
def test_line_numbers_and_counts_are_not_believed(header: str) -> None:
    diff = _hunk(" def second(x):", "-    y = x + 2", "+    y = x + 5", "     return y", header=header)
    assert _applied(diff) == TEXT.replace("x + 2", "x + 5")


def test_a_blank_line_of_context_may_have_lost_its_blank() -> None:
    diff = _hunk("", "", "-maximum = 1", "+maximum = 2", header="@@ -9,3 +9,3 @@")
    assert _applied(diff) == TEXT.replace("maximum = 1", "maximum = 2")


def test_line_ends_of_the_file_stay() -> None:
    crlf = TEXT.replace("\n", "\r\n")
    assert _applied(_diff(TEXT.replace("x + 2", "x + 3")), crlf) == crlf.replace("x + 2", "x + 3")


def test_a_diff_with_crlf_fits_a_file_with_lf() -> None:
    diff = _diff(TEXT.replace("x + 2", "x + 3")).replace("\n", "\r\n")
    assert _applied(diff) == TEXT.replace("x + 2", "x + 3")


def test_a_part_of_a_longer_line_is_no_match() -> None:
    with pytest.raises(EditError) as caught:
        _applied(_hunk("-imum = 1", "+imum = 2"))
    assert caught.value.code == "GBE307"


def test_a_first_line_that_also_ends_another_line_is_refused_and_not_confused() -> None:
    text = "imum = 1\nmaximum = 1\n"
    with pytest.raises(EditError) as caught:
        _applied(_hunk("-imum = 1", "+imum = 2"), text)
    assert caught.value.code == "GBE308"


@pytest.mark.parametrize(
    ("diff", "code", "says"),
    [
        ("", "GBE316", "changes nothing"),
        ("nothing here", "GBE316", "changes nothing"),
        ("@@ -1 +1 @@\n-a\n+b\n", "GBE316", "before the name"),
        (_hunk("+y = 1", header="@@ -0,0 +1 @@"), "GBE316", "no line of the text"),
        (_hunk("-    return y", "+    return x"), "GBE308", "occurs 2 times"),
        (_hunk("-    return z", "+    return x"), "GBE307", "not in"),
        (_hunk("-maximum  =  1", "+maximum = 2"), "GBE307", "not in"),
        (
            _hunk(" def first(x):", "-    y = x + 1", "+    y = 3", "@@", "-    y = x + 1", "+    y = 4"),
            "GBE316",
            "same",
        ),
        ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n", "GBE316", "makes a new file"),
        ("--- a/agents/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n", "GBE316", "deletes a file"),
        ("--- a/agents/a.py\n+++ b/agents/b.py\n@@ -1 +1 @@\n-x\n+y\n", "GBE316", "renames"),
        ('--- "a/\\303.py"\n+++ "b/\\303.py"\n@@ -1 +1 @@\n-x\n+y\n', "GBE316", "renames"),
        ('--- "a.py"\n+++ "a.py"\n@@ -1 +1 @@\n-x\n+y\n', "GBE316", "cannot be read"),
        ("diff --git a/x b/x\nnew file mode 100644\n", "GBE316", "makes a new file"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n", "GBE316", "renames"),
        ("diff --git a/x b/x\nGIT binary patch\n", "GBE316", "binary"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "GBE316", "mode"),
    ],
)
def test_what_cannot_be_taken_by_content_is_refused(diff: str, code: str, says: str) -> None:
    with pytest.raises(EditError) as caught:
        _applied(diff)
    assert (caught.value.code, says in caught.value.sentence) == (code, True), caught.value.sentence


def test_several_files_and_a_diff_of_git(tmp_path: Path) -> None:
    files = {"a.py": TEXT, "b.py": "one = 1\ntwo = 2"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    new = {"a.py": TEXT.replace("x + 2", "x"), "b.py": "one = 1\ntwo = 3"}
    for name, text in new.items():
        (tmp_path / name).write_text(text)
    diff = subprocess.run(["git", "diff"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    changes = changes_of_diff(diff, files.__getitem__)
    after = {c.file_path: apply_change(files[c.file_path].encode(), c).decode() for c in changes}
    assert after == new


_LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "c = 3", "", "d = 4", "e = 5"]), min_size=1, max_size=12)


@given(_LINES, _LINES)
def test_a_diff_gives_exactly_the_new_text_or_a_refusal(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(old) + "\n", "\n".join(new) + "\n"
    try:
        result = _applied(_diff(after, before), before)
    except EditError:
        return
    assert result == after


@given(st.text(alphabet="@-+ \\\nab/", max_size=80))
def test_any_text_is_edits_or_a_refusal(diff: str) -> None:
    try:
        changes_of_diff(diff, lambda _path: TEXT)
    except EditError:
        return
