"""Describes the HTTP interface of a graph as OpenAPI 3.1, with a path for each callable method and each topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphbus_core.hosting.serving.problems import MEDIA_TYPE, TITLES
from graphbus_core.model.agent import AgentDefinition, MethodSpec, TopicDefinition
from graphbus_core.model.artifacts import ProjectInfo
from graphbus_core.model.topics import is_topic, matches
from graphbus_core.schema.json_schema import JsonSchema, Writer
from graphbus_core.schema.types import Schema
from graphbus_core.store import BuildArtifacts

_WRITER = Writer()

_PROBLEM = {
    "type": "object",
    "description": "Why a request was refused (RFC 9457).",
    "required": ["title", "status", "detail"],
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "The error code of GraphBus."},
        "hint": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "expected", "got"],
                "properties": {name: {"type": "string"} for name in ("field", "expected", "got")},
            },
        },
        "request_id": {"type": "string"},
    },
}
_ACCEPTED = {
    "type": "object",
    "required": ["event_id", "status"],
    "properties": {
        "event_id": {"type": "string"},
        "status": {"enum": ["accepted", "delivered", "failed"]},
        "failed": {"type": "array", "items": {"type": "string"}, "description": "Handlers whose dead letter it is."},
    },
}
_REFUSALS = (400, 401, 403, 413, 415, 422, 500, 503, 504)
"""The error statuses of a request to an existing address."""
_UNDECLARED_PAYLOAD = "What its handlers take. An event that they cannot take is accepted, and becomes a dead letter."


def describe_api(artifacts: BuildArtifacts, info: ProjectInfo, *, wait_limit_s: float) -> dict[str, Any]:
    """Return the OpenAPI document of a built graph as JSON data.

    Args:
        artifacts: The agents and topics to describe.
        info: Name, version and description of the project.
        wait_limit_s: The maximum of `?wait=SECONDS` of a publish.
    """
    agents = artifacts.agents.agents
    calls = {
        f"/call/{agent.name}/{method.name}": {"post": _call_operation(agent, method)}
        for agent in agents
        for method in agent.methods
        if method.has_schema
    }
    topics = [topic for topic in artifacts.topics.topics if is_topic(topic.name)]
    return {
        "openapi": "3.1.0",
        "info": {name: text for name, text in info._asdict().items() if text},
        "paths": {
            **calls,
            **{f"/publish{topic.name}": {"post": _publish_operation(topic, agents, wait_limit_s)} for topic in topics},
            **_probe_paths(),
        },
        "components": {
            "schemas": {"Problem": _PROBLEM, "Accepted": _ACCEPTED},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": "The request was refused.",
                    "content": {MEDIA_TYPE: _schema_reference("Problem")},
                },
                **{_component_name(status): _refusal_response(status) for status in _REFUSALS},
            },
        },
        "security": [{"token": []}],
    }


def _call_operation(agent: AgentDefinition, method: MethodSpec) -> dict[str, Any]:
    """Return the OpenAPI operation that calls a method."""
    result = {} if method.output_schema is None else _WRITER.result(method.output_schema)
    operation: dict[str, Any] = {
        "operationId": f"call.{agent.name}.{method.name}",
        "tags": [agent.name],
        "requestBody": _request_body([method.input_schema], _WRITER.arguments),
        "responses": {
            "200": {"description": "The result of the method.", "content": _json_content(result)},
            **_refusal_references(),
        },
    }
    summary = method.doc.strip().partition("\n")[0]
    return {**operation, "summary": summary} if summary else operation


def _publish_operation(
    topic: TopicDefinition, agents: Iterable[AgentDefinition], wait_limit_s: float
) -> dict[str, Any]:
    """Return the OpenAPI operation that publishes on a topic.

    The payload must fit the schema of the topic; if it has none, the schemas that its handlers declare.
    """
    subscribers = ", ".join(topic.subscribers)
    declared = [] if topic.schema else _declared_payloads(topic.name, agents)
    return {
        "operationId": f"publish{topic.name.replace('/', '.')}",
        "tags": ["topics"],
        "summary": f"Publish {topic.name}" + (f", heard by {subscribers}" if subscribers else ""),
        **({"description": _UNDECLARED_PAYLOAD} if declared else {}),
        "parameters": [_wait_parameter(wait_limit_s)],
        "requestBody": _request_body(declared or [topic.schema], _WRITER.payload),
        "responses": {
            "202": {
                "description": "The event is on its way.",
                "content": {"application/json": _schema_reference("Accepted")},
            },
            "200": {
                "description": "With `wait`: it is handled.",
                "content": {"application/json": _schema_reference("Accepted")},
            },
            **_refusal_references(),
        },
    }


def _declared_payloads(topic: str, agents: Iterable[AgentDefinition]) -> list[Schema]:
    """Return the payload schemas that the handlers of a topic declare, each once."""
    found = [
        each.declared_schema
        for agent in agents
        for each in agent.subscriptions
        if each.topic and matches(each.topic, topic)
    ]
    return list(dict.fromkeys(each for each in found if each is not None))


def _wait_parameter(limit_s: float) -> dict[str, Any]:
    """Return the description of `?wait=SECONDS`, at most `limit_s`."""
    return {
        "name": "wait",
        "in": "query",
        "description": "Seconds to wait for the event to be handled.",
        "schema": {"type": "number", "minimum": 0, "maximum": limit_s},
    }


def _refusal_references() -> dict[str, Any]:
    """Return status -> reference to the component that describes its response."""
    named = {str(status): {"$ref": f"#/components/responses/{_component_name(status)}"} for status in _REFUSALS}
    return {**named, "default": {"$ref": "#/components/responses/Problem"}}


def _refusal_response(status: int) -> dict[str, Any]:
    """Return the description of the response with an error status."""
    headers = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}} if status == 503 else {}
    answer = {"description": f"{TITLES[status]}.", "content": {MEDIA_TYPE: _schema_reference("Problem")}}
    return {**answer, "headers": headers} if headers else answer


def _component_name(status: int) -> str:
    """Return the name of the component that describes an error status, such as `NotFound`."""
    return TITLES[status].replace(" ", "")


def _probe_paths() -> dict[str, Any]:
    meanings = {"/livez": "No handler is stuck", "/readyz": "Requests are taken", "/startupz": "The graph has started"}
    return {path: {"get": _probe_operation(path, meaning)} for path, meaning in meanings.items()}


def _probe_operation(path: str, meaning: str) -> dict[str, Any]:
    """Return the OpenAPI operation that requests a probe; it needs no token."""
    answer = {"content": {"application/json": {"schema": {"type": "object", "required": ["status"]}}}}
    return {
        "operationId": path.strip("/"),
        "tags": ["probes"],
        "summary": meaning,
        "security": [],
        "responses": {"200": {"description": "Yes.", **answer}, "503": {"description": "No.", **answer}},
    }


def _request_body(schemas: Sequence[Schema | None], write: Callable[[Schema], JsonSchema]) -> dict[str, Any]:
    """Return the description of a request body that must fit all of these schemas; None stands for an unknown one."""
    known = [schema for schema in schemas if schema is not None]
    written = [write(schema) for schema in known]
    fitting = (
        {"allOf": written} if len(written) > 1 else {key: value for each in written for key, value in each.items()}
    )
    is_required = any(field.required for schema in known for field in schema.fields)
    return {"required": is_required, "content": _json_content(fitting)}


def _json_content(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema_reference(name: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}
