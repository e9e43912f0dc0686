"""What the rules mend in natural code is what was meant: the text of the correct project, or one that says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.natural.collection import correct_projects, defects
from tests.unit.negotiation.test_realistic_defects import mended

CORRECT, DEFECTS = correct_projects(), defects()

SAID_OTHERWISE = {
    "cinema_topics: call by name of a bare @schema_method with another argument",
    "cinema_topics: typed call without the dependency",
    "clinic_structs: display where a Struct is declared",
    "farm_constants: topic misspelled in the constant dict of a reader",
    "library_strings: no @depends_on at all",
    "library_strings: scenario 5.1 with depends_on alone",
    "library_strings: scenario 5.1 with the class as dependency",
    "library_strings: shared default",
    "plant_generic: text publisher of a Topic with another key",
    "post_flow: bare except",
    "shop_typeddict: topic misspelled in a constant",
    "warehouse_dataclass: missing dependency of an agent with a mixin",
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
