"""The text of a new agent and of its test: pure functions from what was asked for to Python source."""

from __future__ import annotations

import re
from typing import NamedTuple

from graphbus_core.schema.types import STR, Field, Schema

PLACEHOLDER = Schema((Field("text", STR),))
"""What a new topic carries until somebody decides."""

PLAIN_KINDS = {"bool": "True", "int": "1", "float": "1.5", "str": '"text"', "list": "[]", "dict": "{}"}
"""The types that a new agent may use without an import, each with an example."""

_WILDCARDS = {"*": "any", "**": "all"}


class Said(NamedTuple):
    """A topic that the new agent publishes, and the fields that others send or expect there."""

    topic: str
    payload: Schema = PLACEHOLDER


class Draft(NamedTuple):
    """What the new agent shall be."""

    name: str
    heard: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()
    needed: tuple[str, ...] = ()


def snake(name: str) -> str:
    """Give a class name or a topic in snake case: `HTTPGateway` -> `http_gateway`, `/Order/*` -> `order_any`."""
    segments = [_WILDCARDS.get(segment, segment) for segment in name.split("/") if segment]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", "_".join(segments))
    return re.sub(r"[^A-Za-z0-9]+", "_", words).strip("_").lower()


def agent_source(draft: Draft) -> str:
    """Write the module of the agent; its class carries a prompt and a method for each topic."""
    return "\n".join([_opening(draft), *map(_handler, draft.heard), *map(_announcement, draft.said)])


def _opening(draft: Draft) -> str:
    imports = ["Event"] * bool(draft.heard) + ["GraphBusNode"] + ["depends_on"] * bool(draft.needed)
    imports += ["schema_method"] * bool(draft.said) + ["subscribe"] * bool(draft.heard)
    needed = ", ".join(f'"{name}"' for name in draft.needed)
    decorator = f"@depends_on({needed})\n" if needed else ""
    return f'''"""{draft.name}: say in one line what it is there for."""

from __future__ import annotations

from graphbus_core import {", ".join(imports)}


{decorator}class {draft.name}(GraphBusNode):
    """Say here what it does and what others can rely on."""

    SYSTEM_PROMPT = """
    I am {draft.name}. Say here what I am responsible for, what I need from other agents
    and what I look after in a negotiation.
    """
'''


def _handler(topic: str) -> str:
    return f'''    @subscribe("{topic}")
    def on_{snake(topic)}(self, event: Event) -> None:
        """Hear of {topic}."""
        self.log(f"{{event.topic}}: {{dict(event)}}")
'''


def _announcement(said: Said) -> str:
    fields = said.payload.fields
    schema = ", ".join(f'"{field.name}": {field.type}' for field in fields)
    parameters = "".join(f", {field.name}: {field.type}" for field in fields)
    payload = ", ".join(f'"{field.name}": {field.name}' for field in fields)
    return f'''    @schema_method(input_schema={{{schema}}}, output_schema={{"announced": bool}})
    def announce_{snake(said.topic)}(self{parameters}) -> dict[str, bool]:
        """Publish on {said.topic}."""
        self.publish("{said.topic}", {{{payload}}})
        return {{"announced": True}}
'''


def test_source(draft: Draft, module: str) -> str:
    """Write a test that runs the agent on a bus of its own; `module` is where the agent is imported from."""
    tests = [
        *(_hearing_test(draft, topic) for topic in draft.heard),
        *(_saying_test(draft, said) for said in draft.said),
    ]
    return "\n\n".join([_test_opening(draft, module), *(tests or [_starting_test(draft)])])


def _test_opening(draft: Draft, module: str) -> str:
    return f'''"""{draft.name} on a bus of its own."""

from __future__ import annotations

from graphbus_core.testing import run_graph

from {module} import {draft.name}
'''


def _hearing_test(draft: Draft, topic: str) -> str:
    sent = topic.replace("**", "Something").replace("*", "Something")
    return f'''def test_it_hears_of_{snake(topic)}():
    with run_graph({draft.name}) as graph:
        graph.publish("{sent}", {{}})
        graph.assert_delivered_to("{draft.name}", "{sent}")
'''


def _saying_test(draft: Draft, said: Said) -> str:
    arguments = "".join(f", {field.name}={PLAIN_KINDS[field.type.kind]}" for field in said.payload.fields)
    method = f"announce_{snake(said.topic)}"
    return f'''def test_it_publishes_{snake(said.topic)}():
    with run_graph({draft.name}) as graph:
        graph.call("{draft.name}", "{method}"{arguments})
        graph.assert_published("{said.topic}")
'''


def _starting_test(draft: Draft) -> str:
    return f'''def test_it_starts():
    with run_graph({draft.name}) as graph:
        assert isinstance(graph.node("{draft.name}"), {draft.name})
'''
