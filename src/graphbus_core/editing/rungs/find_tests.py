"""Does a project have tests: is there a file that pytest takes for one, or a configuration that says where they are?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from graphbus_core.editing.rungs.trial_tree import SKIPPED_FOLDERS

_TEST_FILES = ("test_*.py", "*_test.py")
_SECTIONS = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}


def has_tests(root: Path) -> bool:
    """True when there is a test file anywhere in the project, or `testpaths` of pytest names something that exists."""
    return any(_configured(root)) or any(_test_files(root))


def _test_files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = [
            name for name in names if name not in SKIPPED_FOLDERS and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            if any(fnmatch(name, pattern) for pattern in _TEST_FILES):
                yield Path(folder, name)


def _configured(root: Path) -> Iterator[Path]:
    """Give what `testpaths` leads to; pytest looks everywhere where it leads to nothing."""
    for pattern in [*_in_pyproject(root), *_in_sections(root)]:
        if not Path(pattern).is_absolute():
            yield from root.glob(pattern)


def _in_pyproject(root: Path) -> list[str]:
    import tomllib

    try:
        settings: object = tomllib.loads(_text(root / "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        return []
    pytest = _under(_under(settings, "tool"), "pytest")
    return [*_words(_under(pytest, "testpaths")), *_words(_under(_under(pytest, "ini_options"), "testpaths"))]


def _in_sections(root: Path) -> list[str]:
    from configparser import ConfigParser, Error

    found: list[str] = []
    for name, section in _SECTIONS.items():
        parser = ConfigParser(interpolation=None)
        try:
            parser.read_string(_text(root / name))
        except Error:
            continue
        found += parser.get(section, "testpaths", fallback="").split()
    return found


def _under(settings: object, name: str) -> object:
    return settings.get(name) if isinstance(settings, Mapping) else None


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str) and word] if isinstance(value, list) else []


def _text(path: Path) -> str:
    """Give the text of a file; empty when there is none that can be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
