"""The whole desk on a bus: feeds go in as files, a page comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core.testing import run_graph
from news.agents.classifier import Classifier
from news.agents.deduplicator import Deduplicator
from news.agents.digest_writer import DigestWriter
from news.agents.feed_reader import FeedReader


@pytest.fixture
def desk():
    with run_graph(FeedReader, Deduplicator, Classifier, DigestWriter) as graph:
        yield graph


@pytest.fixture
def feed(tmp_path: Path):
    """Write a feed file; each item is completed from its id."""

    def write(name: str, *items: dict) -> str:
        whole = [{"url": f"https://{name}.example/{item.get('id')}"} | item for item in items]
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"title": name.title(), "items": whole}), encoding="utf-8")
        return str(path)

    return write


def page(desk, tmp_path: Path) -> str:
    desk.call("DigestWriter", "write_digest", path=str(tmp_path / "digest.md"))
    return (tmp_path / "digest.md").read_text(encoding="utf-8")


def test_an_article_of_a_feed_ends_up_in_its_section(desk, feed, tmp_path):
    path = feed("post", {"id": "1", "title": "Bank  raises\nprices", "date_published": "2026-03-02"})
    assert desk.call("FeedReader", "read_feed", path=path) == {"source": "Post", "articles": 1, "skipped": 0}
    assert page(desk, tmp_path) == (
        "# News digest\n\n## Business\n\n- [Bank raises prices](https://post.example/1) (Post)\n"
    )


def test_a_broken_item_costs_only_itself(desk, feed):
    path = feed("post", {"id": "1", "title": "Kept"}, {"id": "2"}, {"title": "No id"})
    assert desk.call("FeedReader", "read_feed", path=path) == {"source": "Post", "articles": 1, "skipped": 2}


def test_a_story_that_two_feeds_tell_appears_once_as_the_first_told_it(desk, feed, tmp_path):
    desk.call("FeedReader", "read_feed", path=feed("post", {"id": "1", "title": "Comet seen on new orbit"}))
    desk.call("FeedReader", "read_feed", path=feed("tech", {"id": "2", "title": "A comet is seen on a new orbit"}))
    text = page(desk, tmp_path)
    assert "(Post)" in text
    assert "(Tech)" not in text
    assert text.endswith("_1 retelling(s) left out._\n")


def test_within_a_section_the_newest_article_comes_first(desk, feed, tmp_path):
    path = feed(
        "post",
        {"id": "1", "title": "An old novel", "date_published": "2026-03-01T08:00:00Z"},
        {"id": "2", "title": "Film of the year", "date_published": "2026-03-02T08:00:00Z"},
    )
    desk.call("FeedReader", "read_feed", path=path)
    text = page(desk, tmp_path)
    assert text.index("Film of the year") < text.index("An old novel")


def test_sections_come_in_alphabetical_order(desk, feed, tmp_path):
    titles = ("Telescope in orbit", "Bank merger", "Nothing special", "A museum")
    path = feed("post", *({"id": title, "title": title} for title in titles))
    desk.call("FeedReader", "read_feed", path=path)
    sections = [line for line in page(desk, tmp_path).splitlines() if line.startswith("## ")]
    assert sections == ["## Business", "## Culture", "## In brief", "## Science"]


def test_a_new_digest_replaces_the_old_one_whole(desk, tmp_path):
    (tmp_path / "digest.md").write_text("yesterday\n" * 100, encoding="utf-8")
    assert page(desk, tmp_path) == "# News digest\n"
    assert [path.name for path in tmp_path.iterdir()] == ["digest.md"]
