"""What the rules fix in natural code is what was meant: the text of the correct project, or one that says the same.

`pytest tests/natural/test_fixed.py -s` prints how many defects are fixed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.natural.collection import correct_projects, defects
from tests.unit.negotiation.test_realistic_defects import Outcome, fixed

CORRECT, DEFECTS = correct_projects(), defects()
SAID_OTHERWISE = {
    "tavern_objects: key of an object",
    "bank_results: class depended on is another one",
    "cinema_topics: Topic with a misspelled path in the reader's own Topic",
    "cinema_topics: call by name of a bare @schema_method with another argument",
    "cinema_topics: string publish beside a Topic with another key",
    "cinema_topics: typed call without the dependency",
    "clinic_structs: display where a Struct is declared",
    "farm_constants: payloads of a comprehension",
    "farm_constants: topic misspelled in the constant dict of a reader",
    "hotel_traps: dataclass whose field is read as a key",
    "hotel_traps: key of a dict that is read as an attribute",
    "library_strings: handler named like an event that wants a text",
    "library_strings: no @depends_on at all",
    "library_strings: scenario 5.1 with ** of the call",
    "library_strings: scenario 5.1 with **out to an own method",
    "library_strings: scenario 5.1 with depends_on alone",
    "library_strings: scenario 5.1 with the class as dependency",
    "library_strings: shared default",
    "library_strings: two publishers, one with another key",
    "library_strings: two publishers, one with another type",
    "metro_async: blocking call in an async handler",
    "metro_async: call without await",
    "metro_async: call without await, result not used",
    "mint_flow: another record in one branch",
    "mint_flow: field that a record of the reader does not have, for it is a property",
    "mint_flow: helper that a subclass overrides",
    "mint_flow: named tuple, which is a list in JSON",
    "plant_generic: text publisher of a Topic with another key",
    "post_flow: @subscribe above @classmethod",
    "post_flow: @subscribe above @staticmethod",
    "post_flow: a list in one @subscribe",
    "post_flow: bare except",
    "post_flow: import of a module that is not there",
    "post_flow: import of a name that is not there",
    "post_flow: override that drops @schema_method",
    "post_flow: publish in the constructor",
    "shop_typeddict: declared record and a value of another type",
    "shop_typeddict: declared record is not what a method sends",
    "shop_typeddict: literal that the record does not know",
    "shop_typeddict: reader of a TypedDict has its own with another type",
    "shop_typeddict: topic misspelled in a constant",
    "shop_typeddict: untyped helper returns another key",
    "warehouse_dataclass: annotation of a handler that is not imported",
    "warehouse_dataclass: missing dependency of an agent with a mixin",
    "warehouse_dataclass: record of the reader has another field",
    "tavern_objects: answer not awaited, although its name is annotated",
    "tavern_objects: answer not awaited, passed to a typed helper",
    "tavern_objects: answers in a list not awaited",
    "tavern_objects: answers summed before they are awaited",
    "tavern_objects: attribute misspelt",
}
"""The correct project has another text at the place; what is written instead was read by a person and says the same."""

LEFT_OUT_OTHERWISE = {
    'bank_results: , "amount": amount',
    "warehouse_dataclass: , size=parcel.size.value",  # an Enum goes over the bus as its value
}
"""The same for keys and arguments that are left out."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    root = tmp_path_factory.mktemp("fixed")
    found = {each.name: fixed(root / each.name, each.files) for each in CORRECT}
    return found | {each.key: fixed(root / str(number), each.files) for number, each in enumerate(DEFECTS)}


def test_nothing_is_fixed_that_was_not_meant(outcomes: Mapping[str, Outcome]) -> None:
    correct = {each.name: dict(each.files) for each in CORRECT}
    assert {each.name: outcomes[each.name].files for each in CORRECT} == correct
    changed = [each for each in DEFECTS if outcomes[each.key].files not in (correct[each.project], each.files)]
    assert {each.key for each in changed} == SAID_OTHERWISE
    assert [each.key for each in DEFECTS if not outcomes[each.key].left <= outcomes[each.key].found] == []


def test_most_that_are_found_are_fixed(outcomes: Mapping[str, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    known = {each.name: outcomes[each.name].found for each in CORRECT}
    found = [each for each in DEFECTS if outcomes[each.key].found - known[each.project]]
    left = [each for each in found if outcomes[each.key].left - known[each.project]]
    with capsys.disabled():
        print(f"\n{len(found)} defects are found by check, {len(found) - len(left)} of them are fixed")
    assert 1 - len(left) / len(found) >= 0.6


@pytest.mark.parametrize("project", CORRECT, ids=lambda project: project.name)
def test_what_is_left_out_is_given_again_or_left_to_a_person(tmp_path: Path, project) -> None:
    wrong = []
    places = [(path, cut) for path, text in project.files.items() for cut in _cuts(text)]
    for number, (path, (start, end)) in enumerate(places):
        text = project.files[path]
        files = {**project.files, path: text[:start] + text[end:]}
        after = fixed(tmp_path / str(number), files).files
        is_right = _unordered(after[path]) in map(_unordered, (text, files[path]))
        key = f"{project.name}: {text[start:end]}"
        if not (is_right and {**after, path: ""} == {**files, path: ""}) and key not in LEFT_OUT_OTHERWISE:
            wrong.append(key)
    assert wrong == []


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Give from where to where a key or an argument stands that is not the first, with the comma before it."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    assert text.isascii()
    for node in ast.walk(ast.parse(text)):
        entries = node.values if isinstance(node, ast.Dict) else [each.value for each in getattr(node, "keywords", ())]
        for before, entry in pairwise(entries):
            yield tuple(starts[each.end_lineno - 1] + each.end_col_offset for each in (before, entry))


def _unordered(text: str) -> str:
    """Give the tree of a text in which the order of keys and of arguments by name does not count."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            pairs = sorted(zip(node.keys, node.values, strict=True), key=lambda pair: ast.dump(pair[0] or pair[1]))
            node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        elif isinstance(node, ast.Call):
            node.keywords.sort(key=lambda each: each.arg or "")
    return ast.dump(tree)
