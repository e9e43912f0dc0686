"""DigestWriter: collects what was filed and writes it down as one Markdown page."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from graphbus_core import GraphBusNode, schema_method, subscribe
from news.articles import DUPLICATE, FILED, WRITTEN, FiledArticle, Retelling


class DigestWriter(GraphBusNode):
    """Keeps the filed articles until somebody asks for the digest."""

    SYSTEM_PROMPT = """
    I write the page that people read: sections in alphabetical order, newest article first, every title a link.
    I write it whole or not at all, and I say how many retellings were left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._articles: list[FiledArticle] = []
        self._duplicates = 0

    @subscribe(FILED)
    def on_filed(self, article: FiledArticle) -> None:
        """Keep an article for the next digest."""
        self._articles.append(article)

    @subscribe(DUPLICATE)
    def on_duplicate(self, retelling: Retelling) -> None:
        """Count what was left out."""
        self._duplicates += 1
        self.log(f"left out {retelling['article_id']}, a retelling of {retelling['duplicate_of']}")

    @schema_method(input_schema={"path": str}, output_schema={"articles": int, "duplicates": int})
    def write_digest(self, path: str) -> dict[str, int]:
        """Write everything that was filed so far to `path`, replacing what was there."""
        write_whole(Path(path), self._page())
        counts = {"articles": len(self._articles), "duplicates": self._duplicates}
        self.publish(WRITTEN, {"path": path, "articles": counts["articles"]})
        return counts

    def _page(self) -> str:
        sections: defaultdict[str, list[FiledArticle]] = defaultdict(list)
        for article in self._articles:
            sections[article["section"]].append(article)
        parts = ["# News digest", *(self._section(name, sections[name]) for name in sorted(sections))]
        if self._duplicates:
            parts.append(f"_{self._duplicates} retelling(s) left out._")
        return "\n\n".join(parts) + "\n"

    @staticmethod
    def _section(name: str, articles: list[FiledArticle]) -> str:
        newest_first = sorted(articles, key=lambda article: article["published"], reverse=True)
        lines = [f"- [{article['title']}]({article['url']}) ({article['source']})" for article in newest_first]
        return "\n".join([f"## {name.capitalize()}", "", *lines])


def write_whole(path: Path, text: str) -> None:
    """Replace the file in one step, so that no reader ever sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
