"""What the documentation build refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import markdown
import pytest
from pymdownx.superfences import SuperFencesException

import graphbus_core
from scripts import api, fences
from scripts.docs import (
    FACE,
    dead_links,
    finish_pages,
    forgotten_pages,
    reduce_search,
    theme_faults,
    undrawn,
    unsearchable,
)
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


FENCES = (fences.console, fences.text, fences.diagram, fences.graph)


def rendered(text: str) -> str:
    """A page with our fences, as `zensical.toml` configures them."""
    named = [{"name": each.__name__, "class": "", "format": each} for each in FENCES]
    options = {"pymdownx.superfences": {"custom_fences": named}}
    return markdown.markdown(text, extensions=["pymdownx.superfences"], extension_configs=options)


def test_the_copy_button_of_a_session_copies_the_commands_alone() -> None:
    session = '$ graphbus check agents/ \\\n  --json\nall is "well"\n$ graphbus run --publish /A/B \'{"n": 1}\'\n'
    page = rendered(f"```console\n{session}```\n")
    copied = "graphbus check agents/ \\\n  --json\ngraphbus run --publish /A/B &#x27;{&quot;n&quot;: 1}&#x27;"
    assert page.startswith(f'<div data-copy="{copied}"><div class="')
    assert "well" in page


def test_signs_and_codes_in_output_are_coloured_and_nothing_else() -> None:
    page = rendered("```console\n$ graphbus check ✓\na.py:1: GB004 A sends\n  ✗ G4 contract\n✓ fine\n```\n")
    assert re.findall(r'<span class="(passed|refused)">(.*?)</span>', page) == [
        ("refused", "GB004"),
        ("refused", "✗"),
        ("passed", "✓"),
    ]


def test_a_graph_is_drawn_from_the_agents_of_a_project() -> None:
    page = rendered("```graph\nexamples/orders\n```\n")
    assert 'aria-label="4 agents: Books, Checkout, Payments, Pricing"' in page
    assert re.findall(r'class="label"[^>]*>([^<]+)<', page) == ["/Order/Accepted", "/Price/Asked", "/Order/Paid"]
    assert page.count("<rect") == 4


def test_a_graph_without_agents_ends_the_build() -> None:
    with pytest.raises(SuperFencesException, match="there is no agent to draw in"):
        rendered("```graph\nexamples/nothing\n```\n")


def test_output_has_no_copy_button() -> None:
    assert rendered("```text\nSome output\n```\n").startswith('<div class="no-copy"><div class="')


def test_a_diagram_becomes_a_drawing_with_its_labels() -> None:
    page = rendered("```diagram\n┌─────┐\n│ a<b ├──▶ end\n└─────┘\n```\n")
    assert page.startswith('<div class="drawing" tabindex="0"><svg viewBox=')
    assert 'y="31" textLength="24">a&lt;b</text>' in page
    assert page.count("<path") == 1
    assert page.count("<line") == 37


def test_a_diagram_that_only_a_browser_can_draw_is_refused(tmp_path: Path) -> None:
    docs = write_project(tmp_path, {"a.md": "```mermaid\n```\n", "b.md": "```diagram\n```\n"})
    assert undrawn(docs) == ["docs/a.md: write ```diagram, which is drawn here, instead of ```mermaid"]


@pytest.mark.parametrize(
    ("location", "level", "title", "kept"),
    [
        ("ledgers.html", 1, "Ledgers", "Ledgers with text"),
        ("ledgers.html#how", 2, "How", "How with text"),
        ("rules/checking.html#how", 2, "How", "How with text"),
        ("index.html", 1, "GraphBus", "nothing"),
        ("rules/GB001.html", 1, "GB001", "GB001"),
        ("adr/index.html", 1, "Decisions", "Decisions"),
        ("adr/0001.html", 1, "Read", "nothing"),
        ("errors.html#families", 2, "Families", "nothing"),
        ("errors.html#gbe101", 3, "GBE101", "GBE101"),
        ("cli.html#build", 2, "Build", "nothing"),
        ("cli.html#graphbus-build", 3, "graphbus build", "graphbus build"),
        ("cli.html#graphbus-k8s-deploy", 3, "graphbus k8s deploy", "nothing"),
        ("api/index.html#build", 2, "Build", "nothing"),
        ("api/build.html", 1, "Build", "nothing"),
        ("api/build.html#build_graph", 2, "build_graph", "API: build_graph"),
        ("api/agents.html#depends_on", 2, "depends_on", "nothing"),
        ("api/agents.html#Event.payload", 3, "payload", "nothing"),
    ],
)
def test_search_finds_explanations_and_of_lists_only_titles_and_names_that_nothing_explains(
    tmp_path: Path, location: str, level: int, title: str, kept: str
) -> None:
    item = {"location": location, "level": level, "title": title, "text": "a text"}
    page = {
        "location": "writing-agents.html#call",
        "level": 2,
        "title": "Call",
        "text": "<p>with <code>depends_on</code></p>",
    }
    site = write_project(tmp_path, {"search.json": json.dumps({"items": [item, page]})})
    reduce_search(site)
    left = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    left.remove(page)
    assert [each["title"] + " with text" * bool(each["text"]) for each in left] == [kept] * (kept != "nothing")


def test_search_finds_what_explains_before_what_lists(tmp_path: Path) -> None:
    items = [{"location": name, "level": 1, "title": "t", "text": ""} for name in ("cli.html", "ledgers.html")]
    site = write_project(tmp_path, {"search.json": json.dumps({"items": items})})
    reduce_search(site)
    left = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    assert [item["location"] for item in left] == ["ledgers.html", "cli.html"]


def test_a_page_without_searchable_text_is_named(tmp_path: Path) -> None:
    items = [{"location": "a.html#b", "text": "long"}, {"location": "c.html", "text": ""}]
    site = write_project(tmp_path, {"search.json": json.dumps({"items": items})})
    assert unsearchable(site, [{"A": ["a.md", "c.md"]}, {"B": "cli.md"}]) == ["the search finds no text of c.md"]


SITE_STYLE = Path(__file__).parents[3] / "theme" / "assets" / "site.css"


def test_the_pages_have_the_colours_of_the_view_and_no_others() -> None:
    copied, own = (path.read_text(encoding="utf-8") for path in (FACE / "face.css", SITE_STYLE))
    named = {*re.findall(r"var\((--[a-z-]+)\)", own)} - {*re.findall(r"(--md-[a-z-]+)", own)}
    assert named <= {*re.findall(r"(--[a-z-]+):", copied)}
    assert re.findall(r"#[0-9a-f]{3,8}\b|rgb\(|hsl\(", own) == []


def test_the_description_of_a_page_is_its_first_paragraph(tmp_path: Path) -> None:
    head = '<meta name="description" content="The site."><h1>T</h1>'
    paragraph = '<p>Say <code>&lt;a&gt;</code> &\n"b". Two.</p><p>No.</p>'
    site = write_project(
        tmp_path, {"a.html": f"{head}{paragraph}", "b.html": f"{head}<p>{'word ' * 50}</p>", "c.html": head}
    )
    finish_pages(site)
    found = [re.findall('content="([^"]*)"', (site / name).read_text())[0] for name in ("a.html", "b.html", "c.html")]
    assert found == ["Say &lt;a&gt; & &quot;b&quot;. Two.", f"{'word ' * 31}…", "The site."]


def test_a_word_of_code_in_a_table_stays_whole(tmp_path: Path) -> None:
    code = "<code>graphbus gate --against main</code>"
    site = write_project(tmp_path, {"a.html": f"{code}<table><td>{code} a-b</td></table>"})
    finish_pages(site)
    kept = '<code>graphbus gate <span class="word">--against</span> main</code>'
    assert (site / "a.html").read_text() == f"{code}<table><td>{kept} a-b</td></table>"


def test_the_anchor_of_a_line_of_code_is_no_link_without_a_text(tmp_path: Path) -> None:
    line = '<a id="__codelineno-0-1" name="__codelineno-0-1" href="#__codelineno-0-1"></a>x = 1'
    site = write_project(tmp_path, {"a.html": line})
    finish_pages(site)
    assert (site / "a.html").read_text() == '<a id="__codelineno-0-1"></a>x = 1'


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
