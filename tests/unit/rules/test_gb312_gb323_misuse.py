"""GB312 to GB324: what Python accepts without a word, and what does nothing or fails when the graph runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler import rules
from graphbus_core.model.config import RuntimeSettings, Settings
from tests.checking import Files, assert_marked, only_finding, read

MISUSE = (
    "GB310",
    "GB312",
    "GB313",
    "GB314",
    "GB315",
    "GB316",
    "GB317",
    "GB318",
    "GB319",
    "GB320",
    "GB321",
    "GB322",
    "GB323",
    "GB324",
)

DECORATORS = {
    "a bare subscribe": """
        class A(GraphBusNode):
            @subscribe  #! GB312
            def on_x(self, event): ...
    """,
    "a subscribe without a topic": """
        class A(GraphBusNode):
            @subscribe()  #! GB312
            def on_x(self, event): ...
    """,
    "a bare subscribe under another name": """
        import graphbus_core as gb
        class A(gb.GraphBusNode):
            @gb.subscribe  #! GB312
            def on_x(self, event): ...
    """,
    "a bare publishes": """
        class A(GraphBusNode):
            @publishes  #! GB312
            def act(self): ...
    """,
    "a bare subscribe in a base that is no agent": """
        class _Base(GraphBusNode):
            @subscribe  #! GB312
            def on_x(self, event): ...
        class A(_Base): ...
        class B(_Base): ...
    """,
    "a list": """
        class A(GraphBusNode):
            @subscribe(["/A", "/B"])  #! GB313
            def on_x(self, event): ...
    """,
    "options without a topic": """
        class A(GraphBusNode):
            @subscribe(retries=3)  #! GB312
            def on_x(self, event): ...
    """,
    "a list by its keyword": """
        class A(GraphBusNode):
            @subscribe(topic=["/A", "/B"])  #! GB313
            def on_x(self, event): ...
    """,
    "a tuple": """
        class A(GraphBusNode):
            @subscribe(("/A", "/B"))  #! GB313
            def on_x(self, event): ...
    """,
    "a list by its name": """
        TOPICS = ["/A", "/B"]
        class A(GraphBusNode):
            @subscribe(TOPICS)  #! GB313
            def on_x(self, event): ...
    """,
    "a number": """
        class A(GraphBusNode):
            @subscribe("/A", 3)  #! GB313
            def on_x(self, event): ...
    """,
    "None": """
        class A(GraphBusNode):
            @subscribe(None)  #! GB313
            def on_x(self, event): ...
    """,
    "a list that is declared": """
        class A(GraphBusNode):
            @publishes(["/A", "/B"], {"id": str})  #! GB313
            def act(self): ...
    """,
    "above a classmethod": """
        class A(GraphBusNode):
            @subscribe("/X")  #! GB317
            @classmethod
            def on_x(cls, event): ...
    """,
    "above a staticmethod": """
        class A(GraphBusNode):
            @subscribe("/X")  #! GB317
            @staticmethod
            def on_x(event): ...
    """,
    "above a property": """
        class A(GraphBusNode):
            @subscribe("/X")  #! GB317
            @property
            def on_x(self): ...
    """,
    "below a property": """
        class A(GraphBusNode):
            @property
            @subscribe("/X")  #! GB317
            def on_x(self): ...
    """,
    "at a cached property": """
        from functools import cached_property
        class A(GraphBusNode):
            @schema_method({}, {})  #! GB317
            @cached_property
            def on_x(self): ...
    """,
    "a schema above a classmethod": """
        class A(GraphBusNode):
            @schema_method({}, {"n": int})  #! GB317
            @classmethod
            def count(cls): return {"n": 1}
    """,
}
RIGHT_DECORATORS = {
    "several topics": """
        A_TOPIC = "/A"
        TOPICS = ["/A", "/B"]
        class A(GraphBusNode):
            @subscribe("/A", "/B")
            def on_x(self, event): ...
            @subscribe(*TOPICS)
            def on_y(self, event): ...
            @subscribe(topic=A_TOPIC, retries=2)
            def on_z(self, event): ...
            @subscribe("/A")
            @subscribe("/B")
            def on_both(self, event): ...
            @subscribe(TOPICS[0])
            def on_first(self, event): ...
    """,
    "a list that one topic is taken from": """
        TOPICS = ["/A", "/B"]
        class A(GraphBusNode):
            def act(self):
                for topic in TOPICS:
                    self.publish(topic, {})
                self.publish(TOPICS[0], {})
            def each(self, TOPICS):
                self.publish(TOPICS, {})
    """,
    "a name that is given another value": """
        TOPIC = None
        TOPIC = "/A"
        class A(GraphBusNode):
            @subscribe(TOPIC)
            def on_x(self, event): ...
    """,
    "a list with its handler": """
        class _Base(GraphBusNode):
            def handle_event(self, topic, payload): ...
        class A(_Base):
            SUBSCRIBE = ("/A", "/B")
        class B(GraphBusNode):
            SUBSCRIBE = []
    """,
    "another subscribe": """
        from blinker import subscribe as listen
        class A(GraphBusNode):
            @listen
            def on_x(self, event): ...
            @listen(["/A"])
            def on_y(self, event): ...
    """,
    "a bare schema_method": """
        class A(GraphBusNode):
            @schema_method
            def count(self, sku: str) -> dict: return {}
    """,
    "no dependency": """
        @depends_on()
        class A(GraphBusNode): ...
    """,
    "below a classmethod": """
        class A(GraphBusNode):
            @classmethod
            @subscribe("/X")
            def on_x(cls, event): ...
            @staticmethod
            @subscribe("/X")
            def on_y(event): ...
            @classmethod
            def make(cls): ...
            @property
            def size(self): return 1
    """,
    "below a decorator that keeps it": """
        import functools
        def retry(function):
            @functools.wraps(function)
            def again(*args):
                return function(*args)
            return again
        def timed(function):
            def again(*args):
                return function(*args)
            again.__dict__.update(function.__dict__)
            return again
        def registered(function):
            print(function)
            return function
        def either(function):
            def again(*args):
                return function(*args)
            if not function:
                return function
            return again
        class A(GraphBusNode):
            @retry
            @timed
            @registered
            @either
            @subscribe("/X")
            def on_x(self, event): ...
    """,
    "above an own decorator": """
        def retry(function):
            def again(self, event):
                return function(self, event)
            return again
        class A(GraphBusNode):
            @subscribe("/X")
            @retry
            def on_x(self, event): ...
    """,
    "abstract": """
        from abc import ABC, abstractmethod
        class _Base(GraphBusNode, ABC):
            @subscribe("/X")
            @abstractmethod
            def on_x(self, event): ...
        class A(_Base):
            @subscribe("/X")
            def on_x(self, event): ...
    """,
}


@pytest.mark.parametrize(
    "text", [*DECORATORS.values(), *RIGHT_DECORATORS.values()], ids=[*DECORATORS, *RIGHT_DECORATORS]
)
def test_decorators_and_topics_that_do_nothing_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, *MISUSE)


def test_a_bare_subscribe_silences_nothing_else(tmp_path: Path) -> None:
    text = """
        class A(GraphBusNode):
            @subscribe  #! GB312
            def on_x(self, event): ...
            @subscribe("/Y")  #! GB001
            def on_y(self, event): ...
            @subscribe("/Z")  #! GB317
            @classmethod
            def on_z(cls, event): ...
        class B(GraphBusNode):
            def act(self):
                self.publish("/Z", {})  #! GB002
    """
    assert_marked(tmp_path, text)


ASKED = """
import asyncio

class Stock(GraphBusNode):
    @schema_method({"sku": str}, {"n": int})
    def count(self, sku: str) -> dict: return {"n": 1}
    @subscribe("/Q")
    def on_q(self, event): return {"n": 1}

@depends_on("Stock")
class A(GraphBusNode):
    async def act(self, sku, *skus):
        %s
"""


def asking(body: str) -> str:
    return ASKED % body.replace("\n", "\n        ")


NOT_AWAITED = {
    "a statement": 'self.call("Stock", "count", sku=sku)  #! GB314',
    "a request as a statement": 'self.request("/Q", {})  #! GB314',
    "a key": 'return self.call("Stock", "count", sku=sku)["n"]  #! GB314',
    "a method of the answer": 'return self.call("Stock", "count", sku=sku).get("n")  #! GB314',
    "a name whose key is read": 'found = self.request("/Q", {})  #! GB314\nreturn found["n"]',
    "a name that is never read": 'found = self.request("/Q", {})  #! GB314',
    "a name with an annotation": 'found: dict = self.request("/Q", {})  #! GB314\nreturn found["n"] + 1',
    "with a default": 'found = self.request("/Q", {}) or {}  #! GB314\nreturn found["n"]',
    "a condition": 'if self.request("/Q", {}):  #! GB314\n    return 1',
    "a comparison": 'return self.request("/Q", {}) == {"n": 1}  #! GB314',
    "a field of a payload": 'self.publish("/N", {"n": self.call("Stock", "count", sku=sku)})  #! GB314',
    "a payload": 'self.publish("/N", self.request("/Q", {}))  #! GB314',
    "a payload by its name": 'found = self.request("/Q", {})  #! GB314\nself.publish("/N", found)',
    "a builtin": 'return len(self.request("/Q", {}))  #! GB314',
    "a loop": 'for each in self.request("/Q", {}):  #! GB314\n    print(each)',
    "a comprehension": 'return [each for each in self.request("/Q", {})]  #! GB314',
    "keys in a comprehension": 'return sum(self.call("Stock", "count", sku=s)["n"] for s in skus)  #! GB314',
    "a text": 'return f"{self.request("/Q", {})}"  #! GB314'.replace('"/Q"', "'/Q'"),
    "unpacked": 'one, two = self.request("/Q", {})  #! GB314\nreturn one, two',
    "a match": 'match self.request("/Q", {}):  #! GB314\n    case {"n": 1}: return 1',
    "a typed call": 'return self.agent(Stock).count(sku=sku)["n"]  #! GB314',
    "a typed call as a statement": "self.agent(Stock).count(sku=sku)  #! GB314",
    "a typed call by a name": 'stock = self.agent(Stock)\nreturn stock.count(sku=sku)["n"]  #! GB314',
    "publish is awaited": 'await self.publish("/N", {})  #! GB314',
    "log is awaited": 'await self.log("done")  #! GB314',
}
AWAITED = {
    "awaited": 'return await self.call("Stock", "count", sku=sku)',
    "awaited for a key": 'return (await self.request("/Q", {}))["n"]',
    "awaited with a default": 'return await self.request("/Q", {}) or {}',
    "awaited one or another": 'return await (self.request("/Q", {}) if sku else self.call("Stock", "count", sku=sku))',
    "returned to the caller": 'return self.request("/Q", {})',
    "gathered": 'return await asyncio.gather(self.request("/Q", {}), self.call("Stock", "count", sku=sku))',
    "gathered from a generator": 'return await asyncio.gather(*(self.call("Stock", "count", sku=s) for s in skus))',
    "gathered from a list": 'jobs = [self.call("Stock", "count", sku=s) for s in skus]\nreturn await asyncio.gather(*jobs)',
    "gathered from a display": 'return await asyncio.gather(*[self.request("/Q", {}), self.request("/Q", {})])',
    "from a dict": 'jobs = {s: self.call("Stock", "count", sku=s) for s in skus}\nreturn await asyncio.gather(*jobs.values())',
    "appended": 'jobs = []\njobs.append(self.request("/Q", {}))\nreturn await asyncio.gather(*jobs)',
    "added": 'jobs = []\njobs += [self.request("/Q", {})]\nreturn await asyncio.gather(*jobs)',
    "a task": 'task = asyncio.create_task(self.request("/Q", {}))\nreturn await task',
    "a task of a group": 'async with asyncio.TaskGroup() as group:\n    group.create_task(self.request("/Q", {}))',
    "a timeout": 'return await asyncio.wait_for(self.request("/Q", {}), 1)',
    "a future": 'return await asyncio.ensure_future(self.request("/Q", {}))',
    "awaited later": 'found = self.request("/Q", {})\nself.publish("/N", {})\nreturn await found',
    "awaited later or closed": 'found = self.request("/Q", {})\nif sku:\n    found.close()\nelse:\n    await found',
    "awaited in a function": 'found = self.request("/Q", {})\nasync def later(): return await found\nreturn await later()',
    "a lambda": 'ask = lambda: self.request("/Q", {})\nreturn await ask()',
    "a helper of its own": 'def later(): return self.request("/Q", {})\nreturn await later()',
    "several meanings": 'found = None\nfound = self.request("/Q", {})\nreturn found',
    "a typed call": "return (await self.agent(Stock).count(sku=sku))['n']",
    "a typed call by a name": "stock = self.agent(Stock)\nreturn await stock.count(sku=sku)",
    "an attribute": 'self.pending = self.request("/Q", {})\nreturn await self.pending',
    "yielded": 'yield self.request("/Q", {})',
    "another object's call": 'sku.call("a")["n"]\nsku.request("b")\nreturn sku.publish("c")["n"]',
    "publish": 'self.publish("/N", {})\nself.log("done")',
}


@pytest.mark.parametrize("body", [*NOT_AWAITED.values(), *AWAITED.values()], ids=[*NOT_AWAITED, *AWAITED])
def test_answers_that_are_not_awaited_are_found(tmp_path: Path, body: str) -> None:
    assert_marked(tmp_path, asking(body), *MISUSE)


def test_a_plain_method_awaits_nothing(tmp_path: Path) -> None:
    text = asking('return self.call("Stock", "count", sku=sku)["n"]').replace("async def", "def")
    assert_marked(tmp_path, text, *MISUSE)


def test_what_an_agent_defines_itself_is_its_own(tmp_path: Path) -> None:
    text = """
        class A(GraphBusNode):
            async def act(self):
                await self.publish("/N", {})
                return self.call("Stock")["n"], await self.shield(self.request("/Q", {}))
            async def publish(self, topic, payload): ...
            def call(self, name): return {"n": 1}
            async def shield(self, answer): return await answer
    """
    assert_marked(tmp_path, text, *MISUSE)


@pytest.mark.parametrize(
    ("kind", "written"),
    [("async def", "await self.agent(Stock).count(...)"), ("def", 'await self.call("Stock", "count", ...)')],
)
def test_what_a_type_checker_lets_be_awaited_is_offered(tmp_path: Path, kind: str, written: str) -> None:
    text = f"""
        class Stock(GraphBusNode):
            @schema_method
            {kind} count(self, sku: str) -> int: return 1
        @depends_on(Stock)
        class Shop(GraphBusNode):
            async def sell(self, sku: str): self.agent(Stock).count(sku=sku)
    """
    assert only_finding(read(tmp_path, text), "GB314").hint == f"Write `{written}`."


BY_NAME = {
    "a text": 'self.agent("Stock").count(sku="a")  #! GB324',
    "a constant": 'self.agent(NAME).count(sku="a")  #! GB324',
    "kept": 'stock = self.agent("Stock")  #! GB324',
    "the class": 'self.agent(Stock).count(sku="a")',
    "computed": 'self.agent(name).count(sku="a")',
    "a method of another name": 'self.call("Stock", "count", sku="a")',
}


@pytest.mark.parametrize("line", BY_NAME.values(), ids=BY_NAME)
def test_an_agent_is_asked_for_by_its_class(tmp_path: Path, line: str) -> None:
    text = f"""
        NAME = "Stock"
        class Stock(GraphBusNode):
            @schema_method
            def count(self, sku: str) -> int: return 1
        @depends_on("Stock")
        class Shop(GraphBusNode):
            def sell(self, name: str):
                {line}
    """
    assert_marked(tmp_path, text, "GB324")


BUS_CALLS = {
    "a near name": ('self.request("/A", {}, timeout=1.0)  #! GB324', "Did you mean 'timeout_s'?"),
    "a strange name": ('self.publish("/A", {}, retries=3)  #! GB324', "It takes topic, payload."),
    "a name on super": ('super().publish("/A", {}, retries=3)  #! GB324', "It takes topic, payload."),
    "a name beside others that are not known": (
        'self.publish("/A", bdoy={}, **name)  #! GB324',
        "It takes topic, payload.",
    ),
    "too many": ('self.publish("/A", {}, 1)  #! GB324', "It takes topic, payload."),
    "one twice": ('self.publish("/A", {}, topic="/B")  #! GB324', "Leave one of them out."),
    "nothing": ("self.publish()  #! GB324", "Pass it as the first argument, without its name."),
    "no method": ('self.call("Stock")  #! GB324', "Pass it as the second argument, without its name."),
    "no topic by position": ("self.request(payload={})  #! GB324", "Pass it as the first argument, without its name."),
    "a level by position is part of the message": ('self.log("%s", 1, level=10)', ""),
    "another option of a logger": ('self.log("x", exc_info=True)  #! GB324', "It takes message, arguments, level."),
    "all by name": ('self.publish(topic="/A", payload={})', ""),
    "not known": ("self.publish(*name)", ""),
    "arguments of the other agent": ('self.call("Stock", "count", timeout=1, sku="a")', ""),
    "a method of its own": ("self.agent(1, 2, 3)", ""),
}


@pytest.mark.parametrize(("line", "hint"), BUS_CALLS.values(), ids=BUS_CALLS)
def test_methods_of_nodes_are_called_with_what_they_take(tmp_path: Path, line: str, hint: str) -> None:
    text = f"""
        class Shop(GraphBusNode):
            def agent(self, *parts): ...
            def sell(self, name):
                {line}
    """
    assert_marked(tmp_path, text, "GB324")
    assert [each.hint for each in rules.check(read(tmp_path, text), select=["GB324"])] == [hint] * bool(hint)


OWN_CALLS = {
    "a name of a function": "total(1, rate=2)  #! GB324",
    "too many for a function": "total(1, 2, 3)  #! GB324",
    "too few for a function": "total()  #! GB324",
    "a default": "total(1)",
    "more than it takes by name": "total(1, *name)",
    "a function with **": "anything(1, other=2)",
    "a function that is decorated": "counted(1, 2, 3)",
    "a function that is bound again": "changed(1, 2, 3)",
    "a local function": "def total(): ...\n                total()",
    "a parameter": "name(1, 2, 3)",
    "a name of a method": "self.pack(amount=1)  #! GB324",
    "too many for a method": "self.pack(1, 2)  #! GB324",
    "a method": "self.pack(1)",
    "a static method": "self.weigh(1)",
    "too many for a static method": "self.weigh(1, 2)  #! GB324",
    "an attribute": "self.made(1, 2)",
    "a name of a dataclass": 'Item(sku="a", amont=1)  #! GB324',
    "too few for a dataclass": "Item(amount=1)  #! GB324",
    "a dataclass": 'Item("a")',
    "too many for a Struct": 'Box("a", 1, 2)  #! GB324',
    "a Struct": 'Box("a", size=1)',
    "a constructor of its own": "Own(1, 2, 3)",
    "an option that changes the parameters": "Named(1, 2, 3)",
    "a field that is only a parameter": "Init(1, 2)",
    "an exception": 'Lost("a", 1)',
}


@pytest.mark.parametrize("line", OWN_CALLS.values(), ids=OWN_CALLS)
def test_functions_of_the_project_are_called_with_what_they_take(tmp_path: Path, line: str) -> None:
    text = f"""
        import dataclasses, msgspec
        from dataclasses import InitVar, dataclass
        def total(price, vat=0): return price + vat
        def anything(*values, **options): ...
        def register(function): return lambda *values: None
        @register
        def counted(value): ...
        def changed(value): ...
        changed = print
        @dataclass(frozen=True)
        class Item:
            sku: str
            amount: int = 1
        class Box(msgspec.Struct, frozen=True):
            sku: str
            size: int
        @dataclass
        class Own:
            sku: str
            def __init__(self, *values): ...
        @dataclass(init=False)
        class Named: ...
        @dataclass
        class Init:
            sku: str
            size: InitVar[int]
        class Lost(Exception): ...
        class Shop(GraphBusNode):
            def __init__(self):
                super().__init__()
                self.made = print
            def pack(self, value): ...
            @staticmethod
            def weigh(value): ...
            def sell(self, name):
                {line}
    """
    assert_marked(tmp_path, text, "GB324")


DICTS_OF_TOPICS = {
    "another key": 'self.publish(T["bookt"], {})  #! GB313',
    "another key of a request": 'self.request(T["bookt"], {})  #! GB313',
    "a key that it has": 'self.publish(T["booked"], {})',
    "a key that is computed": "self.publish(T[key], {})",
    "a dict that is changed": 'self.publish(CHANGED["late"], {})',
    "a dict with other dicts in it": 'self.publish(SPREAD["late"], {})',
    "a local dict": 'T = {key: "/A"}\n                self.publish(T["late"], {})',
}


@pytest.mark.parametrize("line", DICTS_OF_TOPICS.values(), ids=DICTS_OF_TOPICS)
def test_topics_are_looked_up_where_they_are(tmp_path: Path, line: str) -> None:
    text = f"""
        T = {{"booked": "/Booked", "left": "/Left"}}
        CHANGED = {{"booked": "/Booked"}}
        CHANGED["late"] = "/Late"
        SPREAD = {{**T, **CHANGED}}
        class A(GraphBusNode):
            def act(self, key: str):
                {line}
    """
    assert_marked(tmp_path, text, "GB313")


def test_an_answer_that_goes_over_the_bus_is_awaited(tmp_path: Path) -> None:
    text = """
        class A(GraphBusNode):
            @schema_method({}, {"n": int})
            async def one(self):
                return self.request("/Q", {})  #! GB314
            @subscribe("/X")
            async def on_x(self, event):
                return {"n": self.request("/Q", {})}  #! GB314
            @schema_method({}, {"n": int})
            async def right(self):
                return await self.request("/Q", {})
    """
    assert_marked(tmp_path, text, *MISUSE)


MADE: dict[str, Files] = {
    "a parameter": """
        class A(GraphBusNode):
            def __init__(self, db):  #! GB315
                self.db = db
    """,
    "a bus": """
        class A(GraphBusNode):
            def __init__(self, bus):  #! GB315
                self.bus = bus
    """,
    "by name only": """
        class A(GraphBusNode):
            def __init__(self, *, db):  #! GB315
                self.db = db
    """,
    "of the base": """
        class _Base(GraphBusNode):
            def __init__(self, db):  #! GB315
                self.db = db
        class A(_Base): ...
    """,
    "publish": """
        class A(GraphBusNode):
            def __init__(self):
                super().__init__()
                self.publish("/X", {})  #! GB316
    """,
    "state": """
        class A(GraphBusNode):
            def __init__(self):
                self.state["count"] = 0  #! GB316
    """,
    "state is read": """
        class A(GraphBusNode):
            def __init__(self):
                self.count = self.state.get("count", 0)  #! GB316
    """,
    "call": """
        class B(GraphBusNode):
            @schema_method({}, {"n": int})
            def count(self): return {"n": 1}
        @depends_on("B")
        class A(GraphBusNode):
            def __init__(self):
                if True:
                    self.n = self.call("B", "count")["n"]  #! GB316
    """,
    "in a helper": """
        class A(GraphBusNode):
            def __init__(self):
                self._announce()  #! GB316
            def _announce(self):
                self.publish("/X", {})
    """,
    "in a helper of the base": """
        class _Base(GraphBusNode):
            def _announce(self):
                self.publish("/X", {})
        class A(_Base):
            def __init__(self):
                self._announce()  #! GB316
    """,
    "in the base": """
        class BaseService(GraphBusNode):
            def __init__(self):
                self.publish("/X", {})  #! GB316
        class A(BaseService): ...
        class B(BaseService): ...
    """,
    "after a dataclass was made": """
        from dataclasses import dataclass
        @dataclass
        class A(GraphBusNode):
            n: int = 0
            def __post_init__(self):
                self.publish("/X", {})  #! GB316
    """,
}
RIGHT_MADE: dict[str, Files] = {
    "nothing": """
        class A(GraphBusNode):
            def __init__(self) -> None:
                super().__init__()
                self.seen = []
                self.log("made")
    """,
    "defaults": """
        class A(GraphBusNode):
            def __init__(self, db=None, *, size=3):
                super().__init__()
                self.db = db
    """,
    "anything": """
        class A(GraphBusNode):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
    """,
    "a mixin that takes arguments": """
        class Named:
            def __init__(self, name):
                self.name = name
        class A(Named, GraphBusNode):
            def __init__(self):
                super().__init__("a")
    """,
    "a base of another package": """
        from elsewhere import Service
        class A(Service, GraphBusNode):
            def __init__(self):
                super().__init__("a")
    """,
    "a dataclass with defaults": """
        from dataclasses import dataclass, field
        from typing import ClassVar
        @dataclass
        class A(GraphBusNode):
            KIND: ClassVar[str]
            db: str = ""
            seen: list = field(default_factory=list)
    """,
    "annotations": """
        class A(GraphBusNode):
            db: str
            def on_start(self): self.db = "x"
    """,
    "made by the project": {
        "agents.py": """
            class A(GraphBusNode):
                def __init__(self, db):
                    self.db = db
        """,
        "main.py": """
            from graphbus_core import connect
            from agents import A
            def main():
                with connect(A("db")): ...
        """,
    },
    "made by a container": {
        "agents.py": """
            class A(GraphBusNode):
                def __init__(self, db):
                    self.db = db
        """,
        "main.py": """
            from graphbus_core import connect
            from agents import A
            def main(container):
                with connect(container.get(A)): ...
        """,
    },
    "a base of another package with members of its own": """
        from elsewhere import Machine
        class A(Machine, GraphBusNode):
            def __init__(self):
                self.state["count"] = 0
                self.publish("/X")
            async def ask(self):
                return self.request("/X")["n"]
    """,
    "an abstract base with a parameter": """
        class BaseStore(GraphBusNode):
            def __init__(self, table):
                self.table = table
        class A(BaseStore):
            def __init__(self):
                super().__init__("a")
    """,
    "on_start": """
        class A(GraphBusNode):
            def __init__(self):
                self.ready = False
            def on_start(self):
                self.publish("/X", {})
                self.state["n"] = 1
    """,
    "later": """
        class A(GraphBusNode):
            def __init__(self):
                self.say = lambda: self.publish("/X", {})
                def again(): self.publish("/X", {})
                self.again = again
                self.act = self.publish
    """,
    "a state of its own": """
        class A(GraphBusNode):
            def __init__(self):
                self.state = {}
                self.state["n"] = 1
    """,
    "a state of the class": """
        class A(GraphBusNode):
            state = {"n": 0}
            def __init__(self):
                self.count = self.state["n"]
    """,
    "a helper that needs no graph": """
        class A(GraphBusNode):
            def __init__(self):
                self._prepare()
            def _prepare(self):
                self.items = []
                self.later = lambda: self.publish("/X", {})
    """,
    "another object": """
        class A(GraphBusNode):
            def __init__(self):
                self.client = object()
                self.client.publish("/X")
                self.client.state["n"] = 1
    """,
}


@pytest.mark.parametrize("files", [*MADE.values(), *RIGHT_MADE.values()], ids=[*MADE, *RIGHT_MADE])
def test_agents_that_cannot_be_made_are_found(tmp_path: Path, files: Files) -> None:
    assert_marked(tmp_path, files, *MISUSE)


OVERRIDES = {
    "a handler": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): ...
        class A(Base):
            def on_x(self, event): ...  #! GB318
    """,
    "a schema": """
        class Base(GraphBusNode):
            @schema_method({}, {"n": int})
            def count(self): raise NotImplementedError
        class A(Base):
            def count(self): return {"n": 1}  #! GB318
    """,
    "in the middle": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): ...
        class _Middle(Base):
            def on_x(self, event): ...  #! GB318
        class A(_Middle): ...
        class B(_Middle): ...
    """,
    "a mixin": """
        class Audited:
            @subscribe("/X")
            def on_x(self, event): ...
        class A(Audited, GraphBusNode):
            async def on_x(self, event): ...  #! GB318
    """,
    "one of two": """
        class Base(GraphBusNode):
            @subscribe("/X")
            @schema_method({}, {"n": int})
            def count(self): return {"n": 1}
        class A(Base):
            @subscribe("/X")
            def count(self): return {"n": 1}  #! GB318
    """,
}
RIGHT_OVERRIDES = {
    "with its decorator": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): ...
        class A(Base):
            @subscribe("/Y")
            def on_x(self, event): ...
    """,
    "switched off": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): ...
        class A(Base):
            on_x = None
    """,
    "a hook": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): self.handle(event)
            def handle(self, event): ...
        class A(Base):
            def handle(self, event): ...
    """,
    "inherited": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): ...
        class A(Base): ...
    """,
    "one more": """
        class Base(GraphBusNode):
            def count(self): ...
        class A(Base):
            @schema_method({}, {})
            def count(self): return {}
    """,
    "another decorator": """
        from functools import cache
        class Base(GraphBusNode):
            @cache
            def count(self): ...
            @publishes("/X")
            def act(self): self.publish("/X")
        class A(Base):
            def count(self): ...
            def act(self): self.publish("/X")
    """,
    "overridden again": """
        class Base(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event): ...
        class Middle(Base):
            @subscribe("/X")
            def on_x(self, event): ...
        class A(Middle): ...
    """,
}


@pytest.mark.parametrize(
    "text",
    [*OVERRIDES.values(), *RIGHT_OVERRIDES.values()],
    ids=[*OVERRIDES, *RIGHT_OVERRIDES],
)
def test_overrides_that_drop_a_decorator_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, *MISUSE)


IMPORTS: dict[str, Files] = {
    "a class": """
        from graphbus_core import Agent  #! GB319
        class A(Agent): ...
        class B(GraphBusNode): ...
    """,
    "a module": """
        from graphbus_core.runtime.executor import RuntimeExecutor  #! GB319
        class B(GraphBusNode): ...
    """,
    "a module of old": """
        from graphbus_core.node_base import GraphBusNode as Node  #! GB319
        class B(GraphBusNode): ...
    """,
    "a name of a module": """
        from graphbus_core.decorators import subscribes, method  #! GB319 GB319
        class B(GraphBusNode): ...
    """,
    "a plain import": """
        import graphbus_core.runtime.executor  #! GB319
        class B(GraphBusNode): ...
    """,
    "an attribute": """
        import graphbus_core as gb
        class A(gb.Agent): ...  #! GB319
    """,
    "in a function": """
        class B(GraphBusNode):
            def act(self):
                from graphbus_core import MessageBus  #! GB319
                return MessageBus
    """,
    "another package": """
        from graphbus import GraphBusNode as Node  #! GB319
        class A(Node): ...
        class B(GraphBusNode): ...
    """,
    "several on one line": """
        from graphbus_core import GraphBusNode as Node, agent_capability, BuildConfig  #! GB319 GB319
        class B(GraphBusNode): ...
    """,
}
RIGHT_IMPORTS: dict[str, Files] = {
    "everything that there is": """
        import graphbus_core
        import graphbus_core as gb
        import graphbus_core.testing
        from graphbus_core import *
        from graphbus_core import __version__, connect, build_graph, run_graph, LiveGraph, GraphBusError, testing, errors
        from graphbus_core.node import GraphBusNode as Node
        from graphbus_core.model.messages import Event as E
        from graphbus_core.model.config import BuildConfig, RuntimeConfig, LLMConfig
        from graphbus_core.errors import RunError
        from graphbus_core.bus import MessageBus
        from graphbus_core.hosting.graph import LiveGraph as Live
        from graphbus_core.middleware import Middleware
        class A(graphbus_core.GraphBusNode):
            version = gb.__version__
            graph = gb.hosting
    """,
    "what may fail": """
        try:
            from graphbus_core import Agent
        except ImportError:
            Agent = object
        class A(GraphBusNode): ...
    """,
    "what a type checker sees": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from graphbus_core import Agent
        class A(GraphBusNode): ...
    """,
    "an own module of that name": {
        "graphbus.py": "class Agent(GraphBusNode): ...",
        "agents.py": "from graphbus import Agent\nclass A(Agent): ...",
    },
    "an own package of that name": {
        "graphbus/base.py": "class Agent(GraphBusNode): ...",
        "agents.py": "from graphbus.base import Agent\nclass A(Agent): ...",
    },
    "a package whose name begins alike": """
        import graphbus_core_extras
        from graphbus_core_extras.more import Agent
        class A(GraphBusNode): ...
    """,
}


@pytest.mark.parametrize("files", [*IMPORTS.values(), *RIGHT_IMPORTS.values()], ids=[*IMPORTS, *RIGHT_IMPORTS])
def test_imports_of_what_there_is_not_are_found(tmp_path: Path, files: Files) -> None:
    assert_marked(tmp_path, files, *MISUSE)


MEANT = {
    "from graphbus_core import Agent": "Write `from graphbus_core import GraphBusNode`.",
    "from graphbus_core import GraphbusNode": "Did you mean 'GraphBusNode'?",
    "from graphbus_core import subscribes": "Write `from graphbus_core import subscribe`.",
    "from graphbus_core.runtime.executor import RuntimeExecutor": "Write `from graphbus_core import run_graph`.",
    "from graphbus_core.runtime.executor import run_runtime": "Write `from graphbus_core import run_graph`.",
    "from graphbus_core.node_base import GraphBusNode": "Write `from graphbus_core import GraphBusNode`.",
    "from graphbus_core.model.message import Event": "Write `from graphbus_core import Event`.",
    "from graphbus_core.build.builder import build_project": "Write `from graphbus_core import build_graph`.",
    "from graphbus_core import BuildConfig": "Write `from graphbus_core.model.config import BuildConfig`.",
    "from graphbus_core.config import RuntimeConfig": "Write `from graphbus_core.model.config import RuntimeConfig`.",
    "from graphbus_core.runtime.message_bus import MessageBus": "Write `from graphbus_core.bus import MessageBus`.",
}


@pytest.mark.parametrize(("line", "hint"), MEANT.items())
def test_the_name_that_is_meant_is_given(tmp_path: Path, line: str, hint: str) -> None:
    assert only_finding(read(tmp_path, f"{line}\nclass B(GraphBusNode): ...\n"), "GB319").hint == hint


def test_what_is_meant_exists() -> None:
    for hint in filter(lambda hint: hint.startswith("Write"), MEANT.values()):
        exec(hint.split("`")[1], {})


SKIPPED: dict[str, Files] = {
    "by its name": {
        "agents/orders.py": "class A(GraphBusNode): ...",
        "agents/test_stock.py": "class Stock(GraphBusNode): ...  #! GB320",
        "agents/price_test.py": "class Price(GraphBusNode): ...  #! GB320",
        "agents/conftest.py": "class Conf(GraphBusNode): ...  #! GB320",
    },
}
RIGHT_SKIPPED: dict[str, Files] = {
    "a test": {
        "agents/orders.py": "class A(GraphBusNode): ...",
        "agents/test_orders.py": """
            from graphbus_core import connect
            from agents.orders import A
            class Probe(GraphBusNode): ...
            def test_it():
                with connect(A, Probe): ...
        """,
        "agents/test_unit.py": """
            import unittest
            class Probe(GraphBusNode): ...
            class Tests(unittest.TestCase): ...
        """,
        "agents/conftest.py": """
            import pytest
            class Probe(GraphBusNode): ...
            @pytest.fixture
            def probe(): return Probe
        """,
    },
    "a folder of tests": {
        "agents/orders.py": "class A(GraphBusNode): ...",
        "agents/tests/probes.py": "class Probe(GraphBusNode): ...",
        "tests/test_orders.py": "class Probe(GraphBusNode): ...\ndef test_it(): ...",
    },
    "a copy": {
        "agents/orders.py": "class A(GraphBusNode): ...",
        "agents/.ipynb_checkpoints/orders-checkpoint.py": "class A(GraphBusNode): ...",
        "agents/.history/orders_1.py": "class A(GraphBusNode): ...",
    },
    "no agent": {
        "agents/orders.py": "class A(GraphBusNode): ...",
        "agents/test_data.py": "DATA = 'GraphBusNode'\nclass Data: ...",
    },
    "a file that cannot be read": {
        "agents/orders.py": "class A(GraphBusNode): ...",
        "agents/test_half.py": "class GraphBusNode(:",
    },
}


@pytest.mark.parametrize("files", [*SKIPPED.values(), *RIGHT_SKIPPED.values()], ids=[*SKIPPED, *RIGHT_SKIPPED])
def test_agents_in_files_that_are_not_read_are_found(tmp_path: Path, files: Files) -> None:
    assert_marked(tmp_path, files, *MISUSE)


def test_a_factory_makes_agents_with_arguments(tmp_path: Path) -> None:
    text = """
        class A(GraphBusNode):
            def __init__(self, db):
                self.db = db
    """
    assert_marked(tmp_path, text, *MISUSE, settings=Settings(runtime=RuntimeSettings(factory="wiring:make")))


def test_a_constructor_that_several_agents_inherit_is_reported_once(tmp_path: Path) -> None:
    text = """
        class A(GraphBusNode):
            def __init__(self, db):  #! GB315
                self.db = db
        class B(A): ...
        class C(A): ...
        @depends_on(A)
        class D(GraphBusNode): ...
    """
    assert_marked(tmp_path, text, *MISUSE)


def test_a_comment_silences_what_is_found_in_a_file_that_is_not_read(tmp_path: Path) -> None:
    files = {
        "orders.py": "class A(GraphBusNode): ...",
        "test_stock.py": "class Stock(GraphBusNode): ...  # graphbus: ignore[GB320]",
    }
    assert_marked(tmp_path, files, *MISUSE)


def test_what_is_excluded_is_not_reported(tmp_path: Path) -> None:
    files = {"orders.py": "class A(GraphBusNode): ...", "test_stock.py": "class Stock(GraphBusNode): ..."}
    assert_marked(tmp_path, files, *MISUSE, settings=Settings(exclude=("test_*.py",)))


EVENTS = {
    "an event and a field": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event: Event, sku: str): ...  #! GB321
    """,
    "a field and an event": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, sku: str, happened: Event): ...  #! GB321
    """,
    "an event that may be left out": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, sku: str, event: Event | None = None): ...  #! GB321
    """,
    "an event as text": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event: "Event", *, sku: str): ...  #! GB321
    """,
    "the wrong way round": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, payload: dict, event: Event): ...  #! GB321
    """,
}
RIGHT_EVENTS = {
    "an event": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event: Event): ...
    """,
    "an event and the payload": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event: Event, payload: dict): ...
    """,
    "an event and a typed payload": """
        from typing import TypedDict
        class Order(TypedDict):
            sku: str
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event: Event, order: Order): ...
    """,
    "fields": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, sku: str, event: str, count: int = 1): ...
    """,
    "a field of that name": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event, sku): ...
    """,
    "no handler": """
        class A(GraphBusNode):
            def on_x(self, event: Event, sku: str): ...
    """,
    "another Event": """
        from calendar_api import Event as Appointment
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, event: Appointment, sku: str): ...
    """,
}


@pytest.mark.parametrize("text", [*EVENTS.values(), *RIGHT_EVENTS.values()], ids=[*EVENTS, *RIGHT_EVENTS])
def test_events_beside_fields_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, *MISUSE)


TOPICS = {
    "a malformed name": """
        from graphbus_core import Topic
        class Order: ...
        CREATED = Topic("Order/Created", Order)  #! GB322
        PAID = Topic("/Order//Paid", Order)  #! GB322
        SPACE = Topic("/Order Created", payload=Order)  #! GB322
        MANY = Topic("/**/Created", Order)  #! GB322
        EMPTY = Topic("", Order)  #! GB322
        NUMBER = Topic(3, Order)  #! GB322
    """,
    "a malformed name of a constant": """
        from graphbus_core.model.topics import Topic
        NAME = "Order"
        CREATED = Topic(f"{NAME}/Created", dict)  #! GB322
    """,
    "no type": """
        import graphbus_core as gb
        CREATED = gb.Topic("/Order/Created")  #! GB322
    """,
    "nothing at all": """
        from graphbus_core import Topic
        CREATED = Topic()  #! GB322 GB322
    """,
    "no type but a value": """
        from graphbus_core import Topic
        class Order: ...
        def make(): ...
        TEXT = Topic("/A", "Order")  #! GB322
        NUMBER = Topic("/A", 3)  #! GB322
        OBJECT = Topic("/A", Order())  #! GB322
        FUNCTION = Topic("/A", make)  #! GB322
    """,
    "in a class": """
        from graphbus_core import Topic as T
        class Topics:
            CREATED = T("Order", dict)  #! GB322
    """,
}
RIGHT_TOPICS = {
    "types": """
        import datetime
        from typing import Any, TypedDict, Union
        import elsewhere
        from elsewhere import Model, make_type
        from graphbus_core import Topic
        class Order(TypedDict):
            sku: str
        class Generic(elsewhere.Base): ...
        Alias = dict[str, int]
        TOPICS = [
            Topic("/A", Order), Topic("/A", payload=Order), Topic(name="/A", payload=Order), Topic("/A/*", list[Order]),
            Topic("/**", Any), Topic("/A", object), Topic("/A", Alias), Topic("/A", int | str), Topic("/A", Union[int, str]),
            Topic("/A", Model), Topic("/A", make_type("x")), Topic("/A", elsewhere.Other[Order]), Topic("/A", datetime.date),
            Topic("/A", None), Topic("/A", {"sku": str}), Topic[Order]("/A", Order), Topic("/A", Generic[int]),
        ]
    """,
    "hidden": """
        from graphbus_core import Topic
        GIVEN = ("/A", dict)
        A = Topic(*GIVEN)
        B = Topic(**{"name": "/A", "payload": dict})
    """,
    "another Topic": """
        from kafka import Topic
        A = Topic("orders", "text")
        class GraphBusNode: ...
    """,
    "an own Topic": """
        class Topic:
            def __init__(self, name): ...
        A = Topic("orders")
    """,
}


@pytest.mark.parametrize("text", [*TOPICS.values(), *RIGHT_TOPICS.values()], ids=[*TOPICS, *RIGHT_TOPICS])
def test_topics_that_are_none_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, *MISUSE)


ANNOTATIONS = {
    "a handler": """
        from __future__ import annotations
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, order: Order): ...  #! GB323
    """,
    "as text": """
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, order: "Order | None"): ...  #! GB323
    """,
    "within": """
        class A(GraphBusNode):
            @schema_method({"orders": list}, {})
            def act(self, orders: "list[Order]") -> "dict[str, Quote]": ...  #! GB323 GB323
    """,
    "a module": """
        from __future__ import annotations
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, order: model.Order): ...  #! GB323
    """,
}
RIGHT_ANNOTATIONS = {
    "defined later": """
        from __future__ import annotations
        from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar
        import model
        if TYPE_CHECKING:
            from model import Paid
        T = TypeVar("T")
        class A(GraphBusNode):
            Local = dict
            @subscribe("/X")
            def on_x(self, order: Order): ...
            @subscribe("/Y")
            def on_y(self, order: "Paid | model.Order | None"): ...
            @subscribe("/Z")
            def on_z(self, kind: Literal["Nope"], more: Annotated[int, "Nope more"], local: Local, text: "not, a type"): ...
            def helper(self, order: Nope): ...
        class Order: ...
    """,
    "from a star": """
        from __future__ import annotations
        from model import *
        class A(GraphBusNode):
            @subscribe("/X")
            def on_x(self, order: Order): ...
    """,
}


@pytest.mark.parametrize(
    "text", [*ANNOTATIONS.values(), *RIGHT_ANNOTATIONS.values()], ids=[*ANNOTATIONS, *RIGHT_ANNOTATIONS]
)
def test_annotations_that_name_nothing_are_found(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, *MISUSE)


def test_each_rule_has_wrong_and_right_examples() -> None:
    wrong = {
        **DECORATORS,
        **NOT_AWAITED,
        **MADE,
        **OVERRIDES,
        **IMPORTS,
        **SKIPPED,
        **EVENTS,
        **TOPICS,
        **ANNOTATIONS,
        **BY_NAME,
    }
    assert all(any(code in str(text) for text in wrong.values()) for code in MISUSE[1:])
    assert set(MISUSE) <= set(rules.REGISTER)
