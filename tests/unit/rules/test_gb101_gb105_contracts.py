"""GB101 to GB105: a method against the contract that it declares."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core.compiler import rules
from graphbus_core.model.config import Settings
from tests.checking import Files, assert_marked, fixed, only_finding, read, text_of
from tests.reading import HEAD, read_files

INPUT_WRONG = {
    "a field that no parameter takes": """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str, "discount": float})  #! GB101
    def order(self, order_id): ...
""",
    "a parameter that the schema leaves out": """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, order_id, items): ...  #! GB102
""",
    "one thing under two names is said once": """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})  #! GB101
    def order(self, orderid): ...
""",
    "an inherited method is said once, where it is written": """
class BaseOrders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})  #! GB101 GB101
    def order(self): ...
    @schema_method(input_schema={"more": str})
    def more(self, more): ...
class One(BaseOrders): ...
class Two(BaseOrders): ...
""".replace("GB101 GB101", "GB101"),
}

INPUT_RIGHT = {
    "**kwargs takes the rest": """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str, "items": list})
    def order(self, order_id, **rest): ...
""",
    "a schema that cannot be read": """
SCHEMA = {}
SCHEMA.update(order_id=str)
class Orders(GraphBusNode):
    @schema_method(input_schema=SCHEMA | {"x": str})
    def order(self, order_id): ...
    @schema_method(make())
    def other(self, order_id): ...
    @schema_method()
    def third(self, order_id): ...
""",
    "a handler gets its event": """
class Orders(GraphBusNode):
    @subscribe("/Order/Placed")
    @schema_method(input_schema={"order_id": str})
    def on_order(self, event): ...
""",
}

OUTPUT = 'class Orders(GraphBusNode):\n    @schema_method({}, {"status": str, "total": float})\n    def order(self):\n'

OUTPUT_WRONG = {
    "a missing key": OUTPUT
    + """
        return {"status": "ok"}  #! GB103
""",
    "another name": OUTPUT
    + """
        return {"status": "ok", "totl": 1.0}  #! GB103
""",
    "a further key": OUTPUT
    + """
        return {"status": "ok", "total": 1.0, "note": "x"}  #! GB103
""",
    "another type": OUTPUT
    + """
        return {"status": "ok", "total": "1.0"}  #! GB103
""",
    "a text": OUTPUT
    + """
        return "ok"  #! GB104
""",
    "nothing": OUTPUT
    + """
        return  #! GB105
""",
    "the end of the body": OUTPUT
    + """
        if self.busy():  #! GB105
            return {"status": "ok", "total": 1.0}
    def busy(self): ...
""",
}

OUTPUT_RIGHT = {
    "a result that others change": OUTPUT
    + """
        result = {"status": "ok"}
        self.complete(result)
        return result
    def complete(self, result): ...
""",
    "a helper that always raises": OUTPUT
    + """
        if self.busy():
            return {"status": "ok", "total": 1.0}
        self.fail()
    def fail(self):
        raise RuntimeError("no")
    def busy(self): ...
""",
    "an unknown decorator": OUTPUT.replace("    @schema", "    @wrapped\n    @schema")
    + """
        return ["ok"]
""",
    "an optional key": """
from typing import NotRequired
class Orders(GraphBusNode):
    @schema_method({}, {"status": str, "note": NotRequired[str]})
    def order(self):
        return {"status": "ok"}
""",
    "a choice that is narrowed": """
class Orders(GraphBusNode):
    @schema_method({"note": str | None}, {"note": str})
    def order(self, note: str | None = None):
        if note is None:
            raise ValueError
        return {"note": note}
""",
    "a typed class as schema": """
from typing import TypedDict
class Result(TypedDict, total=False):
    status: str
    note: str
class Orders(GraphBusNode):
    @schema_method({}, Result)
    def order(self) -> Result:
        return {"status": "ok"}
    @schema_method({}, Result)
    def other(self) -> Result:
        return Result(status="ok")
""",
}

INPUTS = {**INPUT_WRONG, **INPUT_RIGHT}
OUTPUTS = {**OUTPUT_WRONG, **OUTPUT_RIGHT}


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS)
def test_signatures_that_do_not_fit_their_schema_are_found_and_no_others(tmp_path: Path, text: Files) -> None:
    assert_marked(tmp_path, text, "GB101", "GB102")


@pytest.mark.parametrize("text", OUTPUTS.values(), ids=OUTPUTS)
def test_results_that_do_not_fit_their_schema_are_found_and_no_others(tmp_path: Path, text: Files) -> None:
    assert_marked(tmp_path, text, "GB103", "GB104", "GB105")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (INPUT_WRONG["a field that no parameter takes"], "GB101",
         "Orders.order cannot take 'discount', which its input_schema declares"),
        (INPUT_WRONG["a parameter that the schema leaves out"], "GB102",
         "Orders.order needs 'items', which its input_schema does not declare"),
        (OUTPUT_WRONG["a missing key"], "GB103", "Orders.order returns no 'total', which its output_schema declares"),
        (OUTPUT_WRONG["another name"], "GB103", "Orders.order returns 'totl' where its output_schema declares 'total'"),
        (OUTPUT_WRONG["a further key"], "GB103", "Orders.order returns 'note', which its output_schema does not declare"),
        (OUTPUT_WRONG["another type"], "GB103",
         "Orders.order returns 'total' against its output_schema: float is wanted, str is given"),
        (OUTPUT_WRONG["a text"], "GB104",
         "Orders.order returns str, but its output_schema declares {status: str, total: float}"),
        (OUTPUT_WRONG["nothing"], "GB105",
         "Orders.order may return None, but its output_schema declares {status: str, total: float}"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("GB") else "",
)  # fmt: skip
def test_a_broken_contract_is_told_in_a_sentence(tmp_path: Path, text: str, code: str, message: str) -> None:
    assert only_finding(read(tmp_path, text), code).message == message


FIXED = {
    "GB101 renames": (
        "GB101",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, orderid: str) -> dict:
        '''Order orderid.'''
        total = [orderid for each in range(3)]  # orderid
        return {"text": f"{orderid}", "orderid": total, "f": lambda: orderid}
""",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, order_id: str) -> dict:
        '''Order orderid.'''
        total = [order_id for each in range(3)]  # orderid
        return {"text": f"{order_id}", "orderid": total, "f": lambda: order_id}
""",
    ),
    "GB102 in one line": (
        "GB102",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={'order_id': str}, output_schema={})
    def order(self, order_id: str, items: list[str]): ...
""",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={'order_id': str, "items": list[str]}, output_schema={})
    def order(self, order_id: str, items: list[str]): ...
""",
    ),
    "GB103": (
        "GB103",
        OUTPUT + '        return {"status": "ok", "totl": 1.0}  # totl\n',
        OUTPUT + '        return {"status": "ok", "total": 1.0}  # totl\n',
    ),
}


@pytest.mark.parametrize(("code", "before", "after"), FIXED.values(), ids=FIXED)
def test_a_contract_is_fixed_token_by_token(tmp_path: Path, code: str, before: str, after: str) -> None:
    assert text_of(fixed(read(tmp_path, before), code)).strip() == after.strip()


CALLER = """
@depends_on("Orders")
class Shop(GraphBusNode):
    def buy(self, name):
        return self.call({target})["totl"]
"""
MISNAMED = OUTPUT + '        return {"status": "ok", "totl": 1.0}\n'


@pytest.mark.parametrize(
    "target", ['"Orders", "order"', '"Orders", name', 'name, "order"', "name, name", '"More", "order"']
)
def test_a_returned_key_is_kept_while_somebody_may_call_the_method(tmp_path: Path, target: str) -> None:
    text = MISNAMED + "class More(Orders): ...\n" + CALLER.replace("{target}", target)
    finding = only_finding(read(tmp_path, text), "GB103")
    assert not finding.is_fixable
    assert finding.hint == "Rename 'totl' to 'total', there and in what reads the result: Shop may call it."


@pytest.mark.parametrize(
    "main",
    ['graph.call("Orders", "order")["totl"]', "Orders().order()['totl']", "order(totl", "print(order()['totl'])"],
)
def test_a_returned_key_is_kept_while_another_file_may_read_it(tmp_path: Path, main: str) -> None:
    project = read_files(tmp_path, {"agents.py": HEAD + dedent(MISNAMED), "main.py": main + "\n"})
    assert not only_finding(project, "GB103").is_fixable


READS = ["return self.order()", "found = self.order()", 'later("order")', "use(self.order())"]


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("key", ['"totl"', "self.totl", "dict(totl=1)", "totl"])
def test_a_returned_key_is_kept_where_the_result_is_used_and_the_key_is_mentioned(
    tmp_path: Path, call: str, key: str
) -> None:
    handler = (
        f'    @subscribe("/Order/Placed")\n    def on_order(self, event):\n        {call}\n        self.log({key})\n'
    )
    assert not only_finding(read(tmp_path, MISNAMED + handler), "GB103").is_fixable


@pytest.mark.parametrize("call", READS)
def test_a_returned_key_is_fixed_where_nobody_mentions_it(tmp_path: Path, call: str) -> None:
    handler = f'    @subscribe("/Order/Placed")\n    def on_order(self, event):\n        {call}\n'
    assert only_finding(read(tmp_path, MISNAMED + handler), "GB103").is_fixable


NOT_FIXED = {
    "the new name is taken": (
        "GB101",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, orderid: str):
        order_id = orderid.strip()
        return order_id
""",
    ),
    "the parameter is passed by name": (
        "GB101",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, orderid: str): ...
    def again(self):
        self.order(orderid="1")
""",
    ),
    "names are looked up as text": (
        "GB101",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, orderid: str):
        return "{orderid}".format(**locals())
""",
    ),
    "the parameter means something else as well": (
        "GB101",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"order_id": str})
    def order(self, orderid: str):
        try:
            return int(orderid)
        except ValueError as orderid:
            return 0
""",
    ),
    "the name is written with a ligature": (
        "GB101",
        """
class Orders(GraphBusNode):
    @schema_method(input_schema={"field_id": str})
    def order(self, \N{LATIN SMALL LIGATURE FI}eldid: str): ...
""",
    ),
    "no key is near": ("GB103", OUTPUT + '        return {"status": "ok", "sum": 1.0}\n'),
}


def test_a_parameter_is_not_renamed_while_a_file_that_may_pass_it_cannot_be_read(tmp_path: Path) -> None:
    text = INPUT_WRONG["one thing under two names is said once"]
    files = {"agents.py": HEAD + dedent(text), "broken.py": "order(orderid=1"}
    assert only_finding(read_files(tmp_path / "1", {"agents.py": files["agents.py"]}), "GB101").is_fixable
    assert not only_finding(read_files(tmp_path / "2", files), "GB101").is_fixable
    large = {**files, "broken.py": "x = 1\n" * 200}
    limited = read_files(tmp_path / "3", large, Settings(max_source_bytes=1000))
    assert not only_finding(limited, "GB101").is_fixable


@pytest.mark.parametrize(("code", "text"), NOT_FIXED.values(), ids=NOT_FIXED)
def test_a_contract_is_not_fixed_on_a_guess(tmp_path: Path, code: str, text: str) -> None:
    project = read(tmp_path, text)
    findings = [finding for finding in rules.check(project, select=[code]) if finding.code == code]
    assert findings
    assert not any(finding.is_fixable for finding in findings)


@pytest.mark.parametrize("call", ["self.order()", "await self.order()"])
def test_a_returned_key_is_fixed_where_nobody_looks_at_the_result(tmp_path: Path, call: str) -> None:
    handler = f'    @subscribe("/Order/Placed")\n    async def on_order(self, event):\n        {call}\n'
    assert only_finding(read(tmp_path, MISNAMED + handler), "GB103").is_fixable
