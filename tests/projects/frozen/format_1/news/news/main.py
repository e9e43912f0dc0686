"""The entry point: `graphbus run .graphbus/ --entrypoint news.main:run`."""

from __future__ import annotations

from pathlib import Path

from graphbus_core import LiveGraph

FEEDS = Path(__file__).parents[1] / "feeds"
DIGEST = "digest.md"


def run(graph: LiveGraph) -> None:
    """Read every feed and write the digest into the current folder."""
    for feed in sorted(FEEDS.glob("*.json")):
        graph.call("FeedReader", "read_feed", path=str(feed))
    counts = graph.call("DigestWriter", "write_digest", path=DIGEST)
    print(f"Digest of {counts['articles']} articles in {DIGEST}, {counts['duplicates']} retelling(s) left out.")
