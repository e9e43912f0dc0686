"""What a workload needs around it: its configuration, its identity, its volume and its namespace."""

from __future__ import annotations

from hashlib import sha256

from graphbus_core.deploy.facts import CONFIG, STATE
from graphbus_core.deploy.kubernetes.objects import Object, make_object
from graphbus_core.deploy.kubernetes.plan import Plan, Pod
from graphbus_core.deploy.kubernetes.toml import Table, Value, render_toml
from graphbus_core.deploy.yaml import Noted

TOKEN_FILE = "/var/run/secrets/graphbus/token"  # noqa: S105 - where it is, not what it is
"""Where the token of a served graph is mounted."""
TOKEN_KEY = "token"  # noqa: S105 - the key of the secret
CONFIG_FILE = CONFIG.rpartition("/")[2]


def settings_text(plan: Plan) -> str:
    """The settings of the place, for `GRAPHBUS_CONFIG`: they stand over those of the project."""
    runtime = plan.runtime
    table: dict[str, Table | Value] = {
        "state_dir": STATE,
        "grace_s": runtime.grace_s,
        "validation": runtime.validation,
        "keep_dead_letters": runtime.keep_dead_letters,
    }
    if plan.is_served:
        table["serve"] = {
            "token_file": TOKEN_FILE,
            "allowed_hosts": _hosts(plan),
        }
    return render_toml({"runtime": table})


def settings_digest(plan: Plan) -> str:
    """Changes with the settings, and so makes new pods of them."""
    return sha256(settings_text(plan).encode()).hexdigest()


def _hosts(plan: Plan) -> list[str]:
    """The names of the services in a cluster, as far as they may be shortened, and those that the project knows."""
    named = [
        f"{pod.name}{suffix}"
        for pod in plan.pods
        for suffix in ("", f".{plan.namespace}", f".{plan.namespace}.svc", f".{plan.namespace}.svc.cluster.local")
    ]
    return list(dict.fromkeys([*named, *plan.runtime.serve.allowed_hosts]))


def config_map(plan: Plan) -> Object:
    """The settings of the place, as the file that is mounted."""
    return make_object("v1", "ConfigMap", plan.name, plan, data={CONFIG_FILE: settings_text(plan)})


def service_account(plan: Plan) -> Object:
    """An identity without any right: nothing of a graph speaks to the API of the cluster."""
    account = make_object("v1", "ServiceAccount", plan.name, plan, automountServiceAccountToken=False)
    if plan.pull_secret:
        account["imagePullSecrets"] = [{"name": plan.pull_secret}]
    return account


def volume_claim(plan: Plan, pod: Pod) -> Object:
    """A volume for the agents' state and for dead letters; it is read and written by one pod."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": plan.state}},
    }
    return make_object("v1", "PersistentVolumeClaim", claim_name(pod), plan, pod, spec=spec)


def claim_name(pod: Pod) -> str:
    """The name of a pod's volume."""
    return f"{pod.name}-state"


def namespace(plan: Plan) -> Object:
    """A namespace that takes restricted pods only."""
    policy = "pod-security.kubernetes.io"
    labels: Object = {
        "app.kubernetes.io/managed-by": "graphbus",
        f"{policy}/enforce": Noted("restricted", "refuses every pod that is not restricted"),
        f"{policy}/enforce-version": "latest",
        f"{policy}/warn": "restricted",
        f"{policy}/audit": "restricted",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plan.namespace, "labels": labels}}
