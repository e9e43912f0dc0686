"""Whether one name may be a wrong spelling of another: a typing error, another case or separator, an abbreviation.

skuu / sku        orderId / order_id        qty / quantity        but not: min_price / max_price, item1 / item2
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress

from graphbus_core.compiler.rules.wiring import ProjectFacts
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.types import Schema, Type

_VOWELS = frozenset("aeiouy")


def near_match(word: str, known: Iterable[str]) -> str:
    """Return the only name of `known` that is near to `word` (see `are_near`); the empty string if no or several names are."""
    near = {name for name in known if name != word and are_near(word, name)}
    return near.pop() if len(near) == 1 else ""


def near_match_in_closed_set(word: str, known: Iterable[str]) -> str:
    """Return the one word of a closed set, such as the values of a Literal, that differs from `word` in one or two letters.

    The first letters must be equal, and a word of at most four letters may differ in only one. Return the empty string if there
    is no such word, or if the second nearest word is at most one letter further away.
    """
    nearest, *others = sorted((edit_distance(word, each), each) for each in known) or [(0, "")]
    distance, match = nearest
    is_near = 0 < distance <= (2 if len(word) > 4 else 1) and match[:1] == word[:1]
    return match if is_near and all(other > distance + 1 for other, _ in others) else ""


def wrong_type_data(name: str, wanted: Type) -> dict[str, str]:
    """Return the data of a finding about a value of the wrong type: `unfit`, its key; `texts`, allowed literals, one a line."""
    texts = [str(value) for each in (wanted, *wanted.args) if each.kind == "literal" for value in each.values]
    return {"unfit": name, **({"texts": "\n".join(texts)} if texts else {})}


def choice_data(names: Iterable[str], used: Iterable[str]) -> dict[str, str]:
    """Return the data of a finding about a wrong name: the names that may replace it, and those that its agent uses already."""
    return {"choices": " ".join(sorted(names)), "used": " ".join(sorted(used))}


def is_short_form(one: str, other: str) -> bool:
    """Return whether two names differ only in one word, which one of them shortens by leaving out vowels: `msg` for `message`."""
    pair = _find_differing_word(one, other)
    short, long = sorted(pair or ("", ""), key=len)
    return len(short) > 2 and not _VOWELS - {"y"} & set(short[1:]) and _is_abbreviation(short, long)


def are_singular_and_plural(one: str, other: str) -> bool:
    """Return whether one name is the plural of the other, such as `name` and `names`, so that neither is misspelled."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return long in (f"{short}s", f"{short}es") or (short.endswith("y") and long == f"{short[:-1]}ies")


def near_topic(topic: str, known: Iterable[str]) -> str:
    """Return the only topic of `known` that is near to `topic` (see `are_near_topics`); `""` if none or several are."""
    near = {name for name in known if name != topic and are_near_topics(topic, name)}
    return near.pop() if len(near) == 1 else ""


def are_near(one: str, other: str) -> bool:
    """Return whether two names of fields differ only in case and separators, or in a typing error or abbreviation of one word."""
    if _fold(one) == _fold(other):
        return True
    pair = _find_differing_word(one, other)
    return pair is not None and (_is_typo(*pair) or _is_abbreviation(*sorted(pair, key=len)))


def are_near_topics(one: str, other: str) -> bool:
    """Return whether two topics differ only in case and separators, or, unless one is a pattern, by a typing error in a part."""
    if _fold(one) == _fold(other):
        return True
    parts, other_parts = one.split("/"), other.split("/")
    if len(parts) != len(other_parts) or "*" in one + other:
        return False
    different = [(left.lower(), right.lower()) for left, right in zip(parts, other_parts, strict=True) if left != right]
    return len(different) == 1 and _is_typo(*different[0])


def differ_by_one_letter(one: str, other: str) -> bool:
    """Return whether two topics are near and differ by at most one letter that is added, left out, replaced or swapped."""
    return are_near_topics(one, other) and edit_distance(one.lower(), other.lower()) <= 1


def edit_distance(one: str, other: str) -> int:
    """Return the number of letters to insert, remove, replace or swap with their neighbour to turn one word into the other."""
    before: list[int] = []  # `before` and `older` are the last two rows of the table of distances
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _find_differing_word(one: str, other: str) -> tuple[str, str] | None:
    """Return the two words, one of each name, if two snake_case names differ in only one word; else None."""
    words, other_words = one.lower().split("_"), other.lower().split("_")
    if len(words) != len(other_words):
        return None
    different = [(left, right) for left, right in zip(words, other_words, strict=True) if left != right]
    return different[0] if len(different) == 1 else None


def _fold(name: str) -> str:
    """Return a name in lower case without separators."""
    return name.lower().replace("_", "").replace("-", "").replace("/", "")


def _is_typo(one: str, other: str) -> bool:
    """Return whether two words differ by so few letters for their length that one is likely a typing error of the other."""
    if _digits_in(one) != _digits_in(other):
        return False
    if one[:1] != other[:1]:  # two letters swapped at the start
        return len(one) == len(other) > 3 and one[:2] == other[1::-1] and one[2:] == other[2:]
    longest = max(len(one), len(other))
    allowed = 0 if longest < 3 else 1 if longest < 7 else 2
    return edit_distance(one, other) <= allowed


def _digits_in(word: str) -> str:
    """Return the digits of a word: those of names such as `item1` and `item2` tell them apart."""
    return "".join(filter(str.isdigit, word))


def _is_abbreviation(short: str, long: str) -> bool:
    """Return whether a word abbreviates another: `msg` of `message`, `desc` of `description`; not `order` of `order_id`."""
    if len(short) < 2 or len(long) < len(short) + 2 or short[0] != long[0] or not (short + long).isalpha():
        return False
    if long.startswith(short):
        return len(short) > 2
    letters = iter(long)
    return not _VOWELS & set(short[1:-1]) and all(letter in letters for letter in short)


# --- which of two names is misspelled -----------------------------------------------------------

_ENDINGS = (("s", 1), ("ed", 1), ("ed", 2), ("ing", 3))
"""Ending of an inflected word, and how many of its letters to drop: `update` of `updated`, `sort` of `sorted`."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def find_misspelled_name(names: tuple[str, str], project: ProjectFacts, ignored: Collection[SourceSpan]) -> str | None:
    """Return which of two names that differ in one word is misspelled: the one whose word occurs nowhere else in the project.

    Args:
        names: The two names. String literals that are equal to one of them do not count as occurrences.
        project: The project.
        ignored: The places of methods with a parameter of one of these names, whose text does not count.

    Returns:
        The misspelled name; the empty string if both words occur, or the names do not differ in one word; None if neither occurs.
    """
    words, other_words = map(_words, names)
    different = [pair for pair in zip(words, other_words, strict=False) if pair[0] != pair[1]]
    if len(words) != len(other_words) or len(different) != 1:
        return ""
    occurs_first, occurs_second = (_occurs(word, names, project, ignored) for word in different[0])
    if occurs_first and occurs_second:
        return ""
    return names[1] if occurs_first else names[0] if occurs_second else None


def _words(text: str) -> list[str]:
    """Return the words of a name or text in lower case: `["order", "id"]` for `orderId` and for `order_id`."""
    return [word.lower() for word in _WORDS.findall(text)]


def _possible_stems(word: str) -> set[str]:
    """Return a word and the shorter words from which it may be formed: `{"updated", "update", "updat"}` for `updated`."""
    return {word, *(word[:-drop] for ending, drop in _ENDINGS if word.endswith(ending) and len(word) - drop > 2)}


def _occurs(word: str, names: Iterable[str], project: ProjectFacts, ignored: Collection[SourceSpan]) -> bool:
    """Return whether a word, or a possible stem of it, occurs in the project; `find_misspelled_name` says what does not count."""
    for file in project.index.files:
        with suppress(BuildError):  # a file that cannot be read is no evidence
            source = project.source(file.path)
            text = source.text
            for span in ignored:
                text = text.replace(source.span_bytes(span).decode(), "") if span.path == file.path else text
            for name in names:
                text = text.replace(f'"{name}"', "").replace(f"'{name}'", "")
            found = [stem for stem in _possible_stems(word) if stem in text.lower()]
            if not set(found).isdisjoint(_words(text) if found else ()):
                return True
    return False


def missing_field_data(name: str, wanted: Schema) -> dict[str, str]:
    """Return the data of a finding about a missing field: `missing`, its name; `wanted`, the names of all declared fields."""
    return {"missing": name, "wanted": " ".join(sorted(wanted.names))}
