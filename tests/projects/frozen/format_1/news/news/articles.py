"""What travels on the bus: an article, as it is fetched and as it is filed."""

from __future__ import annotations

from typing import TypedDict


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
