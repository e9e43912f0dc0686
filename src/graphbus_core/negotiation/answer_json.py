"""The JSON notation of an answer: the schema of each task, which a server forces on the model, and the reader.

    {"proposals": [{"title": "...", "edits": [{"operation": "replace_body", "where": "shop/orders.py Orders.total", ...}]}]}
    {"evaluations": {"P004": {"reasoning": "...", "decision": "reject", ...}}}

It has the sections, keys and operations of the text (docs/answer-format.md) under the same names, and is read into the same
`AnswerSection`s. The schemas use only what OpenAI, Anthropic, vLLM, Ollama and llama.cpp understand; every key is required.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from graphbus_core.compiler.project import Project
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
)

Schema = dict[str, Any]

_SECTIONS = {"analysis": "analysis", "proposals": "proposal", "evaluations": "evaluation", "decisions": "decision"}
"""Key of the object -> the word of the sections that it holds."""
_MAX_PLACES = 300
"""In a larger project the places of edits are not listed in the schema: servers limit the number of values."""
_SENTENCE_CHARS = 400
_TITLE_CHARS = 120
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
    methods, definitions, files = _list_places(view)
    code = {"type": "string"}
    forms = [
        _edit(["replace_body"], methods, code=code),
        _edit(["replace_symbol", "set_decorator_argument"], definitions, code=code),
        _edit(["add_symbol"], [], code=code),
        _edit(["add_import"], files, code=code),
        _edit(["search_replace"], [*definitions, *files], old=code, new=code),
        _edit(["delete_symbol"], definitions),
    ]
    return {**_list_of({"anyOf": forms}, 6), "minItems": 1}


def _edit(operations: list[str], places: Sequence[str], **code: Schema) -> Schema:
    """Return the schema of an edit with one of these operations at one of these places; without places, anywhere."""
    where = _choice(places) if 0 < len(places) <= _MAX_PLACES else _text(_TITLE_CHARS)
    return _object(operation=_choice(operations), where=where, **code)


def _list_places(view: AgentView) -> tuple[list[str], list[str], list[str]]:
    """Return the places of edits near an agent: `PATH Class.method` of methods, of all definitions, and the paths alone."""
    agents = [agent for agent in (view.definition, *view.neighbours) if agent]
    files = list(dict.fromkeys(_quote(agent.path) for agent in agents))
    definitions = [place for agent in agents for place in _places_in(agent, view.project)]
    return [place for place in definitions if "." in place.rpartition(" ")[2]], definitions, files


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


_SMALL_ROOM, _TINY_ROOM = 1500, 600
_AMPLE_ROOM = 4096


def fit_schema(schema: Schema, room: int) -> Schema:
    """Return a schema whose answers usually fit into `room` tokens; from 4,096 tokens on, the schema as it is.

    A small model that has begun to repeat itself goes on until the limit of tokens cuts its answer off. Bounds of texts and lists
    in the schema make it come to an end before.
    """
    if room >= _AMPLE_ROOM:
        return schema
    most_items = 1 if room < _TINY_ROOM else 2 if room < _SMALL_ROOM else 5

    def fit(part: Any) -> Any:
        if isinstance(part, list):
            return [fit(each) for each in part]
        if not isinstance(part, dict):
            return part
        fitted = {key: fit(value) for key, value in part.items()}
        if part.get("type") == "array":
            fitted["maxItems"] = min(part["maxItems"], most_items)
        elif part.get("type") == "string" and "enum" not in part:
            is_code = "maxLength" not in part
            fitted["maxLength"] = max(200, room) if is_code else min(part["maxLength"], max(60, room // 8))
        return fitted

    return {key: fit(value) for key, value in schema.items()}


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
    return AnswerPart(word="edit", rest=f"{edit.get('operation', '')} {edit.get('where', '')}", blocks=blocks)


def _read_evidence(evidence: dict[str, str]) -> AnswerPart:
    text = evidence.get("text", "")
    return AnswerPart(word="evidence", rest=evidence.get("kind", ""), blocks=[AnswerBlock((), _end_line(text))])


def _end_line(code: str) -> str:
    return code if not code or code.endswith("\n") else f"{code}\n"
