"""What travels on the bus: each topic, with the type of what is published there."""

from __future__ import annotations

from typing import TypedDict

from graphbus_core import Topic


class Article(TypedDict):
    """An article of a feed; `published` is a date and time in ISO 8601."""

    article_id: str
    source: str
    title: str
    summary: str
    url: str
    published: str


class FiledArticle(TypedDict):
    """An article with the section of the digest that it belongs to."""

    article_id: str
    source: str
    title: str
    url: str
    published: str
    section: str


class Retelling(TypedDict):
    """An article that tells a story once more, and the one that told it first."""

    article_id: str
    duplicate_of: str


class Digest(TypedDict):
    """A page that was written."""

    path: str
    articles: int


FETCHED = Topic("/Article/Fetched", Article)
ACCEPTED = Topic("/Article/Accepted", Article)
DUPLICATE = Topic("/Article/Duplicate", Retelling)
FILED = Topic("/Article/Filed", FiledArticle)
WRITTEN = Topic("/Digest/Written", Digest)
