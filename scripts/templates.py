"""Copy the examples `hello_graphbus` and `news` into the templates of `graphbus init`. Run it after changing one of them.

    python scripts/templates.py

tests/cli/test_cli_init.py fails while the two differ. The template `shop` is written by hand: it carries mistakes on purpose.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "src" / "graphbus_core" / "cli" / "templates"
EXAMPLES = {"hello": "hello_graphbus", "news": "news"}
MADE_BY_RUNNING = {".graphbus", "__pycache__", ".pytest_cache", "digest.md"}


def main() -> None:
    for template, example in EXAMPLES.items():
        copy(ROOT / "examples" / example, TEMPLATES / template)


def copy(source: Path, target: Path) -> None:
    ignored = (target / ".gitignore.tmpl").read_text(encoding="utf-8")
    shutil.rmtree(target)
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not MADE_BY_RUNNING & {*relative.parts}:
            write(target / f"{relative}.tmpl", named(relative.as_posix(), path.read_text(encoding="utf-8")))
    write(target / ".gitignore.tmpl", ignored)


def named(path: str, text: str) -> str:
    """Put the name of the project where the example has its own."""
    if path == "pyproject.toml":
        text = re.sub(r'^name = ".*"$', 'name = "${project_name}"', text, count=1, flags=re.MULTILINE)
        return text.replace("[tool.graphbus]\n", "[tool.graphbus]\n${intent}")
    if path == "README.md":
        return re.sub(r"\A# .*$", "# ${project_name}", text, count=1, flags=re.MULTILINE)
    return text


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
