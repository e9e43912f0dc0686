"""What the documentation build refuses."""

from __future__ import annotations

from pathlib import Path

from scripts.docs import dead_links, forgotten_pages
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
