"""FeedReader: reads JSON Feed files and sends their articles in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphbus_core import GraphBusNode, schema_method
from news.articles import FETCHED, Article

REQUIRED = ("id", "title", "url")


class FeedReader(GraphBusNode):
    """Turns a feed file (https://jsonfeed.org, version 1.1) into one event per article."""

    SYSTEM_PROMPT = """
    I am the only one who knows what a feed file looks like. Everybody behind me sees articles of one shape. I skip what I cannot
    read and say so; one broken item never costs the others.
    """

    @schema_method(input_schema={"path": str}, output_schema={"source": str, "articles": int, "skipped": int})
    def read_feed(self, path: str) -> dict[str, str | int]:
        """Publish every complete item of the feed at `path`."""
        feed = json.loads(Path(path).read_text(encoding="utf-8"))
        source = str(feed.get("title", Path(path).stem))
        items = feed.get("items", [])
        complete = [item for item in items if self._is_complete(item)]
        for item in complete:
            self.publish(FETCHED, self._article(item, source))
        skipped = len(items) - len(complete)
        if skipped:
            self.log(f"{source}: skipped {skipped} item(s) without {', '.join(REQUIRED)}")
        return {"source": source, "articles": len(complete), "skipped": skipped}

    @staticmethod
    def _is_complete(item: dict[str, Any]) -> bool:
        return all(item.get(key) for key in REQUIRED)

    @staticmethod
    def _article(item: dict[str, Any], source: str) -> Article:
        return {
            "article_id": str(item["id"]),
            "source": source,
            "title": " ".join(item["title"].split()),
            "summary": item.get("summary") or item.get("content_text", ""),
            "url": item["url"],
            "published": item.get("date_published", ""),
        }
