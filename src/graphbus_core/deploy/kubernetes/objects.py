"""What objects of the API have in common: their names, their labels and what selects them."""

from __future__ import annotations

from graphbus_core.deploy.kubernetes.plan import Plan, Pod
from graphbus_core.deploy.yaml import Node

Object = dict[str, Node]
"""An object of the API, as data."""


def make_object(api: str, kind: str, name: str, plan: Plan, pod: Pod | None = None, **parts: Node) -> Object:
    """Make an object of the namespace, with the labels that the documentation of Kubernetes recommends.

    Args:
        api: Group and version.
        pod: The one that it belongs to; None: all of the application.
        parts: Its further fields.
    """
    metadata: Object = {"name": name, "namespace": plan.namespace, "labels": labels_of(plan, pod)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def labels_of(plan: Plan, pod: Pod | None) -> Object:
    """The recommended labels. None of them is of a person or a moment, so that the same plan gives the same files."""
    labels: Object = {"app.kubernetes.io/name": plan.name, "app.kubernetes.io/instance": plan.name}
    if pod is not None:
        labels["app.kubernetes.io/component"] = pod.component
    if plan.version_label:
        labels["app.kubernetes.io/version"] = plan.version_label
    return {**labels, "app.kubernetes.io/part-of": plan.name, "app.kubernetes.io/managed-by": "graphbus"}


def selector_of(plan: Plan, pod: Pod) -> Object:
    """The labels that never change: the selector of a deployment cannot be changed, and a version would be left behind."""
    return {
        "app.kubernetes.io/name": plan.name,
        "app.kubernetes.io/instance": plan.name,
        "app.kubernetes.io/component": pod.component,
    }
