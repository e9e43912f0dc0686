"""Manifests as a user gets them: projects that are built, and what `graphbus k8s generate` writes for them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project

ROOT = Path(__file__).resolve().parents[2]
STATIONS = {
    "pyproject.toml": """
        [project]
        name = "stations"
        version = "2.1.0"

        [tool.graphbus.runtime]
        grace_s = 2.5
        """,
    "stations/__init__.py": "",
    "stations/harbour.py": """
        from graphbus_core import GraphBusNode, schema_method

        class HarbourStation(GraphBusNode):
            @schema_method(input_schema={"level": float}, output_schema={"highest": float})
            def measure(self, level):
                self.state["highest"] = max(level, self.state.get("highest", level))
                return {"highest": self.state["highest"]}
        """,
    "stations/summit.py": """
        from graphbus_core import GraphBusNode, schema_method

        class SummitStation(GraphBusNode):
            @schema_method(input_schema={"gusts": list[float]}, output_schema={"strongest": float})
            def measure(self, gusts):
                return {"strongest": max(gusts)}
        """,
}
"""Two agents that know nothing of each other; one keeps state."""

_SERVED = [
    "--serve",
    *("--allow-from", "monitoring", "--allow-from", "ingress-nginx"),
    *("--allow-egress", "10.20.0.0/16:5432", "--allow-egress", "database:5432", "--allow-egress", "fd00::/8"),
    *("--pull-secret", "registry"),
]
_ON_NATS = ["--topology", "per-agent", "--ledger", "nats://nats.messaging.svc:4222/orders"]
CASES: Mapping[str, tuple[str, list[str]]] = {
    "orders": ("orders", ["--namespace", "production"]),
    "orders-served": ("orders", ["--namespace", "production", "--image", "ghcr.io/acme/orders:1.4.2", *_SERVED]),
    "stations": ("stations", ["-n", "weather"]),
    "stations-served": ("stations", ["-n", "weather", "--serve", "--state", "none"]),
    "stations-per-agent": ("stations", ["-n", "weather", "--topology", "per-agent"]),
    "stations-per-agent-served": ("stations", ["-n", "weather", "--topology", "per-agent", *_SERVED]),
    "orders-per-agent-nats": (
        "orders",
        ["-n", "production", *_ON_NATS, "--replicas", "Books=1..5", "--replicas", "Pricing=2"],
    ),
    "stations-nats-served": ("stations", ["-n", "weather", "--ledger", "tls://nats.example.org", *_SERVED]),
}
"""Name -> project, and what is asked for."""
_SETTINGS = {
    "orders-per-agent-nats": """
[tool.graphbus.runtime.nats]
partitions = { Payments = 3 }
shared = ["Books", "Pricing"]
"""
}
"""Name -> what its pyproject.toml says besides."""


def write_built(project: str, folder: Path) -> Path:
    """Write a project and its artifacts."""
    if project == "orders":
        shutil.copytree(ROOT / "examples/orders", folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    else:
        write_project(folder, STATIONS)
    build_graph(folder / project)
    return folder


@cache
def generated(case: str) -> Mapping[str, str]:
    """Path -> text of what is written for a case."""
    project, options = CASES[case]
    with TemporaryDirectory() as made:
        folder = write_built(project, Path(made, project))
        with (folder / "pyproject.toml").open("a") as settings:
            settings.write(_SETTINGS.get(case, ""))
        assert main(["-C", str(folder), "k8s", "generate", *options]) == 0
        out = folder / "k8s"
        return {path.relative_to(out).as_posix(): path.read_text() for path in sorted(out.rglob("*.yaml"))}


def documents(case: str) -> dict[str, Any]:
    """Path -> object, without the kustomization."""
    return {path: yaml.safe_load(text) for path, text in generated(case).items() if path != "kustomization.yaml"}


def of_kind(case: str, kind: str) -> list[Any]:
    """The objects of one kind."""
    return [each for each in documents(case).values() if each["kind"] == kind]
