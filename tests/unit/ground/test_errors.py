"""A refusal says what is wrong, where, and what to do."""

import pytest

from graphbus_core.errors import BuildError, Place, SeveralErrors, UsageError, did_you_mean, raise_all


@pytest.mark.parametrize(
    ("place", "shown"),
    [(Place("a.py"), "a.py"), (Place("a.py", 3), "a.py:3"), (Place("a.py", 3, 7), "a.py:3:7")],
)
def test_a_place_shows_what_is_known_of_it(place: Place, shown: str) -> None:
    assert str(place) == shown


def test_the_sentence_is_built_from_the_data() -> None:
    error = BuildError("GBE210", where=Place("agents/new.py", 12), name="Shop", other="agents/old.py:3")
    assert str(error) == (
        "agents/new.py:12: Two agents are named Shop; the other one is at agents/old.py:3. [GBE210]\n"
        "  hint: Rename one of the classes. The names of agents must be unique in a graph."
    )
    assert error.data["name"] == "Shop"
    assert error.exit_status == 3


def test_missing_data_is_a_mistake_of_ours_and_shows_at_once() -> None:
    with pytest.raises(KeyError):
        BuildError("GBE210", name="Shop")


def test_no_failure_raises_nothing() -> None:
    raise_all([])


def test_one_failure_is_raised_as_it_is() -> None:
    error = UsageError("GBE101", path="nowhere")
    with pytest.raises(UsageError) as caught:
        raise_all([error])
    assert caught.value is error


def test_several_failures_are_all_told_and_the_first_gives_the_status() -> None:
    errors = [BuildError("GBE204", where=Place("a.py"), reason="x", advice=""), UsageError("GBE101", path="nowhere")]
    with pytest.raises(SeveralErrors) as caught:
        raise_all(errors)
    assert caught.value.errors == tuple(errors)
    assert caught.value.status == 3
    assert "a.py" in str(caught.value)
    assert "nowhere" in str(caught.value)


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [("order_idd", " Did you mean 'order_id'?"), ("zzz", ""), ("", "")],
)
def test_a_near_name_is_suggested(word: str, suggestion: str) -> None:
    assert did_you_mean(word, {"order_id", "items"}) == suggestion
