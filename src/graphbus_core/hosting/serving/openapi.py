"""The HTTP interface of a graph as OpenAPI 3.1: a path for each method that can be called, and each topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphbus_core.hosting.serving.problems import MEDIA_TYPE
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Topic
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.json_schema import JsonSchema, Writer
from graphbus_core.model.project_info import ProjectInfo
from graphbus_core.model.schema import Schema
from graphbus_core.model.topics import is_topic

VERSION = "3.1.0"

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
_WAIT = {
    "name": "wait",
    "in": "query",
    "description": "Seconds to wait for the event to be handled.",
    "schema": {"type": "number", "minimum": 0},
}


def document(artifacts: BuildArtifacts, info: ProjectInfo) -> dict[str, Any]:
    """Describe what can be called and published."""
    agents = artifacts.agents.agents
    calls = {
        f"/call/{agent.name}/{method.name}": {"post": _call(agent, method)}
        for agent in agents
        for method in agent.methods
        if method.has_schema
    }
    topics = [topic for topic in artifacts.topics.topics if is_topic(topic.name)]
    return {
        "openapi": VERSION,
        "info": _info(info),
        "paths": {**calls, **{f"/publish{topic.name}": {"post": _publish(topic)} for topic in topics}, **_probes()},
        "components": {
            "schemas": {"Problem": _PROBLEM, "Accepted": _ACCEPTED},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {"description": "The request was refused.", "content": {MEDIA_TYPE: _ref("Problem")}}
            },
        },
        "security": [{"token": []}],
    }


def _info(info: ProjectInfo) -> dict[str, Any]:
    return {name: text for name, text in info._asdict().items() if text}


def _call(agent: AgentDefinition, method: MethodSpec) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"call.{agent.name}.{method.name}",
        "tags": [agent.name],
        "requestBody": _body(method.input_schema, _WRITER.arguments),
        "responses": {
            "200": {"description": "The result of the method.", "content": _json(method.output_schema, _WRITER.result)},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    summary = method.doc.strip().partition("\n")[0]
    return {**operation, "summary": summary} if summary else operation


def _publish(topic: Topic) -> dict[str, Any]:
    heard = ", ".join(topic.subscribers)
    return {
        "operationId": f"publish{topic.name.replace('/', '.')}",
        "tags": ["topics"],
        "summary": f"Publish {topic.name}" + (f", heard by {heard}" if heard else ""),
        "parameters": [_WAIT],
        "requestBody": _body(topic.schema, _WRITER.payload),
        "responses": {
            "202": {"description": "The event is on its way.", "content": {"application/json": _ref("Accepted")}},
            "200": {"description": "With `wait`: it is handled.", "content": {"application/json": _ref("Accepted")}},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }


def _probes() -> dict[str, Any]:
    meanings = {"/livez": "No handler is stuck", "/readyz": "Requests are taken", "/startupz": "The graph has started"}
    return {path: {"get": _probe(path, meaning)} for path, meaning in meanings.items()}


def _probe(path: str, meaning: str) -> dict[str, Any]:
    answer = {"content": {"application/json": {"schema": {"type": "object", "required": ["status"]}}}}
    return {
        "operationId": path.strip("/"),
        "tags": ["probes"],
        "summary": meaning,
        "security": [],
        "responses": {"200": {"description": "Yes.", **answer}, "503": {"description": "No.", **answer}},
    }


def _body(schema: Schema | None, write: Callable[[Schema], JsonSchema]) -> dict[str, Any]:
    return {"required": _has_required(schema), "content": _json(schema, write)}


def _json(schema: Schema | None, write: Callable[[Schema], JsonSchema]) -> dict[str, Any]:
    return {"application/json": {"schema": {} if schema is None else write(schema)}}


def _has_required(schema: Schema | None) -> bool:
    return schema is not None and any(field.required for field in schema.fields)


def _ref(name: str) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}
