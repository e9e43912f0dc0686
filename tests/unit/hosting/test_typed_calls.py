"""Methods that declare typed classes can be called with objects of them, and with the JSON that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from graphbus_core import GraphBusNode, connect, publishes, schema_method, subscribe
from graphbus_core.errors import RunError


@dataclass
class Item:
    sku: str
    qty: int = 1


class Movie(TypedDict):
    title: str


@dataclass
class Total:
    total: int
    items: list[Item]


@publishes("/Shop/Counted", Total)
class Shop(GraphBusNode):
    seen: Any = None

    @schema_method(input_schema={"item": Item, "more": list[Item]}, output_schema=Total)
    def count(self, item: Item, more: list[Item]) -> Total:
        total = Total(item.qty + sum(each.qty for each in more), [item, *more])
        self.publish("/Shop/Counted", total)
        return total

    @subscribe("/Shop/Counted")
    def on_counted(self, total: Total) -> None:
        self.seen = total


def test_arguments_may_be_objects_or_what_they_are_in_json() -> None:
    with connect(Shop) as graph:
        for item in (Item("a", 2), {"sku": "a", "qty": 2}):
            for more in ([Item("b")], [{"sku": "b"}]):
                result = graph.call("Shop", "count", item=item, more=more)
                assert result == Total(3, [Item("a", 2), Item("b")])
                seen = graph.node("Shop").seen  # type: ignore[attr-defined]
                assert seen == result
                assert seen is not result
        assert msgspec.json.encode(result) == b'{"total":3,"items":[{"sku":"a","qty":2},{"sku":"b","qty":1}]}'


class Files(GraphBusNode):
    @schema_method
    def keep(self, data: bytes, tags: set[str], parts: list[bytes]) -> list[Any]:
        return [data, tags, parts]


def test_json_from_elsewhere_gives_bytes_and_sets_and_a_call_by_code_does_not() -> None:
    sent = {"data": "YWI=", "tags": ["a", "b"], "parts": ["YWI="]}
    with connect(Files) as graph:
        assert graph.call_with_json("Files", "keep", sent) == [b"ab", {"a", "b"}, [b"ab"]]
        for call in (
            lambda: graph.call("Files", "keep", **sent),
            lambda: graph.call_with_json("Files", "keep", {**sent, "data": "?"}),
        ):
            with pytest.raises(RunError, match="data: expected bytes, got str") as error:
                call()
            assert error.value.code == "GBE622"
        with pytest.raises(RunError) as unknown:
            graph.call_with_json("File", "keep", sent)
        assert unknown.value.code == "GBE620"


class Aliased(pydantic.BaseModel):
    unit_price: int = pydantic.Field(alias="unitPrice")


@dataclass
class Folder:
    name: str
    inside: list[Folder] = field(default_factory=list)


class Library(GraphBusNode):
    @schema_method(input_schema={"price": Aliased}, output_schema={"price": Aliased})
    def double(self, price: Aliased) -> dict[str, Any]:
        return {"price": Aliased(unitPrice=price.unit_price * 2)}

    @schema_method(input_schema={"folder": Folder, "more": list[Folder]})
    def keep(self, folder: Folder, more: list[Folder]) -> Any:
        return folder, more

    @schema_method()
    def show(self, movie: Movie) -> Movie:
        return movie

    @subscribe("/Movie/Seen")
    def on_seen(self, movie: Movie, stars: int = 0) -> Movie:
        return movie


def test_a_model_with_aliases_is_taken_and_given_as_an_object() -> None:
    with connect(Library) as graph:
        for price in (Aliased(unitPrice=3), {"unitPrice": 3}):
            assert graph.call("Library", "double", price=price) == {"price": Aliased(unitPrice=6)}


def test_json_with_objects_in_it_becomes_an_object_and_keeps_them() -> None:
    class Drawer(Folder):
        pass

    inner = Folder("inner")
    with connect(Library) as graph:
        folder, more = graph.call(
            "Library", "keep", folder={"name": "a", "inside": [inner]}, more=[inner, {"name": "b"}]
        )
        assert folder == Folder("a", [inner])
        assert folder.inside[0] is more[0] is inner
        assert more[1] == Folder("b")
        special = Drawer("special")
        assert graph.call("Library", "keep", folder=special, more=[special])[1][0] is special


@pytest.mark.parametrize("movie", [None, "x", {}, {"title": 1}])
def test_a_typed_dict_is_checked_like_any_typed_class(movie: Any) -> None:
    with connect(Library, on_error="isolate") as graph:
        with pytest.raises(RunError, match="GBE622"):
            graph.call("Library", "show", movie=movie)
        with pytest.raises(RunError, match="GBE650"):
            graph.request("/Movie/Seen", {"movie": movie})
        assert graph.call("Library", "show", movie={"title": "x"}) == {"title": "x"}
        assert graph.request("/Movie/Seen", {"movie": {"title": "x"}}) == {"title": "x"}


T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    items: list[T]
    last: T | None = None


class Numbered(TypedDict, Generic[T]):
    it: T


class Row(msgspec.Struct, array_like=True):
    sku: str
    qty: int


class Pages(GraphBusNode):
    @schema_method(input_schema={"page": Page[Item], "numbered": Numbered[int], "row": Row})
    def turn(self, page: Page[Item], numbered: Numbered[int], row: Row) -> Any:
        return page, numbered, row


def test_a_generic_class_is_checked_and_made_with_what_stands_for_its_variables() -> None:
    json: dict[str, Any] = {
        "page": {"items": [{"sku": "a"}], "last": {"sku": "b"}},
        "numbered": {"it": 1},
        "row": ["a", 2],
    }
    with connect(Pages) as graph:
        made = graph.call("Pages", "turn", **json)
        assert made == (Page([Item("a")], Item("b")), {"it": 1}, Row("a", 2))
        for name, wrong, told in (
            ("page", {"items": [{"sku": 1}]}, "page.items[0].sku: expected str, got int 1"),
            ("page", {"items": [], "last": {}}, "page.last.sku: expected str, got nothing"),
            ("numbered", {"it": "x"}, "numbered.it: expected int, got str 'x'"),
            ("row", ["a"], "row: expected array of at least length 2"),
        ):
            with pytest.raises(RunError) as refused:
                graph.call("Pages", "turn", **json | {name: wrong})
            assert told in refused.value.sentence


@dataclass
class Parcel:
    label: str
    content: bytes
    more: list[bytes] = field(default_factory=list)


@publishes("/Parcel/Sent", Parcel)
class Post(GraphBusNode):
    seen: Any = None

    @subscribe("/Parcel/Sent")
    def on_sent(self, parcel: Parcel) -> None:
        self.seen = parcel


@pytest.mark.parametrize("payload", [Parcel("a", b"\xff", [b"x"]), {"label": "a", "content": "/w==", "more": ["eA=="]}])
def test_bytes_travel_as_the_text_that_json_has_for_them(payload: Any) -> None:
    with connect(Post, on_error="isolate") as graph:
        graph.publish("/Parcel/Sent", payload)
        assert graph.node("Post").seen == Parcel("a", b"\xff", [b"x"])  # type: ignore[attr-defined]
        with pytest.raises(RunError, match=r"content: expected str, got int 1\. \[GBE614\]"):
            graph.publish("/Parcel/Sent", {"label": "a", "content": 1})
        graph.publish("/Parcel/Sent", {"label": "a", "content": "?"})
        assert "content: " in graph.bus.dead_letters()[0].error


class Rows(GraphBusNode):
    @schema_method(input_schema={"numbers": tuple[int, ...], "words": Sequence[str]}, output_schema={"count": int})
    def count(self, numbers: tuple[int, ...], words: Sequence[str]) -> dict[str, Any]:
        return {"count": len(numbers) + len(words)}


@pytest.mark.parametrize(
    ("numbers", "words", "told"),
    [
        ((1, 2), ["a"], None),
        ([1, 2], ("a",), None),
        ((), (), None),
        ((1, "2"), [], "numbers[1]: expected int, got str '2'"),
        (1, [], "numbers: expected tuple[int, ...], got int 1"),
        ((), "ab", "words: expected list[str], got str 'ab'"),
    ],
)
def test_a_row_of_any_length_is_checked_item_by_item(numbers: Any, words: Any, told: str | None) -> None:
    with connect(Rows) as graph:
        if told is None:
            assert graph.call("Rows", "count", numbers=numbers, words=words) == {"count": len(numbers) + len(words)}
            return
        with pytest.raises(RunError) as refused:
            graph.call("Rows", "count", numbers=numbers, words=words)
        assert told in str(refused.value)
