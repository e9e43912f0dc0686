"""A reader of the text format of Prometheus (0.0.4) that takes nothing but what the format allows, and promtool praises."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
LABEL_VALUE = re.compile(r'"((?:[^"\\\n]|\\[\\"n])*)"')
HELP_TEXT = re.compile(r"(?:[^\\\n]|\\[\\n])+")
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|Inf)|NaN")
PLAIN = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """All samples of one metric: (name, labels) -> value."""

    kind: str
    samples: dict[tuple[str, Labels], float]


def read_page(page: bytes) -> dict[str, Family]:
    """Read a page; an AssertionError for whatever breaks a rule."""
    text = page.decode("utf-8")
    assert text.endswith("\n"), "the last line must end"
    assert "\r" not in text
    families: dict[str, Family] = {}
    current = ""
    helped = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, helped, meaning = line.split(" ", 3)
            assert NAME.fullmatch(helped), line
            assert HELP_TEXT.fullmatch(meaning), line
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current == helped, f"{current} has no help"
            assert current not in families, f"{current} is torn apart"
            assert kind in ("counter", "gauge", "histogram"), line
            assert current.endswith("_total") == (kind == "counter"), "a counter, and nothing else, ends in _total"
            families[current] = Family(kind, {})
        else:
            _add_sample(families, current, line)
    for name, family in families.items():
        assert family.samples, f"{name} has no samples"
        if family.kind == "histogram":
            _check_histogram(name, family)
        elif family.kind == "counter":
            assert min(family.samples.values()) >= 0, name
    return families


def _add_sample(families: dict[str, Family], current: str, line: str) -> None:
    found = NAME.match(line)
    assert found, line
    name = found[0]
    kind = families[current].kind
    endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
    assert name in [current + ending for ending in endings], f"{line} stands below {current}"
    rest = line[found.end() :]
    labels: list[tuple[str, str]] = []
    if rest.startswith("{"):
        rest = _read_labels(rest[1:], labels, line)
    assert rest.startswith(" "), line
    assert NUMBER.fullmatch(rest[1:]), line
    assert len(dict(labels)) == len(labels), f"a label twice: {line}"
    key = (name, tuple(sorted(labels)))
    assert key not in families[current].samples, f"twice: {line}"
    families[current].samples[key] = float(rest[1:])


def _read_labels(rest: str, labels: list[tuple[str, str]], line: str) -> str:
    while True:
        name = LABEL_NAME.match(rest)
        assert name, line
        assert not name[0].startswith("__"), f"a reserved label: {line}"
        assert rest[name.end()] == "=", line
        value = LABEL_VALUE.match(rest, name.end() + 1)
        assert value, line
        labels.append((name[0], re.sub(r"\\.", lambda each: PLAIN[each[0]], value[1])))
        sign, rest = rest[value.end()], rest[value.end() + 1 :]
        if sign == "}":
            return rest
        assert sign == ",", line


def _check_histogram(name: str, family: Family) -> None:
    """Buckets go up to +Inf, hold ever more, and the last one holds what the count says."""
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            bounds = [float(text.replace("+Inf", "inf")) for label, text in labels if label == "le"]
            assert len(bounds) == 1, labels
            series.setdefault(tuple(each for each in labels if each[0] != "le"), []).append((bounds[0], value))
        else:
            assert "le" not in dict(labels)
    counts = {labels: value for (sample, labels), value in family.samples.items() if sample == f"{name}_count"}
    sums = {labels for sample, labels in family.samples if sample == f"{name}_sum"}
    assert series.keys() == counts.keys() == sums, name
    for labels, buckets in series.items():
        assert buckets == sorted(buckets), labels
        assert [value for _, value in buckets] == sorted(value for _, value in buckets), labels
        assert buckets[-1] == (inf, counts[labels]), labels
