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
from graphbus_core.ledger.nats_pump import PREFETCH
from graphbus_core.settings import load
from tests.fakes.kubernetes_documents import CASES, ROOT, documents, generated, of_kind
from tests.fakes.pod_security import broken_controls

GOLDEN = ROOT / "tests/golden/kubernetes"
OLDEST = (1, 30)
VERSIONS = [each for each in dict.fromkeys(all_versions()) if tuple(map(int, each.split(".")[:2])) >= OLDEST]
SERVED = [case for case in CASES if case.endswith("served")]
PER_AGENT = [case for case in CASES if "per-agent" in case]
ON_NATS = [case for case in CASES if "nats" in case]
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(not KUBECTL and not os.environ.get("CI"), reason="kubectl is not installed")

every_case = pytest.mark.parametrize("case", CASES)


def pods(case: str) -> list[Any]:
    return [each["spec"]["template"] for each in of_kind(case, "StatefulSet" if case in ON_NATS else "Deployment")]


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
    for document in (*documents("orders-served").values(), *of_kind("orders-per-agent-nats", "StatefulSet")):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.slow
@every_case
def test_the_schemas_of_the_newest_version_take_every_document_strictly(case: str) -> None:
    for document in documents(case).values():
        if document["kind"] != "ScaledObject":  # it is KEDA's
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
        claims = {"state"} if case in ON_NATS else set()
        mounted = {mount["name"] for mount in container(pod)["volumeMounts"]}
        assert mounted == {each["name"] for each in spec["volumes"]} | claims
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
    assert ("two buses" in "".join(generated(case).values())) == (case not in ON_NATS)


@every_case
def test_what_selects_a_pod_never_changes_and_finds_that_pod_alone(case: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(case)]
    for document in documents(case).values():
        spec = document.get("spec", {})
        chosen = spec.get("selector", spec.get("podSelector", {}))
        chosen = chosen.get("matchLabels", chosen)
        if document["kind"] in ("PersistentVolumeClaim", "Namespace", "ScaledObject") or not spec:
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
        words = [word.replace("$(GRAPHBUS_PARTITION)", "2") for word in container(pod)["args"]]
        read = arguments.parse_arguments(words)
        assert read
        assert read.request.partition == (2 if words != container(pod)["args"] else None)
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
        assert container(pod)["env"][0] == {"name": "GRAPHBUS_CONFIG", "value": CONFIG}
        is_divided = "PARTITION" in str(container(pod)["args"])
        assert len(container(pod)["env"]) == 1 + (case in ON_NATS) + is_divided
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
        assert bool(spec["egress"]) == bool({"--allow-egress", "--ledger"} & {*CASES[case][1]})


# --- with a ledger on NATS ---


@pytest.mark.parametrize("case", ON_NATS)
def test_each_pod_has_a_volume_of_its_own_which_never_changes(case: str) -> None:
    for each in of_kind(case, "StatefulSet"):
        spec = each["spec"]
        (claim,) = spec["volumeClaimTemplates"]
        assert claim["metadata"] == {"name": "state"}, "a label with a version could not be applied again"
        assert spec["serviceName"] in {service["metadata"]["name"] for service in of_kind(case, "Service")}
        assert "emptyDir" not in str([each for each in spec["template"]["spec"]["volumes"] if each["name"] == "state"])
    assert not of_kind(case, "PersistentVolumeClaim")
    assert not of_kind(case, "Deployment")


@pytest.mark.parametrize("case", ON_NATS)
def test_the_address_of_the_ledger_comes_from_a_secret_that_nobody_generates(case: str) -> None:
    for pod in pods(case):
        (reference,) = [each for each in container(pod)["env"] if each["name"] == "GRAPHBUS_LEDGER"]
        name, component = (pod["metadata"]["labels"][f"app.kubernetes.io/{label}"] for label in ("name", "component"))
        key = component if "--only=" in str(container(pod)["args"]) else "url"
        assert reference == {
            "name": "GRAPHBUS_LEDGER",
            "valueFrom": {"secretKeyRef": {"name": f"{name}-ledger", "key": key}},
        }
    assert "nats://" not in "".join(text for path, text in generated(case).items() if path != "kustomization.yaml")


def test_only_what_was_asked_for_has_several_pods() -> None:
    """KEDA sets the number of what it scales: a number in the StatefulSet as well would be in its way."""
    replicas = {each["metadata"]["name"]: each["spec"].get("replicas") for each in of_kind(SCALED, "StatefulSet")}
    assert replicas == {f"graphbus-orders-{name}": number for name, number in REPLICAS.items()}
    assert [each["spec"]["replicas"] for each in of_kind("stations-nats-served", "StatefulSet")] == [1]


def test_each_pod_of_a_divided_agent_handles_the_partition_of_its_number() -> None:
    """Kubernetes labels each pod of a StatefulSet with its number, from 0."""
    sets = {each["metadata"]["name"]: each for each in of_kind(SCALED, "StatefulSet")}
    pod = container(sets.pop("graphbus-orders-payments")["spec"]["template"])
    assert pod["args"][-2:] == ["--only=Payments", "--partition=$(GRAPHBUS_PARTITION)"]
    label = {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}
    assert {"name": "GRAPHBUS_PARTITION", "valueFrom": label} in pod["env"]
    assert not any("PARTITION" in str(each) for each in sets.values())


SCALED = "orders-per-agent-nats"
REPLICAS = {"books": None, "checkout": 1, "payments": 3, "pricing": 2}


def test_keda_scales_a_stateful_set_by_what_waits_in_the_consumer_of_its_agent() -> None:
    """The fields are those of KEDA's documentation; tests/e2e/test_pods_on_nats.py compares them with a server."""
    (scaler,) = of_kind(SCALED, "ScaledObject")
    (target,) = [each for each in of_kind(SCALED, "StatefulSet") if "replicas" not in each["spec"]]
    assert scaler["apiVersion"] == "keda.sh/v1alpha1"
    assert scaler["spec"] == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": target["metadata"]["name"]},
        "minReplicaCount": 1,
        "maxReplicaCount": 5,
        "triggers": [
            {
                "type": "nats-jetstream",
                "metadata": {
                    "natsServerMonitoringEndpoint": "nats.messaging.svc:8222",
                    "account": "$G",
                    "stream": "GB_orders",
                    "consumer": "Books",
                    "lagThreshold": str(PREFETCH),
                },
            }
        ],
    }
