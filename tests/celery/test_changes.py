"""Each labelled change of a Celery project gets its label; precision and recall over all of them."""

from __future__ import annotations

import pytest

from tests.celery.collection import Change, answer_of, compare, read_changes

CHANGES = read_changes()


@pytest.mark.parametrize("change", CHANGES, ids=[each.name.replace(" ", "-") for each in CHANGES])
def test_a_change_is_judged_as_it_was_labelled(change: Change) -> None:
    verdict, ways, tasks, parameters = answer_of(compare(change.old, change.new))
    assert (verdict, ways) == (change.verdict, change.ways)
    assert tasks == ({change.task} - {""})
    assert not change.parameter or change.parameter in parameters


def test_precision_and_recall_are_complete_over_at_least_sixty_changes() -> None:
    found = [(each.verdict == "breaks", answer_of(compare(each.old, each.new))[0] == "breaks") for each in CHANGES]
    hits, labelled, reported = sum(map(all, found)), sum(each[0] for each in found), sum(each[1] for each in found)
    print(f"{len(CHANGES)} changes, {labelled} break: precision {hits}/{reported}, recall {hits}/{labelled}")
    assert len(CHANGES) >= 60
    assert hits == labelled == reported
