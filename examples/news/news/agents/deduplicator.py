"""Deduplicator: lets every story through once, however many feeds tell it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from graphbus_core import GraphBusNode, subscribe
from news.articles import ACCEPTED, DUPLICATE, FETCHED, Article

SIMILAR = 0.6
"""Share of common title words from which on two articles are one story."""

FILLERS = frozenset(
    {"a", "an", "and", "as", "at", "by", "for", "from", "in", "is", "it", "its", "of", "on", "the", "to", "with"}
)


class Deduplicator(GraphBusNode):
    """Knows the stories that came through and stops those that tell them again."""

    SYSTEM_PROMPT = """
    I decide whether two articles tell one story: by address first, by the words of their titles second.
    The first one wins. What I stop I announce on /Article/Duplicate, so that nothing disappears in silence.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_address: dict[str, str] = {}
        self._title_words: dict[str, frozenset[str]] = {}

    @subscribe(FETCHED)
    def on_article(self, article: Article) -> None:
        """Pass a new story on, or name the article that told it before."""
        known = self._find(article)
        if not known:
            self._remember(article)
            self.publish(ACCEPTED, article)
        else:
            self.publish(DUPLICATE, {"article_id": article["article_id"], "duplicate_of": known})

    def _find(self, article: Article) -> str:
        """Give the id of the article that told this story before; empty: none has."""
        address = canonical_address(article["url"])
        if address in self._by_address:
            return self._by_address[address]
        words = title_words(article["title"])
        return next((known for known, other in self._title_words.items() if similarity(words, other) >= SIMILAR), "")

    def _remember(self, article: Article) -> None:
        self._by_address[canonical_address(article["url"])] = article["article_id"]
        self._title_words[article["article_id"]] = title_words(article["title"])


def canonical_address(url: str) -> str:
    """Leave out what does not tell pages apart: scheme, `www.`, query, fragment, a final slash."""
    parts = urlsplit(url)
    return f"{parts.netloc.lower().removeprefix('www.')}{parts.path.rstrip('/')}"


def title_words(title: str) -> frozenset[str]:
    """Give the words of a title that carry meaning, in lower case."""
    return frozenset(re.findall(r"[\w']+", title.lower())) - FILLERS


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Give the share of words that both have: 1.0 for equal sets, 0.0 when either is empty."""
    return len(one & other) / len(one | other) if one and other else 0.0
