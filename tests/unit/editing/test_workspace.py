"""The virtual tree: what agents see, while the files stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.editing.edits import symbol_text
from graphbus_core.editing.rungs.codes import refusal_of_edit
from graphbus_core.errors import EditError
from tests.unit.editing.shop_project import Shop

ORDERS, INVENTORY = "agents/orders.py", "agents/inventory.py"


def test_a_commit_changes_the_tree_and_not_the_disk(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    before = (tmp_path / ORDERS).read_bytes()

    shop.workspace.commit(
        shop.proposal(shop.change(ORDERS, "", '"sum": total})', "search_replace", '"total": total})'))
    )

    agent = shop.workspace.project.agent("Orders")
    assert agent is not None
    assert agent.publications[0].payload is not None
    assert "sum" in agent.publications[0].payload.names
    assert (tmp_path / ORDERS).read_bytes() == before
    assert shop.workspace.changed_files() == {ORDERS: (before, before.replace(b'"total": total})', b'"sum": total})'))}


def test_changes_of_one_proposal_stand_or_fall_together(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    good = shop.change(INVENTORY, "", "< 6", "search_replace", "< 5")
    bad = shop.change(ORDERS, "", "x", "search_replace", "not there")

    with pytest.raises(EditError) as caught:
        shop.workspace.commit(shop.proposal(good, bad))

    assert caught.value.code == "GBE307"
    assert shop.workspace.changed_files() == {}


@pytest.mark.parametrize("path", ["agents/prices.py", "nothing.py", "../x.py"])
def test_only_files_with_agents_can_change(tmp_path: Path, path: str) -> None:
    shop = Shop(tmp_path)

    with pytest.raises(EditError) as caught:
        shop.workspace.preview_project([shop.change(path, "", "b", "search_replace", "a")])

    assert caught.value.code == "GBE323"


def test_the_digest_tells_states_apart_and_knows_them_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    start = shop.workspace.digest

    shop.workspace.commit(shop.proposal(shop.change(ORDERS, "", "3.5", "search_replace", "2.5")))
    changed = shop.workspace.digest
    shop.workspace.commit(shop.proposal(shop.change(ORDERS, "", "2.5", "search_replace", "3.5")))

    assert changed != start
    assert shop.workspace.digest == start
    assert shop.workspace.changed_files() == {}


# --- what others have overtaken --------------------------------------------------------------

CREATED = 'CREATED = "/Order/Created"'


def test_a_change_for_an_earlier_text_is_merged_into_the_present_one(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    text = symbol_text(shop.workspace.file_data(ORDERS), "Orders")
    whole = shop.change(ORDERS, "Orders", text.replace("2.5 * count", "3.5 * count"))
    describe = shop.change(ORDERS, "Orders.describe", "def describe(self, order: dict) -> str:\n    return repr(order)")
    shop.workspace.commit(shop.proposal(describe))

    assert shop.workspace.merged_paths([whole]) == (ORDERS,)
    shop.workspace.commit(shop.proposal(whole))

    assert b"3.5 * count" in shop.workspace.file_data(ORDERS)
    assert b"return repr(order)" in shop.workspace.file_data(ORDERS)


def test_a_change_that_contradicts_what_was_accepted_since_is_refused_by_the_name_of_the_symbol(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    text = symbol_text(shop.workspace.file_data(ORDERS), "Orders")
    first = shop.change(ORDERS, "Orders", text.replace("2.5 * count", "3.5 * count"))
    second = shop.change(ORDERS, "Orders", text.replace("2.5 * count", "4.5 * count"))
    shop.workspace.commit(shop.proposal(first))
    before = shop.workspace.file_data(ORDERS)

    with pytest.raises(EditError, match=r"conflicts with another change to Orders\.order") as caught:
        shop.workspace.commit(shop.proposal(second))

    assert caught.value.code == "GBE317"
    assert "3.5 * count" in caught.value.hint
    assert refusal_of_edit(caught.value).code == "G1.conflict"
    assert shop.workspace.file_data(ORDERS) == before


def test_what_does_not_parse_together_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    base = "\n".join(f"{name} = {name!r}" for name in ("one", "two", "three", "four", "five"))
    shop.workspace.commit(shop.proposal(shop.change(ORDERS, "", f"{CREATED}\n{base}", "search_replace", CREATED)))
    one, five = "one = 'one'", "five = 'five'"
    text = base.replace(one, 'one = """').replace(five, '"""')
    shop.workspace.commit(shop.proposal(shop.change(ORDERS, "", text, "search_replace", base)))
    theirs = shop.change(ORDERS, "", base.replace("'three'", '"""three"""'), "search_replace", base)

    with pytest.raises(EditError, match="makes the file invalid Python") as caught:
        shop.workspace.preview_files([theirs])

    assert caught.value.code == "GBE318"
    assert refusal_of_edit(caught.value).code == "G1.conflict"


def test_what_a_change_makes_is_computed_once_for_each_state(tmp_path: Path) -> None:
    """The gate, those who judge and the commit ask for the same project."""
    shop = Shop(tmp_path)
    change = shop.change(ORDERS, "", "3.5", "search_replace", "2.5")
    trial = shop.workspace.preview_project([change])

    assert shop.workspace.preview_project([change]) is trial
    assert shop.workspace.project.with_files(shop.workspace.preview_files([change])) is trial
    shop.workspace.preview_files([change]).clear()
    shop.workspace.commit(shop.proposal(change))

    assert shop.workspace.project is trial
    assert [path for path, _ in shop.workspace.changed_files().items()] == [ORDERS]


def test_what_a_change_made_before_a_commit_is_not_taken_for_what_it_makes_after(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first = shop.change(ORDERS, "", "3.5", "search_replace", "2.5")
    second = shop.change(INVENTORY, "", "< 6", "search_replace", "< 5")
    alone = shop.workspace.preview_project([second])

    shop.workspace.commit(shop.proposal(first))

    both = shop.workspace.preview_project([second])
    assert b"2.5 * count" in alone.source(ORDERS).data
    assert b"3.5 * count" in both.source(ORDERS).data
    assert b"< 6" in both.source(INVENTORY).data
