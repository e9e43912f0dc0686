"""What a plan refuses, what follows from it, and that whatever it lets pass becomes files that mean what it says."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.deploy.kubernetes import (
    ClusterPlan,
    Destination,
    Pod,
    _read_destination,
    generate,
    overlay,
    plan_pods,
)
from graphbus_core.deploy.names import as_label
from graphbus_core.errors import DeployError
from graphbus_core.model.config import RuntimeSettings, ServeConfig

DIGEST = f"sha256:{'0' * 64}"
LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


def make_plan(**changes: Any) -> ClusterPlan:
    pods = (Pod(name="shop", component="graph"),)
    return ClusterPlan(**{"name": "shop", "namespace": "n", "image": "shop:1", "command": "c", "pods": pods, **changes})


@pytest.mark.parametrize(
    ("image", "version", "label"),
    [
        ("a:1.2", "0.9", "1.2"),
        (f"a@{DIGEST}", "0.9", "0.9"),
        (f"a@{DIGEST}", "1.0+local.7", "1.0-local.7"),
        ("a:v1.", "", "v1"),
        (f"a:{'x' * 100}", "", "x" * 63),
        (f"a@{DIGEST}", "", ""),
    ],
)
def test_the_label_of_the_version(image: str, version: str, label: str) -> None:
    assert make_plan(image=image, version=version).version_label == label


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("10.0.0.0/8", Destination("10.0.0.0/8", "", 0)),
        ("10.1.2.3/32:443", Destination("10.1.2.3/32", "", 443)),
        ("fd00::/8:5432", Destination("fd00::/8", "", 5432)),
        ("0.0.0.0/0:443", Destination("0.0.0.0/0", "", 443)),
        ("database", Destination("", "database", 0)),
        ("database:65535", Destination("", "database", 65535)),
    ],
)
def test_destinations(text: str, destination: Destination) -> None:
    assert _read_destination(text) == destination


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1", "10.0.0.0/33", "x/8", "10.0.0.0/8:", "10.0.0.0/8:65536", "a:²", "A", "a:-1", "a/b:1\n"]
)
def test_what_is_no_destination(text: str) -> None:
    with pytest.raises(DeployError) as refusal:
        _read_destination(text)
    assert refusal.value.code == "GBE703"


NO_BYTES = ("x", "-1", "1 Gi", "Gi", "0", "0Gi", "1Gi\n", "٣Gi", "1.5Gi")
NO_CPU = ("x", "-1", "1e3", "0", "0m", "0.0", "1\n", "٣", "1Gi")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *((field, text) for field in ("memory", "state") for text in NO_BYTES),
        *((field, text) for field in ("cpu", "cpu_limit") for text in NO_CPU),
    ],
)
def test_what_is_no_quantity(field: str, text: str) -> None:
    with pytest.raises(DeployError, match="GBE703"):
        generate(make_plan(**{field: text}))


@given(st.lists(st.from_regex(r"[A-Z][A-Za-z0-9]{0,12}", fullmatch=True), min_size=1, max_size=6, unique=True))
def test_agents_get_pods_of_different_names_or_none_at_all(agents: list[str]) -> None:
    if len(set(map(as_label, agents))) < len(agents):
        with pytest.raises(DeployError, match="would both be called"):
            plan_pods("shop", "per-agent", agents, frozenset())
        return
    pods = plan_pods("shop", "per-agent", agents, frozenset(agents[:1]))
    assert {pod.agent for pod in pods} == set(agents)
    assert len({pod.name for pod in pods}) == len(agents)
    assert [pod.agent for pod in pods if pod.keeps_state] == agents[:1]
    assert plan_pods("shop", "per-agent", agents[::-1], frozenset(agents[:1])) == pods


@given(
    name=LABELS,
    namespace=LABELS,
    hosts=st.lists(st.text(), max_size=3),
    grace_s=st.floats(0, 1e6),
    is_served=st.booleans(),
)
def test_whatever_the_settings_are_the_files_say_them(
    name: str, namespace: str, hosts: list[str], grace_s: float, *, is_served: bool
) -> None:
    runtime = RuntimeSettings(grace_s=grace_s, serve=ServeConfig(allowed_hosts=tuple(hosts)))
    pods = (Pod(name=name, component="graph"),)
    plan = make_plan(name=name, namespace=namespace, pods=pods, runtime=runtime, is_served=is_served, token_secret="t")
    files = generate(plan)
    assert generate(plan) == files
    config = yaml.safe_load(files["configmap.yaml"])
    said = tomllib.loads(config["data"]["graphbus.toml"])["runtime"]
    assert said["grace_s"] == grace_s
    assert config["metadata"]["namespace"] == namespace
    if is_served:
        assert said["serve"]["allowed_hosts"][4:] == [each for each in dict.fromkeys(hosts) if each != name]


@pytest.mark.parametrize(
    ("image", "change"),
    [
        ("new/shop:2", {"name": "shop", "newName": "new/shop", "newTag": "2"}),
        (f"new/shop:2@{DIGEST}", {"name": "shop", "newName": "new/shop", "digest": DIGEST}),
    ],
)
def test_an_overlay_replaces_the_image(image: str, change: dict[str, str]) -> None:
    document = yaml.safe_load(overlay("../../k8s", "shop", image))
    assert document["resources"] == ["../../k8s"]
    assert document["images"] == [change]
