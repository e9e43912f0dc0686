"""A kustomization on its way to a cluster, through kubectl: first what goes where, then yes or no, then the rollout."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.cli.shipping import programs
from graphbus_core.deploy.kubernetes.manifests import KUSTOMIZATION, overlay
from graphbus_core.deploy.kubernetes.plan import check_fixed
from graphbus_core.deploy.names import parts_of_image, refusal
from graphbus_core.errors import DeployError, Place, raise_all

_NAMES = (KUSTOMIZATION, "kustomization.yml", "Kustomization")
_MANIFESTS = "manifests.yaml"
_LOGGED = re.compile(r'^E\d{4} .* err="(.*)"$')
"""Some complaints of kubectl come as a line of its log: `E1121 ... "command failed" err="..."`."""
_TIME = re.compile(r"(?=[^1-9]*[1-9])(?:[0-9]+(?:\.[0-9]+)?[hms])+")

# What kustomize writes is read as text: two spaces below each key, keys sorted by name.
_FIELD = re.compile(r"^(kind|  name|  namespace): (\S+)$", re.MULTILINE)
_REPLICAS = re.compile(r"^  (?:replicas|maxReplicas): (\d+)$", re.MULTILINE)
_SCALED = re.compile(r"^  scaleTargetRef:\n(?:    .*\n)*?    name: (\S+)$", re.MULTILINE)
_RECREATES = re.compile(r"^  strategy:\n(?:    .*\n)*?    type: Recreate$", re.MULTILINE)
_IMAGE = re.compile(r"^ +(?:- )?image: (\S+)$", re.MULTILINE)
_WORKLOADS = frozenset(["Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"])
_OURS = ("\n    app.kubernetes.io/managed-by: graphbus\n", "- graphbus_core.runtime\n")
"""One of them is in every workload that holds a bus, though an overlay may have changed its labels."""


class Object(NamedTuple):
    """What is applied.

    Attributes:
        replicas: How many an object or a scaler asks for, at most.
        scaled: The name of what a scaler changes.
        is_graph: It holds a bus.
        is_rolled: A new pod of it begins before the old one has ended.
    """

    kind: str
    name: str
    namespace: str
    replicas: int = 1
    scaled: str = ""
    is_graph: bool = False
    is_rolled: bool = False


class Kubectl:
    """kubectl, for one cluster.

    Attributes:
        context: The context of kubectl's configuration; empty inside of a cluster.
        server: The address of the cluster.
    """

    def __init__(self, folder: Path, context: str) -> None:
        self._program = programs.find("kubectl", otherwise=f"give {folder} to what applies it in your place")
        self._cwd = Path.cwd()
        self.context, self.server = self._find_cluster(context)
        self.options = ("--context", self.context) if self.context else ()  # nobody can switch it meanwhile

    def render(self, folder: Path) -> str:
        """Return what kustomize makes of a folder.

        Raises:
            DeployError: GBE733.
        """
        place = str(folder) if folder.is_absolute() else f"./{folder}"  # else it may look like an option
        answer = self._ask("kustomize", place)
        if answer.status:
            logged = _LOGGED.search(answer.reason)
            reason = logged[1].replace('\\"', '"') if logged else answer.reason
            raise DeployError("GBE733", where=Place(str(folder)), reason=reason)
        return answer.text

    def run(self, *words: str) -> None:
        """Run a command at this terminal.

        Raises:
            DeployError: GBE705.
        """
        programs.run([self._program, *words, *self.options], self._cwd)

    def _ask(self, *words: str) -> programs.Answer:
        return programs.ask([self._program, *words], self._cwd)

    def _find_cluster(self, context: str) -> tuple[str, str]:
        if not context:
            current = self._ask("config", "current-context")
            context = current.text.strip()
            host = os.environ.get("KUBERNETES_SERVICE_HOST")
            if current.status and host:
                return "", f"https://{host}"
            if current.status:
                raise DeployError("GBE731", reason=current.reason)
        path = "jsonpath={.clusters[0].cluster.server}"
        view = self._ask("config", "view", "--minify", "--context", context, "-o", path)
        if view.status:
            raise DeployError("GBE731", reason=view.reason)
        return context, view.text


def deploy(
    folder: Path, *, context: str, namespace: str, image: str, is_dry: bool, is_sure: bool, timeout: str
) -> None:
    """Apply a kustomization and wait for its deployments.

    Raises:
        DeployError: GBE704 without kubectl, GBE703 for an image or a time, GBE705 it has failed, GBE721, GBE728-734.
    """
    if not any(os.path.isfile(folder / name) for name in _NAMES):
        raise DeployError("GBE730", where=Place(str(folder)), file=KUSTOMIZATION)
    if not _TIME.fullmatch(timeout):
        raise refusal(timeout, "time", "it is one or more numbers, each with h, m or s, and more than nothing", "5m")
    if image:
        check_fixed(image)
    kubectl = Kubectl(folder, context)
    inside = ("--namespace", namespace) if namespace else ()
    with TemporaryDirectory(prefix="graphbus-") as made:
        manifests = Path(made).resolve() / _MANIFESTS
        rendered = _write_manifests(kubectl, folder, image, manifests)
        objects = list(read_objects(rendered))
        _check_namespace(objects, namespace)
        raise_all(_second_buses(objects))
        _announce(kubectl, objects, read_images(rendered))
        if is_dry:
            kubectl.run("apply", "-f", str(manifests), *inside, "--dry-run=server")
            return
        _make_sure(kubectl, is_sure=is_sure)
        kubectl.run("apply", "-f", str(manifests), *inside)
    for each in objects:
        if each.kind == "Deployment":
            _follow(kubectl, each._replace(namespace=each.namespace or namespace), timeout)


def _write_manifests(kubectl: Kubectl, folder: Path, image: str, manifests: Path) -> str:
    """Write what is applied, and return its text: what was shown is what goes, whatever becomes of the folder."""
    rendered = kubectl.render(folder)
    manifests.write_text(rendered, encoding="utf-8")
    if image:
        names = sorted({parts_of_image(each)[0] for each in read_images(rendered)})
        if len(names) != 1:
            raise DeployError("GBE734", where=Place(str(folder)), names=", ".join(names) or "none")
        (manifests.parent / KUSTOMIZATION).write_text(overlay(_MANIFESTS, names[0], image), encoding="utf-8")
        rendered = kubectl.render(manifests.parent)
        manifests.write_text(rendered, encoding="utf-8")
    return rendered


def read_objects(rendered: str) -> Iterator[Object]:
    """Read what deploying depends on from each document, in the form in which kustomize writes it."""
    for document in re.split(r"^---$", rendered, flags=re.MULTILINE):
        parts = re.split(r"^(?=[a-z])", document, flags=re.IGNORECASE | re.MULTILINE)
        own = "".join(part for part in parts if part.startswith(("kind:", "metadata:")))
        found = {key.strip(): _unquoted(value) for key, value in _FIELD.findall(own)}
        asked, scaled = _REPLICAS.search(document), _SCALED.search(document)
        if "kind" in found:
            yield Object(
                found["kind"],
                found.get("name", ""),
                found.get("namespace", ""),
                replicas=int(asked[1]) if asked else 1,
                scaled=_unquoted(scaled[1]) if scaled else "",
                is_graph=found["kind"] in _WORKLOADS and any(sign in document for sign in _OURS),
                is_rolled=found["kind"] == "Deployment" and not _RECREATES.search(document),
            )


def read_images(rendered: str) -> list[str]:
    """Return the references of all images, each once."""
    return list(dict.fromkeys(map(_unquoted, _IMAGE.findall(rendered))))


def _unquoted(text: str) -> str:
    return text.strip("\"'")


def _check_namespace(objects: Sequence[Object], namespace: str) -> None:
    found = sorted({each.namespace for each in objects if each.namespace})
    if namespace and found != [namespace]:
        raise DeployError("GBE729", namespace=namespace, found=", ".join(found) or "none")


def _second_buses(objects: Sequence[Object]) -> Iterator[DeployError]:
    """Find what would make two buses of one: replicas, an autoscaler, a rolling update."""
    graphs = {each.name for each in objects if each.is_graph}
    for each in objects:
        name = each.scaled or (each.name if each.is_graph else "")
        if name in graphs and each.replicas > 1:
            yield DeployError("GBE728", name=name, replicas=each.replicas)
        if each.is_graph and each.is_rolled:
            yield DeployError("GBE721", name=each.name)


def _announce(kubectl: Kubectl, objects: Sequence[Object], images: Sequence[str]) -> None:
    context = f"context {kubectl.context}" if kubectl.context else "the cluster around this container"
    console.say(f"{paint('To', 'strong')} {plain(context)}, {plain(kubectl.server)}:")
    for each in objects:
        inside = f" in {each.namespace}" if each.namespace else ""
        console.say(plain(f"  {each.kind} {each.name}{inside}"))
    console.say(plain(f"  with {', '.join(images)}"))


def _make_sure(kubectl: Kubectl, *, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise DeployError("GBE732", target=kubectl.context or kubectl.server)
    click.confirm("Apply it?", abort=True, err=True)


def _follow(kubectl: Kubectl, deployment: Object, timeout: str) -> None:
    """Wait until a deployment runs as it is now; if it does not, show how to find out why."""
    inside = ["--namespace", deployment.namespace] if deployment.namespace else []
    name = f"deployment/{deployment.name}"
    try:
        kubectl.run("rollout", "status", name, *inside, f"--timeout={timeout}")
    except DeployError:
        words = " ".join(["kubectl", *kubectl.options, *inside])
        console.say(plain(f"Look at it: {words} describe {name}; {words} logs {name}"))
        raise
