"""What the compiler reads in the text of a declaration is what the runtime reads in the class that it makes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from graphbus_core.hosting.members import methods_of, topics_of
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.schema.types import Schema, Type
from tests.reading import read_files

HEAD = """
from __future__ import annotations
import datetime, decimal, enum, uuid
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Final, Generic, List, Literal, NewType, NotRequired, Optional, Required, TypedDict
from typing import TypeVar, Union
import msgspec, pydantic, pydantic.dataclasses
from pydantic import BaseModel, Field
from graphbus_core import GraphBusNode, publishes, schema_method

class Movie(TypedDict):
    title: str
    year: NotRequired[int]

class Loose(TypedDict, total=False):
    a: int
    b: Required[str]

class Sequel(Movie):
    part: int

@dataclass
class Item:
    sku: str
    qty: int = 1
    tags: list[str] = field(default_factory=list)
    kind: ClassVar[str] = "item"

@dataclass(slots=True, kw_only=True, frozen=True)
class Slim:
    price: float = 0.0
    item: Item
    more: Optional[Item] = None

@dataclass
class Ordered(Item):
    _: KW_ONLY
    note: str

@dataclass
class Odd:
    a: int
    scale: InitVar[int] = 2
    made: str = field(default="", init=False)
    by_name: dict[str, Item] = field(default_factory=dict)

class Struct(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    id: int
    when: datetime.datetime
    items: list[Item] = []

class Renamed(msgspec.Struct, rename="camel"):
    order_id: int

class Tagged(msgspec.Struct, tag="tagged"):
    a: int

class Row(msgspec.Struct, array_like=True):
    a: int

T = TypeVar("T")

@dataclass
class Page(Generic[T]):
    items: list[T]
    first: T | None = None

class Model(BaseModel):
    name: str
    price: float = Field(gt=0)
    items: list[Item] = Field(default_factory=list)
    shade: "Colour | None" = None

@dataclass
class Visit:
    at: datetime.datetime
    price: decimal.Decimal | None = None

class OfPydantic(BaseModel):
    at: datetime.datetime
    price: decimal.Decimal | None = None
    visits: list[Visit] = []

@pydantic.dataclasses.dataclass
class Wrapped:
    of: OfPydantic
    at: datetime.date

class Aliased(BaseModel):
    name: str = Field(alias="n")

class Colour(enum.StrEnum):
    RED = "red"

class Level(enum.IntEnum):
    LOW = -2
    HIGH = 1
    HIGHEST = enum.auto()

class Text(str, enum.Enum):
    A = "a"
    B = "b" + A
    AGAIN = "a"

    @property
    def shown(self) -> str:
        return self.value.title()

class Base(enum.Enum):
    def shout(self) -> str:
        return self.name

@enum.unique
class Number(Base):
    "Some numbers."
    ONE = 1
    TWO = enum.auto()

class Named(enum.StrEnum):
    FIRST = enum.auto()
    SECOND = "2nd"

class Mixed(enum.Enum):
    A = 1
    B = "b"

class Made(str, enum.Enum):
    A = 1

class Lenient(enum.StrEnum):
    A = "a"

    @classmethod
    def _missing_(cls, value: object) -> "Lenient":
        return cls.A

class Fixed(enum.StrEnum):
    A: Final = "a"

class Computed(enum.StrEnum):
    A = "a".upper()

class Plain:
    pass

Sku = NewType("Sku", str)
Names = list[str]
"""

EQUAL = [
    "int", "str", "float", "bool", "bytes", "None", "list", "dict", "tuple", "set", "frozenset", "object", "Any",
    "list[int]", "List[int]", "dict[str, int]", "Mapping[str, Any]", "dict[str, list[int | None]]",
    "tuple[int, str]", "tuple[int, ...]",
    "tuple[Item, ...] | None", "Sequence", "Sequence[str]", "Mapping", "set[str]", "frozenset[int]", "int | None",
    "Optional[str]",
    "Union[int, str, None]",
    "int | int", "int | Any", "Literal['a', 1]", "Literal['a'] | None", "Annotated[int, msgspec.Meta(ge=1)]",
    "list[Annotated[str, 'x']]", "Sku", "Names", "Movie", "Loose", "Sequel", "Item", "Slim", "Ordered", "Odd", "Struct", "Model",
    "list[Item]", "dict[str, Slim]", "Item | None", "{'a': int, 'b': [Item]}", "{'a': {'b': NotRequired[int]}}", "[Movie]",
    "'str'", "'int'", "' float '", "'object'", "'None'", "'dict'", "'string'", "'integer'", "'number'", "'boolean'", "'array'",
    "'null'", "'any'", "['string']", "Literal[Colour.RED]",
    "Colour", "list[Colour]", "Colour | None", "dict[Colour, int]", "Level", "Text", "Number", "Named", "Mixed",
    "datetime.date", "datetime.datetime | None", "list[datetime.time]", "datetime.timedelta", "dict[str, uuid.UUID]",
    "decimal.Decimal",
    "Visit", "OfPydantic", "Wrapped",
]  # fmt: skip
UNKNOWN_TO_BOTH = ["Plain", "list[Plain]", "Plain | None", "Lenient", "type[int]", "Row"]
UNKNOWN_TO_THE_COMPILER = ["Renamed", "Tagged", "Aliased", "Page[int]", "Made", "Fixed", "Computed"]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentDefinition, ModuleType]]:
    methods = [
        f"    @schema_method(input_schema={{'x': {text}}})\n    def m{number}(self, x): ...\n"
        for number, text in enumerate(EQUAL + UNKNOWN_TO_BOTH + UNKNOWN_TO_THE_COMPILER)
    ]
    declared = "".join(
        f'@publishes("/Class/{name}", {name})\n' for name in ("Movie", "Item", "Slim", "Struct", "Model")
    )
    text = f"{HEAD}\n{declared}class A(GraphBusNode):\n{''.join(methods)}"
    root: Path = tmp_path_factory.mktemp("readers")
    project = read_files(root, {"declarations.py": text})
    definition = project.agent("A")
    assert definition is not None
    sys.path.insert(0, str(root))
    try:
        yield definition, importlib.import_module("declarations")
    finally:
        sys.path.remove(str(root))
        sys.modules.pop("declarations", None)


def plain(of: Type) -> Type:
    """The type without the names of what is unknown: the compiler quotes the source, the runtime names the class."""
    if of.kind == "unknown":
        return Type("unknown")
    inner = tuple(type(each)(each.name, plain(each.type), each.required) for each in of.fields)
    return Type(of.kind, tuple(map(plain, of.args)), of.values, of.name, inner)


def fields(of: Schema | None) -> tuple[tuple[str, Type, bool], ...]:
    assert of is not None
    return tuple((each.name, plain(each.type), each.required) for each in of.fields)


def both(read: tuple[AgentDefinition, ModuleType], text: str) -> tuple[Type, Type]:
    definition, module = read
    name = f"m{(EQUAL + UNKNOWN_TO_BOTH + UNKNOWN_TO_THE_COMPILER).index(text)}"
    compiled = definition.method(name)
    live = next(spec for spec in methods_of(module.A) if spec.name == name)
    assert compiled is not None
    return fields(compiled.input_schema)[0][1], fields(live.input_schema)[0][1]


@pytest.mark.parametrize("text", EQUAL)
def test_an_annotation_is_the_same_for_both(read: tuple[AgentDefinition, ModuleType], text: str) -> None:
    compiled, live = both(read, text)
    assert compiled == live
    assert compiled.kind != "unknown"


@pytest.mark.parametrize("text", UNKNOWN_TO_BOTH)
def test_what_neither_can_check_is_unknown_to_both(read: tuple[AgentDefinition, ModuleType], text: str) -> None:
    compiled, live = both(read, text)
    assert compiled == live
    assert "unknown" in (compiled.kind, *(each.kind for each in compiled.args))


@pytest.mark.parametrize("text", UNKNOWN_TO_THE_COMPILER)
def test_what_only_the_class_tells_is_unknown_to_the_compiler_and_never_something_else(
    read: tuple[AgentDefinition, ModuleType], text: str
) -> None:
    compiled, live = both(read, text)
    assert live.kind in ("record", "list", "literal")
    assert compiled.kind == "unknown"


@pytest.mark.parametrize("name", ["Movie", "Item", "Slim", "Struct", "Model"])
def test_a_published_class_is_the_same_for_both(read: tuple[AgentDefinition, ModuleType], name: str) -> None:
    definition, module = read
    compiled = next(each.payload for each in definition.publications if each.topic == f"/Class/{name}")
    assert fields(compiled) == fields(topics_of(module.A)[f"/Class/{name}"])
