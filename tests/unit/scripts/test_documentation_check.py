"""What the documentation build refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import markdown
import pytest

import graphbus_core
from scripts import api, fences
from scripts.docs import dead_links, forgotten_pages, reduce_search, theme_faults, undrawn, unsearchable
from tests.project_files import write_project


def test_a_link_to_a_page_or_an_anchor_that_is_not_there_is_dead(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {
            "index.html": '<a href="other.html#there">a</a> <a href="other.html#gone">b</a> <a href="gone.html">c</a>',
            "other.html": '<h2 id="there">x</h2> <a href="#there">d</a> <a href="https://elsewhere/x.html">e</a>',
            "sub/index.html": '<a href="../other.html">f</a> <a href="..">g</a>',
        },
    )
    assert dead_links(tmp_path) == [
        "index.html: other.html#gone has no such place",
        "index.html: gone.html does not exist",
    ]


def test_a_page_that_no_navigation_and_no_index_names_is_forgotten(tmp_path: Path) -> None:
    nav = 'nav = [{ "A" = "index.md" }, { "B" = [{ "Rules" = "rules/index.md" }] }]'
    docs = write_project(tmp_path / "docs", {"index.md": "", "lost.md": "", "rules/index.md": "", "rules/GB001.md": ""})
    config = write_project(tmp_path, {"site.toml": f"[project]\n{nav}\n"}) / "site.toml"
    assert forgotten_pages(config, docs) == ["docs/lost.md is not in the navigation of site.toml"]


def rendered(text: str) -> str:
    """A page with our fences, as `zensical.toml` configures them."""
    named = [
        {"name": each.__name__, "class": "", "format": each} for each in (fences.console, fences.text, fences.diagram)
    ]
    options = {"pymdownx.superfences": {"custom_fences": named}}
    return markdown.markdown(text, extensions=["pymdownx.superfences"], extension_configs=options)


def test_the_copy_button_of_a_session_copies_the_commands_alone() -> None:
    session = '$ graphbus check agents/ \\\n  --json\nall is "well"\n$ graphbus run --publish /A/B \'{"n": 1}\'\n'
    page = rendered(f"```console\n{session}```\n")
    copied = "graphbus check agents/ \\\n  --json\ngraphbus run --publish /A/B &#x27;{&quot;n&quot;: 1}&#x27;"
    assert page.startswith(f'<div data-copy="{copied}"><div class="')
    assert "well" in page


def test_output_has_no_copy_button() -> None:
    assert rendered("```text\nSome output\n```\n").startswith('<div class="no-copy"><div class="')


def test_a_diagram_becomes_a_drawing_with_its_labels() -> None:
    page = rendered("```diagram\n┌─────┐\n│ a<b ├──▶ end\n└─────┘\n```\n")
    assert page.startswith("<div><svg viewBox=")
    assert 'y="31" textLength="24">a&lt;b</text>' in page
    assert page.count("<path") == 1
    assert page.count("<line") == 37


def test_a_diagram_that_only_a_browser_can_draw_is_refused(tmp_path: Path) -> None:
    docs = write_project(tmp_path, {"a.md": "```mermaid\n```\n", "b.md": "```diagram\n```\n"})
    assert undrawn(docs) == ["docs/a.md: write ```diagram, which is drawn here, instead of ```mermaid"]


@pytest.mark.parametrize(
    ("location", "level", "kept"),
    [
        ("a.html", 1, "with text"),
        ("a.html#how", 2, "with text"),
        ("rules/checking.html#how", 2, "with text"),
        ("rules/GB001.html", 1, "title"),
        ("adr/index.html", 1, "title"),
        ("adr/0001.html", 1, "nothing"),
        ("errors.html#families", 2, "nothing"),
        ("errors.html#gbe101", 3, "title"),
        ("cli.html#build", 2, "nothing"),
        ("cli.html#graphbus-build", 3, "title"),
        ("api/index.html#build", 2, "nothing"),
        ("api/build.html", 1, "nothing"),
        ("api/build.html#build_graph", 2, "title"),
        ("api/agents.html#Event.payload", 3, "nothing"),
    ],
)
def test_search_finds_explanations_and_of_the_reference_only_titles_and_names(
    tmp_path: Path, location: str, level: int, kept: str
) -> None:
    item = {"location": location, "level": level, "title": "a title", "text": "a text"}
    site = write_project(tmp_path, {"search.json": json.dumps({"items": [item]})})
    reference = {"Reference": ["rules/index.md", "adr/index.md", "errors.md", "cli.md", "api/index.md"]}
    reduce_search(site, [{"A": "a.md"}, {"Team": ["rules/checking.md"]}, reference])
    left = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    assert left == {"with text": [item], "title": [item | {"text": ""}], "nothing": []}[kept]


def test_a_page_without_searchable_text_is_named(tmp_path: Path) -> None:
    items = [{"location": "a.html#b", "text": "long"}, {"location": "c.html", "text": ""}]
    site = write_project(tmp_path, {"search.json": json.dumps({"items": items})})
    assert unsearchable(site, [{"A": ["a.md", "c.md"]}, {"Reference": "d.md"}]) == ["the search finds no text of c.md"]


def test_a_theme_whose_copy_button_ignores_our_attribute_is_named(tmp_path: Path) -> None:
    site = write_project(tmp_path, {"assets/javascripts/bundle.1.min.js": 'e.closest("[data-copy]")'})
    assert theme_faults(site) == []
    assert theme_faults(site / "assets") == ["the theme's copy button ignores data-copy"]


def test_every_public_name_has_an_entry_with_a_docstring_and_its_line(tmp_path: Path) -> None:
    api.write(tmp_path)
    page = (tmp_path / "agents.md").read_text(encoding="utf-8")
    for name in graphbus_core.__all__:
        entry = page.partition(f"## {name} {{ #{name} }}\n\n")[2]
        signature, link, text = entry.split("\n\n")[:3] if entry else ("", "", "")
        assert signature.startswith("``` { .python .no-copy }\n"), name
        assert link.startswith("[source](source-"), name
        assert text.strip(), name
    text = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.md"))
    linked = {*re.findall(r"\]\((source-[^#)]+)#", text)}
    assert linked == {path.name for path in tmp_path.glob("source-*.md")}


def test_every_documented_name_says_what_it_is() -> None:
    silent = [each.path for page in api.PAGES.values() for each in api.objects(page) if not each.docstring]
    assert silent == []
