"""Which text a tool call of a coding agent would write."""

from __future__ import annotations

import pytest

from graphbus_core.editing.proposed import read_call
from graphbus_core.errors import EditError

TEXT = "import os\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 1\n"


def patched(*lines: str, text: str | None = TEXT) -> dict[str, str | None]:
    """The files after a patch with these lines."""
    patch = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return {file.path: file.rewrite(text) for file in read_call("apply_patch", {"command": patch})}


PATCHES = {
    "an addition": (["*** Add File: b.py", "+a = 1", "+", "+b = 2"], {"b.py": "a = 1\n\nb = 2\n"}),
    "an empty file": (["*** Add File: b.py"], {"b.py": ""}),
    "a removal": (["*** Delete File: a.py"], {"a.py": None}),
    "an update": (
        ["*** Update File: a.py", "@@", " import os", "+import sys", " "],
        {"a.py": TEXT.replace("os\n", "os\nimport sys\n")},
    ),
    "below a line": (
        ["*** Update File: a.py", "@@ def two():", "-    return 1", "+    return 2"],
        {"a.py": TEXT[: TEXT.rindex("1")] + "2\n"},
    ),
    "below two lines": (
        ["*** Update File: a.py", "@@ def one():", "@@     return 1", "-    return 1", "+    return 2"],
        {"a.py": TEXT[: TEXT.rindex("1")] + "2\n"},
    ),
    "the end of the file": (
        ["*** Update File: a.py", "@@", "-    return 1", "+    return 3", "*** End of File"],
        {"a.py": TEXT[: TEXT.rindex("1")] + "3\n"},
    ),
    "two places": (
        ["*** Update File: a.py", "-import os", "+import re", "@@ def two():", "-    return 1", "+    return 2"],
        {"a.py": TEXT[: TEXT.rindex("1")].replace("os", "re") + "2\n"},
    ),
    "lines at the end": (["*** Update File: a.py", "@@", "+x = 1"], {"a.py": TEXT + "x = 1\n"}),
    "other white space": (
        ["*** Update File: a.py", "@@", "-  return 1  ", "+    return 4"],
        {"a.py": TEXT.replace("1", "4", 1)},
    ),
    "another name": (
        ["*** Update File: a.py", "*** Move to: b.py", "@@", "-import os", "+import re"],
        {"a.py": None, "b.py": TEXT.replace("os", "re")},
    ),
    "two files": (
        ["*** Delete File: a.py", "*** Add File: b.py", "+*** Add File: c.py"],
        {"a.py": None, "b.py": "*** Add File: c.py\n"},
    ),
    "nothing": ([], {}),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_says_what_each_file_becomes(name: str) -> None:
    lines, files = PATCHES[name]
    assert patched(*lines) == files


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["a line"], "names no file"),
        (["*** Add File: b.py", "a = 1"], "does not begin with `+`"),
        (["*** Update File: a.py", "@@", "*a = 1"], "begins with neither"),
        (["*** Update File: a.py", "@@", "-import re"], "not in the file: import re"),
        (["*** Update File: a.py", "@@ def three():", "+x = 1"], "not in the file: def three():"),
        (["*** Update File: a.py", "@@", "-    return 1", "@@", "-import os"], "not in the file: import os"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(lines: list[str], reason: str) -> None:
    with pytest.raises(EditError, match="GBE345") as caught:
        patched(*lines)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "arguments", "after"),
    [
        ("a a", {"old_string": "a", "new_string": "b", "replace_all": True}, "b b"),
        ("a\nb\n", {"old_string": "a\r\nb", "new_string": "c\r\nd"}, "c\nd\n"),
        (None, {"old_string": "", "new_string": "a"}, "a"),
    ],
)
def test_an_edit_replaces_text(text: str | None, arguments: dict[str, object], after: str) -> None:
    (file,) = read_call("Edit", {"file_path": "a.py", **arguments})
    assert file.rewrite(text) == after
    (file,) = read_call("MultiEdit", {"file_path": "a.py", "edits": [arguments]})
    assert file.rewrite(text) == after


def test_replace_all_is_true_or_false() -> None:
    with pytest.raises(EditError, match="replace_all"):
        read_call("Edit", {"file_path": "a.py", "old_string": "a", "new_string": "b", "replace_all": "yes"})
