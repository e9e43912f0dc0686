"""The draw of functions and messages for readers: it can be repeated, and each message has an example."""

from __future__ import annotations

import pytest

from graphbus_core.errors.register import REGISTER
from scripts.draw import EXAMPLES, draw, find_functions, find_raised, read_verdicts, render_message


def test_the_same_seed_draws_the_same_and_another_one_something_else() -> None:
    first, again, other = ([*draw(seed, 60, 40, {})] for seed in (1, 1, 2))
    assert first == again
    assert first[3:] != other[3:]
    assert len([line for line in first if line.startswith("| ") and line[2].isdigit()]) == 100


@pytest.mark.parametrize("code", sorted(set(REGISTER) - {"GBE001"}))
def test_each_message_has_an_example_that_fills_all_of_it(code: str) -> None:
    shown = render_message(code)
    assert f"[{code}]" in shown
    assert "{" not in shown.replace("`{...}`", "") or code in {"GBE130", "GBE737"}


def test_every_code_is_drawn_from_a_place_that_names_it() -> None:
    assert set(find_raised()) == set(EXAMPLES)
    assert len(list(find_functions())) > 3000


def test_verdicts_are_kept_when_the_table_is_made_again() -> None:
    table = "\n".join(draw(1, 3, 2, {}))
    judged = table.replace(" |  |  |  |", " | clear | unclear: a \\| b | clear |")
    assert judged != table
    assert "\n".join(draw(1, 3, 2, read_verdicts(judged))) == judged
