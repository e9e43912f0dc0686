"""The JSON notation of an answer: the schema of each task, which a server forces on the model, and the reader.

    {"proposals": [{"title": "...", "edits": [{"operation": "replace_body", "where": "shop/orders.py Orders.total", ...}]}]}
    {"evaluations": {"P004": {"reasoning": "...", "decision": "reject", ...}}}

It has the sections, keys and operations of the text (docs/answer-format.md) under the same names, and is read into the same
`AnswerSection`s. The schemas use only what OpenAI, Anthropic, vLLM, Ollama and llama.cpp understand; every key is required.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from graphbus_core.compiler.project import Project
from graphbus_core.editing.text.source_text import parse
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.negotiation.agents import AgentView
from graphbus_core.negotiation.answer_format import (
    KEYS,
    MAX_ANSWER_BYTES,
    AnswerBlock,
    AnswerFormError,
    AnswerPart,
    AnswerSection,
    clean_text,
    strip_reasoning,
    words_of,
)

Schema = dict[str, Any]

_SECTIONS = {"analysis": "analysis", "proposals": "proposal", "evaluations": "evaluation", "decisions": "decision"}
"""Key of the object -> the word of the sections that it holds."""
_MAX_PLACES = 300
"""In a larger project the places of edits are not listed in the schema: servers limit the number of values."""
_SENTENCE_CHARS = 400
_TITLE_CHARS = 120
_UNNAMED = "new_symbol"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


# --- schemas --------------------------------------------------------------------------------------


def analysis_schema() -> Schema:
    """Return the schema of an analysis."""
    keys = ("responsibility", "dependency", "expects", "issue")
    return _object(analysis=_object(**{key: _list_of(_text(_SENTENCE_CHARS), 5) for key in keys}))


def proposals_schema(view: AgentView, limit: int) -> Schema:
    """Return the schema of at most `limit` proposals; an empty list stands for `## nothing`."""
    others = [each.name for each in view.neighbours]
    earlier = [*map(str, range(1, limit)), *(each.proposal.proposal_id for each in (*view.history, *view.votes))]
    proposal = _object(
        reason=_text(_SENTENCE_CHARS),
        title=_text(_TITLE_CHARS),
        intent=_text(_TITLE_CHARS),
        **({"dst": _choice(["", *others])} if others else {}),
        affects=_list_of(_choice(others), len(others)) if others else _list_of(_text(_TITLE_CHARS), 3),
        priority={"type": "integer"},
        **({"depends_on": _list_of(_choice(earlier), len(earlier))} if earlier else {}),
        contract=_list_of(_text(_TITLE_CHARS), 5),
        edits=_edits(view),
    )
    return _object(proposals=_list_of(proposal, limit))


def evaluations_schema(view: AgentView, proposals: Iterable[str]) -> Schema:
    """Return the schema of one evaluation for each of these proposals."""
    evidence = _object(kind=_choice(["contract", "test"]), text={"type": "string"})
    common = {
        "confidence": {"type": "number"},
        "breaks": {"type": "boolean"},
        "risk": _choice(["low", "medium", "high"]),
        "concern": _list_of(_text(_SENTENCE_CHARS), 3),
        "evidence": _list_of(evidence, 3),
    }
    reasoning = _text(_SENTENCE_CHARS)
    vote = _object(reasoning=reasoning, decision=_choice(["accept", "reject", "defer"]), **common)
    counter = _object(
        reasoning=reasoning, decision=_choice(["counter"]), **common, title=_text(_TITLE_CHARS), edits=_edits(view)
    )
    return _object(evaluations=_object(**{name: {"anyOf": [vote, counter]} for name in proposals}))


def decision_schema(proposal: str) -> Schema:
    """Return the schema of an arbiter's decision."""
    decision = _object(reasoning=_text(_SENTENCE_CHARS), decision=_choice(["accept", "reject"]))
    return _object(decisions=_object(**{proposal: decision}))


def _edits(view: AgentView) -> Schema:
    """Return the schema of edits. Wherever an edit needs an existing definition, the schema lists those that there are."""
    definitions, files = _list_places(view)
    methods = [place for place in definitions if "." in _symbol_of(place)]
    classes = [place for place in definitions if place not in methods]
    code = {"type": "string"}
    forms = [
        _edit(["replace_body"], methods, code=code),
        _edit(["replace_symbol", "set_decorator_argument"], definitions, code=code),
        _edit(["add_symbol"], [*classes, *files], code=code),
        _edit(["add_import"], files, code=code),
        _edit(["search_replace"], [*definitions, *files], old=code, new=code),
        _edit(["delete_symbol"], definitions),
    ]
    return {**_list_of({"anyOf": forms}, 6), "minItems": 1}


def _edit(operations: list[str], places: Sequence[str], **code: Schema) -> Schema:
    """Return the schema of an edit with one of these operations at one of these places; without places, anywhere."""
    where = _choice(places) if 0 < len(places) <= _MAX_PLACES else _text(_TITLE_CHARS)
    return _object(operation=_choice(operations), where=where, **code)


def _list_places(view: AgentView) -> tuple[list[str], list[str]]:
    """Return the places of edits near an agent: `PATH Class` and `PATH Class.method` of all definitions, and the paths alone."""
    agents = [agent for agent in (view.definition, *view.neighbours) if agent]
    files = list(dict.fromkeys(_quote(agent.path) for agent in agents))
    return [place for agent in agents for place in _places_in(agent, view.project)], files


def _places_in(agent: AgentDefinition, project: Project) -> Iterator[str]:
    """Yield `PATH Class` and `PATH Class.method` for the class of an agent, in the order of the source."""
    try:
        tree = project.source(agent.path).parse()
    except BuildError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == agent.name:
            yield f"{_quote(agent.path)} {agent.name}"
            names = [child.name for child in node.body if isinstance(child, _DEFINITIONS)]
            yield from (f"{_quote(agent.path)} {agent.name}.{name}" for name in dict.fromkeys(names))


def _symbol_of(place: str) -> str:
    """Return the symbol of a place; empty if it is a path alone."""
    return "" if place.endswith("`") else place.partition("` " if place.startswith("`") else " ")[2]


def _quote(path: str) -> str:
    """Return a path as the heading of an edit names it: between backticks if it contains a space."""
    return f"`{path}`" if " " in path else path


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list_of(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": max(most, 1)}


def _choice(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _text(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


_AMPLE_ROOM = 4096
_CHARS_PER_TOKEN = 2
"""Of an answer in JSON whose lines small models indent at will; measured with three of them."""
_INDENTATION = 20
_LEAST_TEXT, _LEAST_CODE = 60, 200
_MOST_NUMBER = 16


_LEFT_OUT = (
    "evidence",
    "concern",
    "contract",
    "depends_on",
    "dst",
    "affects",
    "priority",
    "risk",
    "breaks",
    "confidence",
)
"""Keys that an answer can do without, in the order in which they are left out of a schema."""


def fit_schema(schema: Schema, room: int) -> Schema:
    """Return a schema whose longest answer fits into `room` tokens. An ample room needs no bounds.

    A small model that has begun to repeat itself goes on until the limit of tokens cuts its answer off. Bounds of texts and lists
    in the schema make it come to an end before. Lists become shorter first, then texts and code. Where that is not enough, the
    longer of several forms are left out (a counter-proposal, search_replace), then the keys of `_LEFT_OUT`. If the rest is too
    long, too, it is returned as it is; `least_room` tells.
    """
    if room >= _AMPLE_ROOM:
        return schema
    fitted = schema
    for fitted in _shorter_and_shorter(schema, room):
        if _longest(fitted) <= room * _CHARS_PER_TOKEN:
            break
    return fitted


def least_room(schema: Schema) -> int:
    """Return the tokens that the longest answer needs whose texts are as short as can be, with every form and key."""
    return -(-_longest(_bound(schema, 1, 0, 0)) // _CHARS_PER_TOKEN)


def _shorter_and_shorter(schema: Schema, room: int) -> Iterator[Schema]:
    """Yield bounded schemas in the order of `fit_schema`."""
    shares = [(most_items, 1.0) for most_items in (5, 3, 2, 1)] + [(1, 1 / 2**step) for step in range(1, 6)]
    yield from (_bound(schema, most_items, share, room) for most_items, share in shares)
    least = _without(_bound(schema, 1, 0, 0), "")
    yield least
    for key in _LEFT_OUT:
        least = _without(least, key)
        yield least


def _without(part: Any, key: str) -> Any:
    """Return a schema without a key, and with only the shortest of several forms of a vote or edit."""
    if isinstance(part, list):
        return [_without(each, key) for each in part]
    if not isinstance(part, dict):
        return part
    if "anyOf" in part:
        shortest = min(part["anyOf"], key=lambda each: ("edits" in each["properties"], "old" in each["properties"]))
        forms = [each for each in part["anyOf"] if each["properties"].keys() <= shortest["properties"].keys()]
        return {"anyOf": [_without(each, key) for each in forms]}
    if part.get("type") == "object":
        kept = {name: _without(value, key) for name, value in part["properties"].items() if name != key}
        return _object(**kept)
    return {name: _without(value, key) for name, value in part.items()}


def _bound(part: Any, most_items: int, share: float, room: int) -> Any:
    """Return a schema with lists of at most this many items, and with texts shortened to this share; code gets up to `room`."""
    if isinstance(part, list):
        return [_bound(each, most_items, share, room) for each in part]
    if not isinstance(part, dict):
        return part
    bounded = {key: _bound(value, most_items, share, room) for key, value in part.items()}
    if part.get("type") == "array":
        bounded["maxItems"] = min(part["maxItems"], most_items)
    elif part.get("type") == "string" and "enum" not in part:
        is_code = "maxLength" not in part
        longest = max(_LEAST_CODE, room * share) if is_code else max(_LEAST_TEXT, part["maxLength"] * share)
        bounded["maxLength"] = int(longest if is_code else min(longest, part["maxLength"]))
    return bounded


def _longest(part: Schema) -> int:
    """Return the characters of the longest answer that a bounded schema admits, with some indentation on each line."""
    if "anyOf" in part:
        return max(map(_longest, part["anyOf"]))
    if "enum" in part:
        return max(map(len, part["enum"])) + 2
    if part["type"] == "object":
        return sum(len(key) + 5 + _INDENTATION + _longest(value) for key, value in part["properties"].items())
    if part["type"] == "array":
        return int(part["maxItems"]) * (_longest(part["items"]) + _INDENTATION)
    return int(part.get("maxLength", _MOST_NUMBER))


# --- the reader ---------------------------------------------------------------------------------


def looks_like_json(text: str) -> bool:
    """Return whether an answer is meant as JSON: an object, perhaps in a fenced block."""
    return _strip_wrapping(text).startswith("{")


def read_json(text: str) -> tuple[AnswerSection, ...]:
    """Return the sections of an answer in JSON.

    Raises:
        AnswerFormError: It is no JSON object, or a value has a type that cannot be there.
    """
    if len(text) > MAX_ANSWER_BYTES:
        raise AnswerFormError(f"Your answer has more than {MAX_ANSWER_BYTES} characters.")
    try:
        answer = json.loads(_strip_wrapping(text), object_pairs_hook=_refuse_repeated_keys)
    except (ValueError, RecursionError) as error:
        raise AnswerFormError(f"Your answer is not valid JSON: {error}.") from None
    if not isinstance(answer, dict):
        raise AnswerFormError("Your answer must be a JSON object.")
    known = {word: answer[key] for key, word in _SECTIONS.items() if key in answer}
    if not known:
        raise AnswerFormError(f"The JSON object has none of the keys {', '.join(_SECTIONS)}.")
    if known.get("proposal") == []:
        return (AnswerSection(word="nothing", rest=""),)
    return tuple(section for word, value in known.items() for section in _read_sections(word, value))


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these pairs; raise ValueError for a key that occurs twice, as one value would win silently."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {clean_text(key, 40)!r} occurs twice")
        found[key] = value
    return found


def _strip_wrapping(text: str) -> str:
    """Return a text without the reasoning before it, a byte order mark, blanks and a fence around it."""
    bare = strip_reasoning(text).strip("\ufeff \t\r\n")
    if bare.startswith("```") and bare.endswith("```"):
        bare = bare.strip("`").strip()
        return bare[4:].strip() if bare[:4].lower() == "json" else bare
    return bare


def _read_sections(word: str, value: object) -> Iterator[AnswerSection]:
    """Yield the sections in the value of one key: of a list, of an object by proposal, or of one object."""
    if word in ("evaluation", "decision") and isinstance(value, dict):
        named = list(value.items())
    else:
        named = [("", each) for each in (value if isinstance(value, list) else [value])]
    for rest, fields in named:
        if not isinstance(fields, dict):
            raise AnswerFormError(f"The {word} {rest or 'in your answer'} must be a JSON object.")
        parts = [*_read_parts(fields, "edits", _read_edit), *_read_parts(fields, "evidence", _read_evidence)]
        yield AnswerSection(word=word, rest=rest, lines=[*_read_lines(fields)], parts=parts)


def _read_lines(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, text) for each value of a section; a list gives a line for each of its items."""
    for name, value in fields.items():
        key = name.replace("_", " ")
        for each in value if isinstance(value, list) else [value]:
            if key in KEYS and isinstance(each, str | int | float):
                yield key, ("yes" if each else "no") if isinstance(each, bool) else str(each)


def _read_parts(fields: dict[str, Any], key: str, read: Callable[[dict[str, str]], AnswerPart]) -> Iterator[AnswerPart]:
    """Yield a part for each item under a key; raise AnswerFormError if they are no list of objects with strings."""
    items = fields.get(key) or []
    if not isinstance(items, list):
        raise AnswerFormError(f"`{key}` must be a list.")
    for each in items:
        if not isinstance(each, dict) or not all(isinstance(value, str) for value in each.values()):
            raise AnswerFormError(f"`{key}` must be a list of objects whose values are strings.")
        yield read(each)


def _read_edit(edit: dict[str, str]) -> AnswerPart:
    blocks = [AnswerBlock((name,), _end_line(edit[name])) for name in ("old", "new", "code") if name in edit]
    operation, where = edit.get("operation", ""), edit.get("where", "").strip()
    if operation == "add_symbol":
        where = _name_addition(where, edit.get("code", ""))
    return AnswerPart(word="edit", rest=f"{operation} {where}", blocks=blocks)


def _name_addition(where: str, code: str) -> str:
    """Return the place of a definition that is added, ending with its name: `where` may be the class or file that gets it."""
    words = words_of(where)
    if not 1 <= len(words) <= 2:
        return where
    symbol, name = "".join(words[1:]).removesuffix("()"), _name_in(code)
    if symbol.rpartition(".")[2] == name or (name == _UNNAMED and "." in symbol):
        return where
    return f"{_quote(words[0])} {symbol}.{name}" if symbol else f"{where} {name}"


def _name_in(code: str) -> str:
    """Return the name of the definition in a code; another one if there is none, which the gate will refuse."""
    try:
        first = parse(textwrap.dedent(code)).body[0]
    except (SyntaxError, IndexError):
        return _UNNAMED
    return first.name if isinstance(first, _DEFINITIONS) else _UNNAMED


def _read_evidence(evidence: dict[str, str]) -> AnswerPart:
    text = evidence.get("text", "")
    return AnswerPart(word="evidence", rest=evidence.get("kind", ""), blocks=[AnswerBlock((), _end_line(text))])


def _end_line(code: str) -> str:
    return code if not code or code.endswith("\n") else f"{code}\n"
