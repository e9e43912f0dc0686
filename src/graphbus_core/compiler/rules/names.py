"""When two names may be meant to be one: a slip of the finger, another case or separator, an abbreviation.

skuu / sku        orderId / order_id        qty / quantity        but not: min_price / max_price, item1 / item2
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from graphbus_core.compiler.rules.wiring import ProjectFacts
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.types import Schema

_VOWELS = frozenset("aeiouy")


def near_match(word: str, known: Iterable[str]) -> str:
    """Return the one name of `known` that `word` may be meant to be; the empty string when there is none or more than one."""
    near = {name for name in known if name != word and are_near(word, name)}
    return near.pop() if len(near) == 1 else ""


def choices_of(names: Iterable[str], used: Iterable[str]) -> dict[str, str]:
    """Give the names that may be meant, and those that this end uses otherwise, as the data of a finding holds them."""
    return {"choices": " ".join(sorted(names)), "used": " ".join(sorted(used))}


def is_short_form(one: str, other: str) -> bool:
    """Return whether one name is the other without its vowels, `msg` and `message`: hardly two words that both mean something."""
    pair = _only_difference(one, other)
    short, long = sorted(pair or ("", ""), key=len)
    return len(short) > 2 and not _VOWELS - {"y"} & set(short[1:]) and _is_abbreviation(short, long)


def are_one_and_many(one: str, other: str) -> bool:
    """Return whether one name is the plural of the other, `name` and `names`: two things, no slip."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return long in (f"{short}s", f"{short}es") or (short.endswith("y") and long == f"{short[:-1]}ies")


def near_topic(topic: str, known: Iterable[str]) -> str:
    """Return the one topic of `known` that `topic` may be meant to be, or the empty string."""
    near = {name for name in known if name != topic and are_near_topics(topic, name)}
    return near.pop() if len(near) == 1 else ""


def are_near(one: str, other: str) -> bool:
    """Return whether two names of fields differ so little that one is likely meant to be the other."""
    if _bare(one) == _bare(other):
        return True
    pair = _only_difference(one, other)
    return pair is not None and (_is_slip(*pair) or _is_abbreviation(*sorted(pair, key=len)))


def are_near_topics(one: str, other: str) -> bool:
    """Return whether two topics are the same but for one segment that is nearly the same, or but for case and separators."""
    if _bare(one) == _bare(other):
        return True
    mine, theirs = one.split("/"), other.split("/")
    if len(mine) != len(theirs) or "*" in one + other:
        return False
    different = [(left.lower(), right.lower()) for left, right in zip(mine, theirs, strict=True) if left != right]
    return len(different) == 1 and _is_slip(*different[0])


def is_slip_of_topic(one: str, other: str) -> bool:
    """Return whether two topics differ by one slip: a letter too many, too few, wrong or swapped."""
    return are_near_topics(one, other) and edit_distance(one.lower(), other.lower()) <= 1


def edit_distance(one: str, other: str) -> int:
    """Count the letters to insert, remove, replace or swap with their neighbour to make one word the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _only_difference(one: str, other: str) -> tuple[str, str] | None:
    """Return the one word by which two names differ, None when they differ otherwise."""
    mine, theirs = one.lower().split("_"), other.lower().split("_")
    if len(mine) != len(theirs):
        return None
    different = [(left, right) for left, right in zip(mine, theirs, strict=True) if left != right]
    return different[0] if len(different) == 1 else None


def _bare(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace("/", "")


def _is_slip(one: str, other: str) -> bool:
    if _digits(one) != _digits(other):
        return False
    if one[:1] != other[:1]:  # two letters swapped at the start
        return len(one) == len(other) > 3 and one[:2] == other[1::-1] and one[2:] == other[2:]
    longest = max(len(one), len(other))
    allowed = 0 if longest < 3 else 1 if longest < 7 else 2
    return edit_distance(one, other) <= allowed


def _digits(word: str) -> str:
    return "".join(filter(str.isdigit, word))


def _is_abbreviation(short: str, long: str) -> bool:
    """`msg` of `message`, `qty` of `quantity`, `desc` of `description`; not `order` of `order_id`."""
    if len(short) < 2 or len(long) < len(short) + 2 or short[0] != long[0] or not (short + long).isalpha():
        return False
    if long.startswith(short):
        return len(short) > 2
    letters = iter(long)
    return not _VOWELS & set(short[1:-1]) and all(letter in letters for letter in short)


# --- which of two names is a slip ---------------------------------------------------------------

_FORMS = (("s", 1), ("ed", 1), ("ed", 2), ("ing", 3))
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def slip_of(names: tuple[str, str], project: ProjectFacts, beyond: Collection[SourceSpan]) -> str | None:
    """Return the one of two names whose only other word is written nowhere else in the project.

    Args:
        names: As they are written in literals, which do not count.
        project: The project.
        beyond: Methods that do not count, for one of the names is their own.

    Returns:
        The empty string when both words are written, or the names differ otherwise; None when neither is.
    """
    ours, theirs = map(_words, names)
    different = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
    if len(ours) != len(theirs) or len(different) != 1:
        return ""
    known = [_is_written(word, names, project, beyond) for word in different[0]]
    if not any(known):
        return None
    return "" if all(known) else names[known[0]]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(text)]


def _stems(word: str) -> set[str]:
    """Return a word and what it may be a form of: `update` of `updated`."""
    return {word, *(word[:-drop] for ending, drop in _FORMS if word.endswith(ending) and len(word) - drop > 2)}


def _is_written(word: str, names: Iterable[str], project: ProjectFacts, beyond: Collection[SourceSpan]) -> bool:
    """Return whether a word is used otherwise than in the literals of two names, and beyond some methods."""
    for file in project.index.files:
        with suppress(BuildError):  # a file that cannot be read is no evidence
            source = project.source(file.path)
            text = source.text
            for span in beyond:
                text = text.replace(source.span_bytes(span).decode(), "") if span.path == file.path else text
            for name in names:
                text = text.replace(f'"{name}"', "").replace(f"'{name}'", "")
            found = [stem for stem in _stems(word) if stem in text.lower()]
            if not set(found).isdisjoint(_words(text) if found else ()):
                return True
    return False


def data_of_missing(name: str, wanted: Schema) -> dict[str, str]:
    """What a fix needs to know to give a field that is left out."""
    return {"missing": name, "wanted": " ".join(sorted(wanted.names))}
