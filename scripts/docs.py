"""Build the documentation into site/; fail on a warning, a dead link, and a page that the navigation forgets."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = ROOT / "site"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Page(HTMLParser):
    """What a built page offers and what it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep ids, names and addresses."""
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append(value)


def build() -> list[str]:
    """Run the site generator; its warnings, without colours and without its traceback."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = COLOUR.sub("", finished.stdout + finished.stderr).partition("Traceback")[0]
    if finished.returncode or "warning" in said.lower():
        return [f"zensical: {said.strip()}"]
    return []


def dead_links(site: Path) -> list[str]:
    """Every link inside the site whose page or anchor is not there."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links if path.name != "404.html" else []:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{path.relative_to(site)}: {link} does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{path.relative_to(site)}: {link} has no such place")
    return found


def forgotten_pages(config: Path, docs: Path) -> list[str]:
    """Pages that stand in docs/ but not in the navigation; pages of a folder with an index are reached through it."""
    named = set(pages_of(tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]))
    with_index = {path.removesuffix("/index.md") for path in named if path.endswith("/index.md")}
    pages = sorted(path.relative_to(docs) for path in docs.rglob("*.md"))
    return [
        f"docs/{page.as_posix()} is not in the navigation of {config.name}"
        for page in pages
        if page.as_posix() not in named and page.parent.as_posix() not in with_index
    ]


def pages_of(nav: object) -> Iterator[str]:
    """The pages that a navigation names, at any depth."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from pages_of(value)
    elif isinstance(nav, list):
        for value in nav:
            yield from pages_of(value)


def main() -> int:
    """Build, then check what was built."""
    problems = build()
    problems += forgotten_pages(ROOT / "zensical.toml", DOCS)
    if not problems:
        problems = dead_links(SITE)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"site/: {len(list(SITE.rglob('*.html')))} pages, no warnings, no dead links")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
