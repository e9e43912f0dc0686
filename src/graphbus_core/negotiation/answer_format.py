"""The parser of a model's answer in text. Models are told its form by `answer_rules`, people by docs/answer-format.md.

    ## proposal                                section: word and rest of its heading
    title: Refuse negative prices             line: key and value
    ### edit search_replace agents/shop.py    part of the section
    ```old                                    block of the part
    ...
    ```

The parser accepts any heading level and case, bullets, bold text, CRLF, longer fences, tildes and a fence around it all.
`answers` turns the sections into typed data.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from graphbus_core.model.proposals import CodeChange


def edit_text(change: CodeChange) -> str:
    """Return a change in the form in which an answer states it."""
    heading = " ".join(filter(None, ("### edit", change.operation, change.file_path, change.target)))
    if change.operation == "search_replace":
        return f"{heading}\n{fence_code('old', change.old_code)}{fence_code('new', change.new_code)}"
    return f"{heading}\n" + (fence_code("python", change.new_code) if change.new_code else "")


def fence_code(label: str, code: str) -> str:
    """Return a fenced block. Its fence is longer than any run of backticks in the code."""
    fence = "```"
    while fence in code:
        fence += "`"
    body = code if code.endswith("\n") or not code else f"{code}\n"
    return f"{fence}{label}\n{body}{fence}\n"


# --- reading the structure of an answer -------------------------------------------------------------


SECTIONS = frozenset({"analysis", "proposal", "nothing", "evaluation", "decision"})
PARTS = frozenset({"edit", "evidence"})
KEYS = frozenset(
    {
        *("responsibility", "dependency", "expects", "issue"),
        *("title", "intent", "reason", "dst", "affects", "priority", "depends on", "contract"),
        *("decision", "confidence", "reasoning", "concern", "suggestion", "risk", "breaks"),
    }
)
SENTENCES = frozenset({"responsibility", "issue", "title", "reason", "reasoning", "concern", "suggestion"})
"""Keys whose values are sentences; they may continue on the next lines, up to an empty line."""

MAX_ANSWER_BYTES = 1_000_000
MAX_TEXT = 4_000
"""The largest number of characters of one value; longer ones are cut."""

_REASONING = re.compile(
    r"\A\s*<(think|thinking|reasoning)>.*?</\1>|\A(?:(?!^[ ]*[`~]{3}).)*?^</(?:think|thinking|reasoning)>[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
"""The reasoning that some local models print before an answer; with some chat templates its opening tag is missing."""
_UNCLOSED_REASONING = re.compile(r"\A\s*<(?:think|thinking|reasoning)>")
_BARE_HEADING = re.compile(r"(?:analysis|proposal|nothing|(?:evaluation|decision)\s+P\d+)\s*:?\s*", re.IGNORECASE)
"""A heading without `##`, alone on a line."""
_MARKS = "*_` "
_WRAPPER_LABELS = frozenset({"", "markdown", "md", "text", "txt"})
_FENCE = re.compile(r"(?P<lead>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<label>[^`]*)$")
_HEADING = re.compile(r"[ ]{0,3}(?P<level>#{1,6})[ \t]*(?P<text>[^#].*)$")
_CLOSING_MARKS = re.compile(r"\s+#*\s*$")
_LEADING_NUMBER = re.compile(r"^[\d.)\s]*")
_QUOTED = re.compile(r"`+([^`]+)`+|(\S+)")
_KEY_VALUE = re.compile(
    r"[ \t]*(?:[-*+•]\s+|\d+[.)]\s+)?[*_`]{0,3}(?P<key>[A-Za-z]+(?:[ _-]on)?)[*_`]{0,3}\s*[:：](?P<value>.*)$"
)


class AnswerBlock(NamedTuple):
    """A fenced block: the words after its opening fence, in lower case, and its text with a line end after each line."""

    label: tuple[str, ...]
    text: str


class AnswerPart(msgspec.Struct, kw_only=True):
    """A part of a section, `### edit ...` or `### evidence ...`: the rest of its heading, its blocks, and its other lines."""

    word: str
    rest: str
    blocks: list[AnswerBlock] = []
    text: list[str] = []


class AnswerSection(msgspec.Struct, kw_only=True):
    """A section: the words of its heading, `## word rest`, its (key, value) lines in order, and its parts."""

    word: str
    rest: str
    level: int = 2
    lines: list[tuple[str, str]] = []
    parts: list[AnswerPart] = []

    def values(self, *keys: str) -> tuple[str, ...]:
        """Return the values of these keys that are not empty, in their order."""
        return tuple(value for key, value in self.lines if key in keys and value)

    def first_value(self, key: str) -> str:
        """Return the first value of a key, or the empty string."""
        return next(iter(self.values(key)), "")


class AnswerFormError(ValueError):
    """The answer cannot be split into sections; the message says why, in a sentence for the model."""


def read_sections(text: str) -> tuple[AnswerSection, ...]:
    """Split an answer into its sections; text outside of sections is dropped.

    If there is no section, the answer is read again without a fence around it, then with headings that lack `##`.

    Raises:
        AnswerFormError: A fence or a tag of reasoning is not closed, or the answer is too large.
    """
    if len(text) > MAX_ANSWER_BYTES:
        raise AnswerFormError(f"Your answer has more than {MAX_ANSWER_BYTES} characters.")
    lines = _REASONING.sub("", text.replace("\r\n", "\n").replace("\r", "\n"), count=1).split("\n")
    if _UNCLOSED_REASONING.match("\n".join(lines[:20])):
        raise AnswerFormError("Your answer ends while you are still thinking: there is no closing tag.")
    inner = _unwrap_fence(lines)
    try:
        return _read_form(lines) or _read_form(inner) or _read_form(_mark_bare_headings(inner or lines))
    except AnswerFormError:
        if not inner:
            raise
    return _read_form(inner) or _read_form(_mark_bare_headings(inner))


def strip_reasoning(text: str) -> str:
    """Return a text without the reasoning that some models print before their answer."""
    return _REASONING.sub("", text, count=1)


def cut_at_stray_fence(text: str) -> str:
    """Return a text up to the first fence that is never closed; the whole text if there is none, or a section behind it."""
    lines = text.split("\n")
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if opened and set(line.strip()) == {opened[1][0]} and len(line.strip()) >= len(opened[1]):
            opened = None
        elif opened is None and fence:
            opened = number, fence["fence"]
    if opened is None or any(
        _split_heading(line.lstrip("# "))[0] in SECTIONS for line in lines[opened[0] :] if "#" in line
    ):
        return text
    return "\n".join(lines[: opened[0]])


def _mark_bare_headings(lines: list[str]) -> list[str]:
    """Return the lines with `##` before each line that is a heading but for this mark."""
    return [f"## {line}" if _BARE_HEADING.fullmatch(line) else line for line in lines]


def words_of(heading: str) -> list[str]:
    """Return the words of a heading, without backticks; what stands between backticks is one word."""
    return [quoted or bare for quoted, bare in _QUOTED.findall(heading)]


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text on one line, cut to `limit` characters, without invisible and control characters."""
    if not (text.isascii() and text.isprintable()):  # most texts are plain ASCII, so this saves time
        text = "".join(" " if char.isspace() else char for char in text if _is_visible(char))
    plain = " ".join(text.split())
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _is_visible(char: str) -> bool:
    return char.isspace() or not unicodedata.category(char).startswith("C")


def _unwrap_fence(lines: list[str]) -> list[str]:
    """Return the lines inside a fence around the whole answer; empty if there is no such fence."""
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if len(filled) < 2:
        return []
    opening, closing = _FENCE.match(lines[filled[0]]), lines[filled[-1]].strip()
    if not opening or opening["label"].strip().lower() not in _WRAPPER_LABELS:
        return []
    if set(closing) != set(opening["fence"][0]) or len(closing) < len(opening["fence"]):
        return []
    return lines[filled[0] + 1 : filled[-1]]


def _read_form(lines: list[str]) -> tuple[AnswerSection, ...]:
    """Return the sections in the lines of an answer; raise AnswerFormError if a block is not closed."""
    reader = _AnswerReader()
    for kind, value in _iterate_pieces(lines):
        if isinstance(value, AnswerBlock):
            reader.take_block(value)
        elif kind:
            reader.take_heading(kind, value)
        else:
            reader.take_line(value)
    return tuple(reader.sections)


def _iterate_pieces(lines: Iterable[str]) -> Iterator[tuple[int, str | AnswerBlock]]:
    """Yield (level, text) for each heading, (0, block) for each fenced block, and (0, line) for each other line."""
    waiting = iter(lines)
    for line in waiting:
        fence = _FENCE.match(line)
        heading = _HEADING.match(line)
        if fence:
            yield 0, _read_block(fence, waiting)
        elif heading:
            yield len(heading["level"]), heading["text"]
        elif _is_bold_heading(line):
            yield 6, line
        else:
            yield 0, line


def _is_bold_heading(line: str) -> bool:
    """Return whether a line is bold and begins with the word of a heading, such as `**Evaluation P001**`."""
    bare = line.strip()
    word = bare.strip(_MARKS).partition(" ")[0].lower()
    return bare.startswith("**") and bare.endswith("**") and word in SECTIONS | PARTS


def _read_block(opening: re.Match[str], lines: Iterator[str]) -> AnswerBlock:
    """Consume the lines up to the closing fence, and return the block without the indent of its fence.

    Raises:
        AnswerFormError: There is no closing fence.
    """
    fence, lead = opening["fence"], opening["lead"]
    body: list[str] = []
    for line in lines:
        bare = line.strip()
        if len(bare) >= len(fence) and not bare.strip(fence[0]):
            is_shifted = all(one.startswith(lead) for one in body if one.strip())
            text = "".join(f"{one.removeprefix(lead) if is_shifted else one}\n" for one in body)
            return AnswerBlock(tuple(re.split(r"[\s,]+", opening["label"].strip().lower())), text)
        body.append(line)
    raise AnswerFormError(f"A block that begins with {fence} is not closed.")


class _AnswerReader:
    """Collects the sections of an answer from its headings, blocks and lines, which must be passed in order."""

    def __init__(self) -> None:
        self.sections: list[AnswerSection] = []
        self._section: AnswerSection | None = None
        self._part: AnswerPart | None = None
        self._may_continue = False

    def take_heading(self, level: int, text: str) -> None:
        """Begin a section or a part; any other heading ends the part, and the section if it is not below it."""
        word, rest = _split_heading(text)
        self._may_continue = False
        if word in SECTIONS:
            self._section, self._part = AnswerSection(word=word, rest=rest, level=level, lines=[], parts=[]), None
            self.sections.append(self._section)
        elif word in PARTS and self._section:
            self._part = AnswerPart(word=word, rest=rest, blocks=[], text=[])
            self._section.parts.append(self._part)
        else:
            self._part = None
            if self._section and level <= self._section.level:
                self._section = None

    def take_block(self, block: AnswerBlock) -> None:
        """Add a block to the current part; outside of a part it is dropped."""
        self._may_continue = False
        if self._part:
            self._part.blocks.append(block)

    def take_line(self, line: str) -> None:
        """Add a line: as a key with its value, as the continuation of the last value, or to the text of the current part."""
        if not self._section:
            return
        match = _KEY_VALUE.match(line)
        key = re.sub(r"[_-]", " ", match["key"].lower()) if match else ""
        key = {"dependencies": "dependency", "responsibilities": "responsibility", "issues": "issue"}.get(key, key)
        key = {"concerns": "concern", "suggestions": "suggestion", "risks": "risk"}.get(key, key)
        if match and key in KEYS:
            self._section.lines.append((key, match["value"].strip().removeprefix("**").strip()))
            self._may_continue = key in SENTENCES
        elif line.strip() and self._may_continue:
            last, value = self._section.lines[-1]
            if len(value) <= MAX_TEXT:
                self._section.lines[-1] = (last, f"{value} {line.strip()}")
        else:
            self._may_continue = False
            if self._part and line.strip():
                self._part.text.append(line)


def _split_heading(text: str) -> tuple[str, str]:
    """Return the first word of a heading in lower case, and the rest, without a number before them and marks around them."""
    bare = _LEADING_NUMBER.sub("", _CLOSING_MARKS.sub("", text).strip("* ").lstrip(_MARKS))
    word, _, rest = bare.partition(" ")
    return word.strip("*_`:").lower(), rest.strip()
