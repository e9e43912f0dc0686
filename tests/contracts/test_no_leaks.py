"""Nothing in the repository depends on, or tells of, the machine on which it was made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
TRACKED = [ROOT / name for name in LISTED.split("\0") if name and (ROOT / name).is_file()]
HERE = Path(__file__).resolve()

FORBIDDEN = {
    "a folder of one machine": r"(?<![\w./~-])/(?:home|Users|root|work|mnt|opt)/[\w.-]+",
    "a package index": r"pypi\.org|pythonhosted\.org|registry\.npmjs"
    r"|(?:index-url|find-links)[ =]+(?!https://example\.org/)\S*/",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}


def text_of(path: Path) -> str:
    """Binary and deliberately broken files read as far as they are text."""
    return path.read_bytes().decode("utf-8", errors="replace")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_names(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in TRACKED
        if path != HERE
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        for match in [pattern.search(line)]
        if match
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["--index-url https://mirror.example.com/simple", "find-links=/srv/wheels"])
def test_the_address_of_an_index_would_be_seen(line: str) -> None:
    assert re.search(FORBIDDEN["a package index"], line)


def test_requirements_name_versions_and_hashes_and_no_address() -> None:
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = text_of(path)
        assert "://" not in text, path.name
        pinned = re.findall(r"^[A-Za-z0-9._-]+==\S+.*?(?=^\S|\Z)", text, flags=re.MULTILINE | re.DOTALL)
        assert pinned, path.name
        assert all("--hash=sha256:" in requirement for requirement in pinned), path.name


def test_every_test_file_has_a_name_of_its_own() -> None:
    names = [path.name for path in TRACKED if path.name.startswith("test_") and path.is_relative_to(ROOT / "tests")]
    outside_projects = [path.name for path in TRACKED if path.is_relative_to(ROOT / "tests" / "projects")]
    own = [name for name in names if name not in outside_projects]
    assert sorted(own) == sorted(set(own))
