"""What the rules mend in natural code is what was meant: the text of the correct project, or one that says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.natural.collection import correct_projects, defects
from tests.unit.negotiation.test_realistic_defects import mended

CORRECT, DEFECTS = correct_projects(), defects()

SAID_OTHERWISE = {
    "bank_results: class depended on is another one",
    "cinema_topics: Topic with a misspelled path in the reader's own Topic",
    "cinema_topics: call by name of a bare @schema_method with another argument",
    "cinema_topics: string publish beside a Topic with another key",
    "cinema_topics: typed call without the dependency",
    "clinic_structs: display where a Struct is declared",
    "farm_constants: payloads of a comprehension",
    "farm_constants: topic misspelled in the constant dict of a reader",
    "library_strings: no @depends_on at all",
    "library_strings: scenario 5.1 with ** of the call",
    "library_strings: scenario 5.1 with depends_on alone",
    "library_strings: scenario 5.1 with the class as dependency",
    "library_strings: shared default",
    "library_strings: two publishers, one with another key",
    "library_strings: two publishers, one with another type",
    "metro_async: blocking call in an async handler",
    "metro_async: call without await",
    "metro_async: call without await, result not used",
    "plant_generic: text publisher of a Topic with another key",
    "post_flow: @subscribe above @classmethod",
    "post_flow: @subscribe above @staticmethod",
    "post_flow: a list in one @subscribe",
    "post_flow: bare except",
    "post_flow: override that drops @schema_method",
    "post_flow: publish in the constructor",
    "post_flow: schema of a list against a dict",
    "shop_typeddict: declared record and a value of another type",
    "shop_typeddict: declared record is not what a method sends",
    "shop_typeddict: topic misspelled in a constant",
    "shop_typeddict: untyped helper returns another key",
    "warehouse_dataclass: annotation of a handler that is not imported",
    "warehouse_dataclass: missing dependency of an agent with a mixin",
    "warehouse_dataclass: record of the reader has another field",
}
"""The correct project has another text at the place; what is written instead was read by a person and says the same."""


@pytest.mark.parametrize("project", CORRECT, ids=lambda project: project.name)
def test_nothing_is_mended_that_was_not_meant(tmp_path: Path, project) -> None:
    wanted = mended(tmp_path / "correct", project.files).files
    assert wanted == project.files
    wrong = []
    for number, defect in enumerate(each for each in DEFECTS if each.project == project.name):
        outcome = mended(tmp_path / str(number), defect.files)
        assert outcome.left <= outcome.found, defect.key
        if outcome.files not in (wanted, defect.files) and defect.key not in SAID_OTHERWISE:
            wrong.append(defect.key)
    assert wrong == []
