"""A pipeline of stages, each hearing what the one before says; errors in one shape."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Optional

from graphbus_core import Event, GraphBusNode, depends_on, schema_method, subscribe

OUTCOME = {"status": str, "error": Optional[str], "count": int}


def outcome(count: int, error: Optional[str] = None) -> dict[str, Any]:
    return {"status": "error" if error else "ok", "error": error, "count": count}


class Collector(GraphBusNode):
    """Reads feeds."""

    @schema_method(input_schema={"folder": str, "pattern": str}, output_schema=OUTCOME)
    def collect(self, folder: str, pattern: str = "*.json") -> dict[str, Any]:
        count = 0
        for path in sorted(Path(folder).glob(pattern)):
            try:
                articles = json.loads(path.read_text())
            except ValueError as error:
                return outcome(count, f"{path.name}: {error}")
            for article in articles:
                if not isinstance(article, dict):
                    continue
                count += 1
                self.publish("/Article/Collected", {"source": path.stem, **article})
        if not count:
            self.publish("/Article/None", {"folder": folder})
        return outcome(count)


class Cleaner(GraphBusNode):
    """Removes what is not needed."""

    words = {"a", "the"}

    @subscribe("/Article/Collected")
    def clean(self, event: Event) -> None:
        title, body = event["title"], event.get("body") or ""
        cleaned = {"id": event.event_id, "title": title.strip(), "words": self._words(body)}
        self.publish("/Article/Cleaned", cleaned)

    def _words(self, body: str, seen: frozenset[str] = frozenset()) -> list[str]:
        return [word for word in body.lower().split() if word not in self.words | seen]


@depends_on("Cleaner", "Collector")
class Ranker(GraphBusNode):
    """Orders articles."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[str, int] = {}

    @subscribe("/Article/Cleaned")
    def rank(self, id, title, words=None, *, boost: int = 1, **rest):
        score = len(words or ()) * boost
        self.ranks[id] = score
        for topic in ("/Article/Ranked", "/Article/Scored"):
            self.publish(topic, {"id": id, "title": title, "score": score, "extra": rest})

    @schema_method({"limit": int}, {"articles": list[dict[str, Any]]})
    def top(self, limit: int) -> dict[str, Any]:
        ranked = sorted(self.ranks.items(), key=lambda pair: -pair[1])
        return {"articles": [{"id": key, "score": value} for key, value in ranked[:limit]]}


class Editor(GraphBusNode):
    """Publishes what ranks high."""

    @subscribe("/Article/Ranked")
    def on_ranked(self, payload: dict[str, Any]) -> None:
        if payload["score"] > 10:
            self._print(**payload)

    def _print(self, id: str, title: str, **_: object) -> None:
        with contextlib.suppress(OSError):
            Path(f"/tmp/{id}.txt").write_text(title)

    @subscribe("/Article/None")
    @subscribe("/Article/Scored")
    def note(self, event):
        match event.topic.rsplit("/", 1):
            case [_, "None"]:
                self.log("nothing in %s", event["folder"])
            case [_, "Scored"]:
                self.log("%s: %s", event["title"], event["score"])

    @schema_method({"id": str}, OUTCOME)
    def retract(self, id: str) -> dict[str, Any]:
        try:
            Path(f"/tmp/{id}.txt").unlink()
        except FileNotFoundError:
            pass
        except:
            self.log("cannot retract %s", id)
            raise
        return outcome(1)


class Printer(GraphBusNode):
    """Prints, and says how it went like the others."""

    @schema_method({"text": str}, {"status": str, "error": str | None})
    def print_text(self, text: str) -> dict[str, Any]:
        if not text:
            return {"status": "error", "error": "nothing to print"}
        self.log(text)
        return {"status": "ok", "error": None}
