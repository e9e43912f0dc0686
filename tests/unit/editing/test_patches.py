"""Patches that others made: applied as git applies them, or refused with git's reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.editing.patches import Files, apply_patch
from graphbus_core.errors import EditError

TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"
FILES = {"a.py": TEXT, "b/c.py": b"x = 1\n", "twice.py": b"a\nb\n\na\nb\n"}


def applied(patch: str | bytes, files: dict[str, bytes] = FILES) -> Files:
    return apply_patch(patch if isinstance(patch, bytes) else patch.encode(), files.get)


CHANGED = TEXT.replace(b"five", b"FIVE")
HUNK = "@@ -4,3 +4,3 @@\n four\n-five\n+FIVE\n six\n"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("--- a/a.py\n+++ b/a.py\n" + HUNK, {"a.py": CHANGED}),
        ("--- a.py\n+++ a.py\n" + HUNK, {"a.py": CHANGED}),
        ("--- a.py.orig\t2026-01-01\n+++ a.py\t2026-01-02\n" + HUNK, {"a.py": CHANGED}),
        ("--- old/a.py\n+++ new/a.py\n" + HUNK, {"a.py": CHANGED}),
        ("--- a/a.py\n+++ b/a.py\n" + HUNK.replace("-4,3 +4,3", "-40,3 +1,3"), {"a.py": CHANGED}),
        ("Hello,\n\n--- a/a.py\n+++ b/a.py\n" + HUNK + "-- \n2.39\n", {"a.py": CHANGED}),
        (("--- a/a.py\n+++ b/a.py\n" + HUNK).replace("\n", "\r\n"), {"a.py": CHANGED}),
        ("--- a/twice.py\n+++ b/twice.py\n@@ -4,2 +4,2 @@\n-a\n+c\n b\n", {"twice.py": b"a\nb\n\nc\nb\n"}),
        (
            "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n",
            {"n.py": b"x\n"},
        ),
        ("diff --git a/n.py b/n.py\nnew file mode 100644\nindex 000..e69\n", {"n.py": b""}),
        ("--- b/c.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n", {"b/c.py": None}),
        ("--- n.py\n+++ n.py\n@@ -0,0 +1,2 @@\n+x\n+y\n\\ No newline at end of file\n", {"n.py": b"x\ny"}),
        ("diff --git a/a.py b/z.py\nrename from a.py\nrename to z.py\n", {"a.py": None, "z.py": TEXT}),
        (
            "--- a/b/c.py\n+++ b/b/c.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n\\ No newline at end of file\n",
            {"b/c.py": b"x = 2"},
        ),
    ],
)
def test_a_patch_in_any_of_the_usual_forms_applies(patch: str, expected: dict[str, bytes | None]) -> None:
    assert {path: after for path, (_, after) in applied(patch).items()} == expected


def test_line_ends_and_odd_bytes_of_the_file_stay() -> None:
    files = {"a.py": b"\xef\xbb\xbfone\r\n# \xe9\r\nthree\r\n"}
    patch = b"--- a/a.py\n+++ b/a.py\n@@ -2,2 +2,3 @@\n # \xe9\n-three\n+3\n+4\n"

    assert applied(patch, files) == {"a.py": (files["a.py"], b"\xef\xbb\xbfone\r\n# \xe9\r\n3\r\n4\r\n")}


def test_several_hunks_and_several_patches_of_one_file_apply_one_after_the_other() -> None:
    first = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n one\n+1.5\n two\n@@ -9,2 +10,2 @@\n nine\n-ten\n+TEN\n"
    second = "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,2 @@\n one\n-1.5\n two\n"

    assert applied(first)["a.py"][1] == TEXT.replace(b"one\n", b"one\n1.5\n").replace(b"ten", b"TEN")
    assert applied(first + second)["a.py"] == (TEXT, TEXT.replace(b"ten", b"TEN"))


@pytest.mark.parametrize(
    ("patch", "code", "says"),
    [
        ("--- a/a.py\n+++ b/a.py\n@@ -4,2 +4,2 @@\n four\n-fife\n+FIVE\n", "GBE341", "around line 4 are not there"),
        ("--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-a\n+c\n", "GBE341", "No such file"),
        ("--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+a\n", "GBE341", "already exists"),
        ("--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n", "GBE341", "a.py"),
        ("--- a/empty.py\n+++ b/empty.py\n@@ -1 +1 @@\n-a\n+b\n", "GBE341", "empty.py"),
        ("--- a/../x.py\n+++ b/../x.py\n@@ -1 +1 @@\n-a\n+b\n", "GBE34", "../x.py"),
        ("--- a/.git/config\n+++ b/.git/config\n@@ -1 +1 @@\n-a\n+b\n", "GBE34", ".git/config"),
        ("some words\n", "GBE342", "valid patch"),
        ("@@ -1 +1 @@\n-a\n+b\n", "GBE342", "without header"),
        ("--- a/a.py\n+++ b/a.py\n" + HUNK.replace("-4,3", "-4,9"), "GBE342", "corrupt patch"),
        (
            "diff --git a/l.py b/l.py\nnew file mode 120000\n--- /dev/null\n+++ b/l.py\n@@ -0,0 +1 @@\n+/etc/passwd\n"
            "\\ No newline at end of file\n",
            "GBE342",
            "creates a symbolic link",
        ),
    ],
)
def test_a_patch_that_does_not_fit_is_one_clear_error(patch: str, code: str, says: str) -> None:
    with pytest.raises(EditError) as refusal:
        applied(patch, {**FILES, "empty.py": b"", ".git/config": b"a\n", "../x.py": b"a\n"})

    assert refusal.value.code.startswith(code)
    assert says in str(refusal.value)


def test_no_program_of_a_setting_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(f'[filter "x"]\nclean = touch {tmp_path}/ran\nsmudge = touch {tmp_path}/ran\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    patch = "--- a/a.py\n+++ b/a.py\n" + HUNK
    files = {**FILES, ".gitattributes": b"# none\n"}
    attributes = "--- a/.gitattributes\n+++ b/.gitattributes\n@@ -1 +1 @@\n-# none\n+* filter=x\n"

    assert applied(attributes + patch, files)["a.py"][1] == CHANGED
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("patch", ["", "\n", " \r\n"])
def test_an_empty_patch_changes_nothing(patch: str) -> None:
    assert applied(patch, FILES) == {}
