"""Build the documentation into site/; fail on a warning, a dead link, a page that the navigation forgets, a diagram left undrawn.

    python -m scripts.docs

The API reference is written to docs/api/ first. Afterwards the search index is reduced: of the reference section it keeps the
titles of pages and the names that readers look up, so that a search finds what explains a term before what lists it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from scripts import api

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = ROOT / "site"
CONFIG = ROOT / "zensical.toml"
REFERENCE = "Reference"
"""The section of the navigation whose text is not searched."""
KEPT_LEVELS: dict[str, set[int]] = {
    "adr/index.": {1}, "adr/": set(), "api/index.": {1}, "api/": {2}, "cli.": {1, 3}, "configuration.": {1, 2}, "errors.": {1, 3},
}  # fmt: skip
"""The levels of their headings that the search keeps: titles, and names to look up (classes, commands, settings, codes)."""
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


def reduce_search(site: Path, nav: list[dict[str, object]]) -> None:
    """Take the text of the reference section out of the search index, and those of its headings that are no names."""
    path = site / "search.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    explained = {page.removesuffix("md") for page in pages_of([entry for entry in nav if REFERENCE not in entry])}
    index["items"] = [
        item if is_explained else item | {"text": ""}
        for item in index["items"]
        if (is_explained := item["location"].partition("html")[0] in explained) or item["level"] in _kept_levels(item)
    ]
    path.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


def _kept_levels(item: dict[str, Any]) -> set[int]:
    return next((levels for page, levels in KEPT_LEVELS.items() if item["location"].startswith(page)), {1})


def unsearchable(site: Path, nav: list[dict[str, object]]) -> list[str]:
    """Pages outside the reference section of which the search finds no text."""
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    found = {item["location"].partition("#")[0] for item in items if item["text"]}
    pages = pages_of([entry for entry in nav if REFERENCE not in entry])
    return [f"the search finds no text of {page}" for page in pages if page.removesuffix("md") + "html" not in found]


def theme_faults(site: Path) -> list[str]:
    """What the built theme must do and does not: its copy button reads the attribute that `scripts.fences` writes."""
    scripts = [path.read_text(encoding="utf-8") for path in (site / "assets" / "javascripts").glob("bundle*.js")]
    return [] if any("[data-copy]" in script for script in scripts) else ["the theme's copy button ignores data-copy"]


def undrawn(docs: Path) -> list[str]:
    """Pages with a diagram that a reader's browser would have to draw."""
    pages = sorted(docs.rglob("*.md"))
    return [
        f"docs/{page.relative_to(docs)}: write ```diagram, which is drawn here, instead of ```mermaid"
        for page in pages
        if "```mermaid" in page.read_text(encoding="utf-8")
    ]


def forgotten_pages(config: Path, docs: Path) -> list[str]:
    """Pages that stand in docs/ but not in the navigation; pages of a folder with an index are reached through it."""
    named = set(pages_of(navigation(config)))
    with_index = {path.removesuffix("/index.md") for path in named if path.endswith("/index.md")}
    pages = sorted(path.relative_to(docs) for path in docs.rglob("*.md"))
    return [
        f"docs/{page.as_posix()} is not in the navigation of {config.name}"
        for page in pages
        if page.as_posix() not in named and page.parent.as_posix() not in with_index
    ]


def navigation(config: Path) -> list[dict[str, object]]:
    """The entries of the navigation; a section has a list of further ones."""
    nav: list[dict[str, object]] = tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]
    return nav


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
    api.write(DOCS / "api")
    problems = undrawn(DOCS) + build() + forgotten_pages(CONFIG, DOCS)
    if not problems:
        reduce_search(SITE, navigation(CONFIG))
        problems = dead_links(SITE) + unsearchable(SITE, navigation(CONFIG)) + theme_faults(SITE)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"site/: {len(list(SITE.rglob('*.html')))} pages, no warnings, no dead links")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
