"""The deployment of a pod, and how it may be moved."""

from __future__ import annotations

from graphbus_core.deploy.facts import (
    CONFIG,
    CONFINED_RUNTIME,
    HEALTH_PORT,
    HOME,
    SERVE_PORT,
    STATE,
    USER_ID,
    folders_to_write,
)
from graphbus_core.deploy.kubernetes.objects import Object, labels_of, make_object, selector_of
from graphbus_core.deploy.kubernetes.plan import LEAVING_S, Plan, Pod
from graphbus_core.deploy.kubernetes.surroundings import (
    CONFIG_FILE,
    TOKEN_FILE,
    TOKEN_KEY,
    claim_name,
    settings_digest,
)
from graphbus_core.deploy.yaml import Node, Noted

_CONTAINER = "graph"
_ANYWHERE = "0.0.0.0"  # noqa: S104 - the network policy says who comes that far
_TMP_SIZE = "64Mi"
_STATE_SIZE = "128Mi"
_WRITTEN = "written"
_EPHEMERAL = "256Mi"
_ONE = "Two replicas would be two buses: an event is heard only in the process that published it."
_ONE_AFTER_THE_OTHER = "The old pod ends before the new one begins: never two at a time, and the volume is free."


def deployment(plan: Plan, pod: Pod) -> Object:
    """One replica of a pod, restricted, with probes on the endpoints of the runtime."""
    template: Object = {
        "metadata": {
            "labels": labels_of(plan, pod),
            "annotations": {
                "checksum/config": Noted(settings_digest(plan), "new settings make a new pod"),
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(HEALTH_PORT),
                "prometheus.io/path": "/metrics",
            },
        },
        "spec": _pod_spec(plan, pod),
    }
    spec: Object = {
        "replicas": Noted(1, _ONE),
        "strategy": Noted({"type": "Recreate"}, _ONE_AFTER_THE_OTHER),
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector_of(plan, pod)},
        "template": template,
    }
    return make_object("apps/v1", "Deployment", pod.name, plan, pod, spec=spec)


def disruption_budget(plan: Plan, pod: Pod) -> Object:
    """Lets a node be drained: the one pod may go, and comes back elsewhere."""
    spec: Object = {
        "maxUnavailable": Noted(1, "with minAvailable 1 a node with the only replica could never be drained"),
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector_of(plan, pod)},
    }
    return make_object("policy/v1", "PodDisruptionBudget", pod.name, plan, pod, spec=spec)


def _pod_spec(plan: Plan, pod: Pod) -> Object:
    security: Object = {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": Noted(USER_ID, "may write to the volumes and read the secret"),
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    leaving = f"{LEAVING_S} s before SIGTERM, " if plan.is_served else ""
    return {
        "serviceAccountName": plan.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": Noted(
            plan.grace_s, f"{leaving}grace_s ({plan.runtime.grace_s:g} s) for what is under way, and a margin"
        ),
        "securityContext": security,
        "containers": [_container(plan, pod)],
        "volumes": _volumes(plan, pod),
    }


def _container(plan: Plan, pod: Pod) -> Object:
    ports: list[Node] = [{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}]
    if plan.is_served:
        ports.append({"name": "serve", "containerPort": SERVE_PORT, "protocol": "TCP"})
    container: Object = {
        "name": _CONTAINER,
        "image": plan.image,
        "imagePullPolicy": "IfNotPresent",
        "command": Noted([*CONFINED_RUNTIME], "Landlock and seccomp hold it to [tool.graphbus.powers]."),
        "args": _arguments(plan, pod),
        "workingDir": HOME,
        "env": [{"name": "GRAPHBUS_CONFIG", "value": CONFIG}],
        "ports": ports,
        **_probes(),
    }
    if plan.is_served:
        container["lifecycle"] = Noted(
            {"preStop": {"sleep": {"seconds": LEAVING_S}}},
            "Requests still come until every node knows that the pod is leaving.",
        )
    return {
        **container,
        "resources": _resources(plan),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(plan),
    }


def _arguments(plan: Plan, pod: Pod) -> list[Node]:
    words: list[Node] = [f"--artifacts={HOME}/{plan.artifacts}", f"--health={_ANYWHERE}:{HEALTH_PORT}"]
    if plan.is_served:
        words.append(f"--serve={_ANYWHERE}:{SERVE_PORT}")
    if pod.agent:
        words.append(f"--only={pod.agent}")
    return words


def _probes() -> Object:
    return {
        "startupProbe": _probe("/startupz", period_s=2, failures=60, note="two minutes for imports and on_start"),
        "readinessProbe": _probe("/readyz", period_s=5, failures=2),
        "livenessProbe": _probe("/livez", period_s=10, failures=3, note="503 when a handler is stuck"),
    }


def _probe(path: str, *, period_s: int, failures: int, note: str = "") -> Node:
    return {
        "httpGet": {"path": Noted(path, note) if note else path, "port": "health"},
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _resources(plan: Plan) -> Object:
    limits: Object = {"memory": plan.memory, "ephemeral-storage": _EPHEMERAL}
    if plan.cpu_limit:
        limits["cpu"] = plan.cpu_limit
    note = "" if plan.cpu_limit else "No limit of CPU: it would slow down a handler while the node is idle."
    return {
        "requests": {"cpu": plan.cpu, "memory": plan.memory, "ephemeral-storage": _EPHEMERAL},
        "limits": Noted(limits, note) if note else limits,
    }


def _mounts(plan: Plan) -> list[Node]:
    mounts: list[Node] = [
        {"name": "config", "mountPath": CONFIG.rpartition("/")[0], "readOnly": True},
        {"name": "state", "mountPath": STATE},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container, and its own
    ]
    written = enumerate(folders_to_write(plan.powers), 1)
    mounts += [{"name": f"{_WRITTEN}-{number}", "mountPath": path} for number, path in written]
    if plan.is_served:
        mounts.append({"name": "token", "mountPath": TOKEN_FILE.rpartition("/")[0], "readOnly": True})
    return mounts


def _volumes(plan: Plan, pod: Pod) -> list[Node]:
    kept: Node = {"name": "state", "persistentVolumeClaim": {"claimName": claim_name(pod)}}
    passing: Node = {"name": "state", "emptyDir": {"sizeLimit": _STATE_SIZE}}
    volumes: list[Node] = [
        {"name": "config", "configMap": {"name": plan.name, "items": [{"key": CONFIG_FILE, "path": CONFIG_FILE}]}},
        kept if pod.keeps_state else Noted(passing, "Nothing here outlives the pod."),
        {"name": "tmp", "emptyDir": {"sizeLimit": _TMP_SIZE}},
    ]
    for number, _ in enumerate(folders_to_write(plan.powers), 1):
        folder: Node = {"name": f"{_WRITTEN}-{number}", "emptyDir": {"sizeLimit": _STATE_SIZE}}
        volumes.append(Noted(folder, "The powers declare it; nothing here outlives the pod."))
    if plan.is_served:
        token: Node = {
            "secretName": plan.token_secret,
            "defaultMode": Noted(0o440, "0440 in octal: user and group may read it"),
            "items": [{"key": TOKEN_KEY, "path": TOKEN_FILE.rpartition("/")[2]}],
        }
        volumes.append({"name": "token", "secret": Noted(token, "You make it; see docs/kubernetes.md.")})
    return volumes
