"""Classifier: finds the section of the digest for each article, by keywords."""

from __future__ import annotations

import re

from graphbus_core import GraphBusNode, subscribe
from news.articles import ACCEPTED, FILED, Article, FiledArticle

SECTIONS: dict[str, frozenset[str]] = {
    "science": frozenset({"study", "researchers", "telescope", "species", "fossil", "climate", "vaccine", "orbit"}),
    "technology": frozenset({"software", "chip", "browser", "security", "battery", "open-source", "python", "release"}),
    "business": frozenset({"market", "shares", "profit", "inflation", "bank", "merger", "trade", "prices"}),
    "culture": frozenset({"film", "museum", "novel", "concert", "exhibition", "festival", "theatre"}),
}
ELSEWHERE = "in brief"
TITLE_WEIGHT = 2


class Classifier(GraphBusNode):
    """Files each accepted article under the section whose keywords it uses most."""

    SYSTEM_PROMPT = """
    I file articles by rules that a reader can check: keywords per section, words of the title count double.
    The same article always lands in the same section. What fits nowhere goes under "in brief"; I never guess.
    """

    @subscribe(ACCEPTED)
    def on_accepted(self, article: Article) -> None:
        """Choose the section and pass the article on without its summary."""
        filed: FiledArticle = {
            "article_id": article["article_id"],
            "source": article["source"],
            "title": article["title"],
            "url": article["url"],
            "published": article["published"],
            "section": section_of(article["title"], article["summary"]),
        }
        self.publish(FILED, filed)


def section_of(title: str, summary: str) -> str:
    """Give the section with the highest score; of equals the one that `SECTIONS` names first."""
    scores = {section: score(keywords, title, summary) for section, keywords in SECTIONS.items()}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] else ELSEWHERE


def score(keywords: frozenset[str], title: str, summary: str) -> int:
    """Count the keywords that occur, those of the title double."""
    return TITLE_WEIGHT * len(keywords & words(title)) + len(keywords & words(summary))


def words(text: str) -> frozenset[str]:
    """Give the words of a text in lower case; hyphens hold words together."""
    return frozenset(re.findall(r"\w+(?:-\w+)*", text.lower()))
