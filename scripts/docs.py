"""Build the documentation into site/; fail on a warning, a dead link, a page that the navigation forgets, a diagram left undrawn.

    python -m scripts.docs

The API reference is written to docs/api/ first. Afterwards the search index is reduced and sorted, so that a search
finds what explains a term before what lists it, and the first paragraph of each page becomes its description.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from scripts import api

ROOT = Path(__file__).resolve().parent.parent
FACE = ROOT / "src" / "graphbus_core" / "view" / "static"
"""Colours, fonts and mark (face.css, mark.svg) of the view and the report, which the documentation shares."""
LISTS: dict[str, set[int]] = {
    "index.": set(), "adr/index.": {1}, "adr/": set(), "api/index.": {1}, "api/": {2}, "architecture.": {1}, "changelog.": {1},
    "cli.": {1, 3}, "configuration.": {1, 2}, "contributing.": {1}, "errors.": {1, 3}, "guarantees.": {1},
    "names-in-the-seeds.": {1}, "newcomer-walk.": {1}, "performance.": {1}, "reading.": {1}, "rules/index.": {1}, "rules/GB": {1},
}  # fmt: skip
"""Pages that list -> the levels of their headings that the search keeps: titles and names to look up (classes, commands, codes).
The text of all other pages, which explain, is searched whole.
"""
MAX_DESCRIPTION = 160
FIRST_PARAGRAPH = re.compile(r"</h1>.*?<p>(.*?)</p>", re.DOTALL)
DESCRIPTION = re.compile(r'(<meta name="description" content=")[^"]*(">)')
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
CELL_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
WORD = re.compile(r"\S*[^\w\s]\S*")
"""A word that a browser may break at its hyphens, slashes or dots."""
LINE = re.compile(r'<a (id="__codelineno-[^"]*") name="[^"]*" href="[^"]*"></a>')
"""The anchor of a line of code: a link without a text, which a screen reader would read out."""
RAISED = re.compile(r"\S*(?:Error|Exception): .*")
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


def build(root: Path) -> list[str]:
    """Run the site generator; its warnings, without colours, and of a traceback what was raised."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    finished = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    said, _, trace = COLOUR.sub("", finished.stdout + finished.stderr).partition("Traceback")
    if finished.returncode or "warning" in said.lower():
        return [" ".join(["zensical:", said.strip(), *RAISED.findall(trace)[-1:]])]
    return []


def finish_pages(site: Path) -> None:
    """Describe each page by its first paragraph, keep words of code in tables whole, and make no links of lines of code."""
    for path in site.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        if first := FIRST_PARAGRAPH.search(page):
            page = DESCRIPTION.sub(lambda tag, text=first[1]: tag[1] + _summary(text) + tag[2], page, count=1)
        page = TABLE.sub(
            lambda table: CELL_CODE.sub(lambda code: WORD.sub(r'<span class="word">\g<0></span>', code[0]), table[0]),
            page,
        )
        path.write_text(LINE.sub(r"<a \1></a>", page), encoding="utf-8")


def _summary(paragraph: str) -> str:
    """Plain text, with HTML escaped: whole sentences up to 160 characters, or whole words of a longer sentence."""
    text = " ".join(re.sub(r"<[^>]*>", "", paragraph).split()).replace('"', "&quot;")
    sentences = re.split(r"(?<=[.:]) ", text)
    kept = sentences[0]
    for sentence in sentences[1:]:
        if len(f"{kept} {sentence}") > MAX_DESCRIPTION:
            break
        kept = f"{kept} {sentence}"
    return kept if len(kept) <= MAX_DESCRIPTION else textwrap.shorten(kept, MAX_DESCRIPTION, placeholder=" …")


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


def reduce_search(site: Path) -> None:
    """Put what explains first in the search index; of pages that list, keep the names that no other page explains."""
    path = site / "search.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    explained = [item for item in index["items"] if _kept_levels(item) is None]
    words = {word for item in explained for word in re.findall(r"\w+", f"{item['title']} {item['text']}")}
    index["items"] = explained + [_listed(item) for item in index["items"] if _is_listed(item, words)]
    path.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


def _kept_levels(item: dict[str, Any]) -> set[int] | None:
    return next((levels for page, levels in LISTS.items() if item["location"].startswith(page)), None)


def _is_listed(item: dict[str, Any], explained_words: set[str]) -> bool:
    """True for a title or name of a page that lists: but no name of the API that is explained, and no command of a command."""
    is_known = item["location"].startswith("api/") and item["title"] in explained_words
    is_part = item["location"].startswith("cli.") and item["title"].count(" ") > 1
    return item["level"] in (_kept_levels(item) or set()) and not is_known and not is_part


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    """An entry without text. A name of the API says that it is one, so that `GateConfig` does not come before "The gate"."""
    is_name = item["location"].startswith("api/") and item["level"] > 1
    return item | {"text": "", "title": f"API: {item['title']}" if is_name else item["title"]}


def unsearchable(site: Path, nav: list[dict[str, object]]) -> list[str]:
    """Pages that explain of which the search finds no text."""
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    found = {item["location"].partition("#")[0] for item in items if item["text"]}
    pages = [page for page in pages_of(nav) if not page.startswith(tuple(LISTS))]
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


def make(root: Path) -> list[str]:
    """Build the site of the checkout in `root` into its folder site/; what is wrong with it."""
    docs, site, config = root / "docs", root / "site", root / "zensical.toml"
    api.write(docs / "api")
    for name in ("face.css", "mark.svg"):
        shutil.copy(FACE / name, root / "theme" / "assets")
    problems = undrawn(docs) + build(root) + forgotten_pages(config, docs)
    if not problems:
        reduce_search(site)
        finish_pages(site)
        problems = dead_links(site) + unsearchable(site, navigation(config)) + theme_faults(site)
    return problems


def main() -> int:
    """Build, then check what was built."""
    problems = make(ROOT)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"site/: {len(list((ROOT / 'site').rglob('*.html')))} pages, no warnings, no dead links")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
