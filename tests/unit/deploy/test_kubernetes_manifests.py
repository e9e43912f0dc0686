"""What `graphbus k8s generate` writes is what strict tools and strict people let pass.

Golden files: `GRAPHBUS_RENEW=1 pytest tests/unit/deploy/test_kubernetes_manifests.py -k golden` writes them again; read the diff.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions

from graphbus_core.deploy.names import CONFIG, HEALTH_PORT, SERVE_PORT, STATE, USER_ID
from graphbus_core.hosting import arguments
from graphbus_core.hosting.serving.probes import Status
from graphbus_core.settings import load
from tests.fakes.kubernetes_documents import CASES, ROOT, documents, generated, of_kind
from tests.fakes.pod_security import broken_controls

GOLDEN = ROOT / "tests/golden/kubernetes"
OLDEST = (1, 30)
VERSIONS = [each for each in dict.fromkeys(all_versions()) if tuple(map(int, each.split(".")[:2])) >= OLDEST]
SERVED = [case for case in CASES if case.endswith("served")]
PER_AGENT = [case for case in CASES if "per-agent" in case]
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(not KUBECTL and not os.environ.get("CI"), reason="kubectl is not installed")

every_case = pytest.mark.parametrize("case", CASES)


def pods(case: str) -> list[Any]:
    return [each["spec"]["template"] for each in of_kind(case, "Deployment")]


def container(pod: Any) -> Any:
    (only,) = pod["spec"]["containers"]
    return only


@every_case
def test_golden_files(case: str) -> None:
    place = GOLDEN / case
    if os.environ.get("GRAPHBUS_RENEW"):
        shutil.rmtree(place, ignore_errors=True)
        for path, text in generated(case).items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(text)
    golden = {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*.yaml")}
    assert generated(case) == golden


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_each_version_take_every_kind_of_document_strictly(version: str) -> None:
    for document in documents("orders-served").values():
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.slow
@every_case
def test_the_schemas_of_the_newest_version_take_every_document_strictly(case: str) -> None:
    for document in documents(case).values():
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def misspell(deployment: Any) -> None:
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"


def test_and_refuse_a_broken_one() -> None:
    (deployment,) = deepcopy(of_kind("orders", "Deployment"))
    misspell(deployment)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


@every_case
@needs_kubectl
def test_kustomize_renders_every_document_unchanged(case: str, tmp_path: Path) -> None:
    for path, text in generated(case).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=False)
    assert done.stderr == "", "kustomize warns of nothing that is deprecated"
    rendered = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}
    assert rendered == {(each["kind"], each["metadata"]["name"]): each for each in documents(case).values()}


@every_case
def test_pods_are_restricted(case: str) -> None:
    for pod in pods(case):
        assert list(broken_controls(pod)) == []


@every_case
def test_beyond_the_standard_nothing_is_writable_and_no_credential_is_there(case: str) -> None:
    for pod in pods(case):
        spec = pod["spec"]
        assert container(pod)["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert {spec["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER_ID}
        writable = {mount["mountPath"] for mount in container(pod)["volumeMounts"] if not mount.get("readOnly")}
        assert writable == {STATE, "/tmp"}
        assert all("sizeLimit" in each["emptyDir"] for each in spec["volumes"] if "emptyDir" in each)
    for account in of_kind(case, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    assert not any(kind in str(documents(case)) for kind in ("ClusterRole", "'Secret'", "RoleBinding"))


@every_case
def test_an_in_process_bus_has_one_replica_which_a_node_can_still_let_go(case: str) -> None:
    for deployment in of_kind(case, "Deployment"):
        assert deployment["spec"]["replicas"] == 1
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    for budget in of_kind(case, "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        assert "minAvailable" not in budget["spec"]
    assert not of_kind(case, "HorizontalPodAutoscaler")
    assert "two buses" in "".join(generated(case).values())


@every_case
def test_what_selects_a_pod_never_changes_and_finds_that_pod_alone(case: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(case)]
    for document in documents(case).values():
        spec = document.get("spec", {})
        chosen = spec.get("selector", spec.get("podSelector", {}))
        chosen = chosen.get("matchLabels", chosen)
        if document["kind"] in ("PersistentVolumeClaim", "Namespace") or not spec:
            continue
        assert set(chosen) == {
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/component",
        }
        assert sum(chosen.items() <= each.items() for each in labels) == 1


@every_case
def test_probes_ask_what_the_runtime_answers_at_a_port_that_is_open(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in pods(case):
        ports = {port["name"]: port["containerPort"] for port in container(pod)["ports"]}
        assert ports["health"] == HEALTH_PORT
        probes = {name: container(pod)[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
        paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
        assert paths == {"startup": "/startupz", "readiness": "/readyz", "liveness": "/livez"}
        status = Status.__new__(Status)
        for name, path in paths.items():
            answering = {"startup": "check_started", "readiness": "check_ready", "liveness": "check_live"}[name]
            monkeypatch.setattr(Status, answering, lambda _self: "an answer")
            assert status.answer(path) == "an answer"
        assert {probe["httpGet"]["port"] for probe in probes.values()} <= set(ports)
        assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 60


@every_case
def test_the_runtime_understands_the_command_of_a_pod(case: str) -> None:
    for pod in pods(case):
        assert container(pod)["command"] == ["python", "-m", "graphbus_core.runtime", "--confined"]
        read = arguments.parse_arguments(container(pod)["args"])
        assert read
        assert read.request.artifacts == "/app/.graphbus"
        assert read.health == f"0.0.0.0:{HEALTH_PORT}"
        assert read.serve == (f"0.0.0.0:{SERVE_PORT}" if case in SERVED else "")
        assert len(read.request.only) == (case in PER_AGENT)


@every_case
def test_our_own_reader_accepts_the_settings(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config,) = of_kind(case, "ConfigMap")
    (name,) = config["data"]
    place = tmp_path / name
    place.write_text(config["data"][name])
    monkeypatch.setenv("GRAPHBUS_CONFIG", str(place))
    settings = load(tmp_path).runtime
    assert settings.state_dir == STATE
    assert settings.grace_s == (10.0 if case.startswith("orders") else 2.5)
    assert settings.validation == "strict"
    for pod in pods(case):
        mounts = {each["name"]: each["mountPath"] for each in container(pod)["volumeMounts"]}
        assert f"{mounts['config']}/{name}" == CONFIG
        assert container(pod)["env"] == [{"name": "GRAPHBUS_CONFIG", "value": CONFIG}]
        if case in SERVED:
            assert settings.serve.token_file == f"{mounts['token']}/token"


@pytest.mark.parametrize("case", SERVED)
def test_the_token_comes_from_a_secret_that_nobody_generates(case: str) -> None:
    for pod in pods(case):
        (secret,) = [each["secret"] for each in pod["spec"]["volumes"] if "secret" in each]
        assert secret["secretName"].endswith("-token")
        assert secret["defaultMode"] == 0o440
        assert "optional" not in secret


@every_case
def test_a_pod_gets_longer_to_end_than_the_graph_needs(case: str) -> None:
    grace_s = 10 if case.startswith("orders") else 2.5
    for pod in pods(case):
        given = pod["spec"]["terminationGracePeriodSeconds"]
        if case in SERVED:  # the sleep, the requests in flight, then the events that wait
            assert given > container(pod)["lifecycle"]["preStop"]["sleep"]["seconds"] + grace_s
        else:
            assert given > grace_s
            assert "lifecycle" not in container(pod)


@every_case
def test_the_network_is_closed_but_for_what_is_named(case: str) -> None:
    for policy in of_kind(case, "NetworkPolicy"):
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule["from"] and rule["ports"] for rule in spec["ingress"])
        assert all(rule["to"] for rule in spec["egress"])
        assert bool(spec["egress"]) == ("--allow-egress" in CASES[case][1])
