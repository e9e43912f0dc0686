"""Stages fit together by their types, and a pipeline that does not fit is refused before it starts."""

import networkx as nx
import pytest

from graphbus_core.pipeline import Pipeline, PipelineError, PipelineFinished, Products


class Flour(str):
    """An input."""


class Dough(str):
    """Made of flour."""


class Bread(str):
    """Made of dough."""


@pytest.fixture
def bakery() -> Pipeline:
    pipeline = Pipeline("BAKERY")

    @pipeline.stage("KNEAD")
    def knead(flour: Flour) -> Dough:
        return Dough(f"kneaded {flour}")

    @pipeline.stage("BAKE")
    def bake(dough: Dough) -> Bread:
        return Bread(f"baked {dough}")

    return pipeline


def test_each_stage_gets_what_the_earlier_ones_made(bakery: Pipeline) -> None:
    products = bakery.run(Flour("flour"))
    assert products[Bread] == "baked kneaded flour"


def test_the_listener_hears_each_stage_before_it_runs(bakery: Pipeline) -> None:
    heard: list[str] = []
    bakery.run(Flour("flour"), on_stage=heard.append)
    assert heard == ["KNEAD", "BAKE"]


def test_a_missing_input_is_refused_before_the_first_stage_runs(bakery: Pipeline) -> None:
    heard: list[str] = []
    with pytest.raises(PipelineError, match="KNEAD needs Flour"):
        bakery.run(on_stage=heard.append)
    assert heard == []


def test_two_makers_of_one_product_are_refused(bakery: Pipeline) -> None:
    @bakery.stage("BUY_BREAD")
    def buy(flour: Flour) -> Bread:
        return Bread(f"bought instead of {flour}")

    with pytest.raises(PipelineError, match="BUY_BREAD makes Bread, which is there already"):
        bakery.run(Flour("flour"))


def test_a_stage_can_be_added_in_the_middle(bakery: Pipeline) -> None:
    class Rest(str):
        """A pause, for the dough."""

    @bakery.stage("REST", after="KNEAD")
    def rest(dough: Dough) -> Rest:
        return Rest(dough)

    assert bakery.names == ("KNEAD", "REST", "BAKE")
    assert bakery.run(Flour("flour"))[Rest] == "kneaded flour"


@pytest.mark.parametrize(
    ("name", "after", "message"), [("BAKE", "", "has a stage BAKE already"), ("EAT", "SERVE", "no stage SERVE")]
)
def test_a_stage_that_has_no_place_is_refused(bakery: Pipeline, name: str, after: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        bakery.stage(name, after=after)


def test_a_shorter_pipeline_leaves_the_original_alone(bakery: Pipeline) -> None:
    assert bakery.excluding("BAKE").names == ("KNEAD",)
    assert bakery.names == ("KNEAD", "BAKE")


def test_a_replaced_stage_keeps_its_place_and_may_take_other_inputs(bakery: Pipeline) -> None:
    def toast(flour: Flour) -> Bread:
        return Bread(f"toasted {flour}")

    other = bakery.replacing({"BAKE": toast})
    assert other.names == bakery.names
    assert other.run(Flour("flour"))[Bread] == "toasted flour"
    assert bakery.run(Flour("flour"))[Bread] == "baked kneaded flour"


def test_the_graph_shows_the_stages_in_their_order(bakery: Pipeline) -> None:
    assert list(nx.topological_sort(bakery.as_graph())) == ["KNEAD", "BAKE"]


def test_products_know_what_they_hold() -> None:
    products = Products(Flour("flour"))
    assert Flour in products
    assert products.get(Flour) == "flour"
    assert products.get(Bread) is None
    with pytest.raises(PipelineError, match="Flour was made twice"):
        products.add(Flour("more"))


def test_a_stage_that_finds_nothing_left_to_do_is_the_last_one() -> None:
    pipeline = Pipeline("SHORT")

    @pipeline.stage("LOOK")
    def look(word: str) -> int:
        raise PipelineFinished(0.5)

    @pipeline.stage("WORK")
    def work(number: int) -> float:
        raise AssertionError

    stages: list[str] = []
    products = pipeline.run("given", on_stage=stages.append)
    assert (products[float], products.get(int), stages) == (0.5, None, ["LOOK"])
