"""`graphbus k8s`: write Kubernetes manifests for the artifacts of a build, and apply them with kubectl."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from graphbus_core import store
from graphbus_core.cli import console, shipping
from graphbus_core.cli.console import sanitize, style
from graphbus_core.cli.shipping import BuiltProject, name_image, read_project, text_of
from graphbus_core.deploy.kubernetes import (
    KUSTOMIZATION,
    ClusterPlan,
    Topology,
    check_application_name,
    check_pinned_image,
    plan_pods,
    refuse_cut_edges,
)
from graphbus_core.deploy.kubernetes import generate_manifests as generate_files
from graphbus_core.deploy.names import invalid_value, make_label, split_image
from graphbus_core.deploy.render import fill_template
from graphbus_core.errors import DeployError, Place, raise_all

_NAMES = (KUSTOMIZATION, "kustomization.yml", "Kustomization")
_MANIFESTS = "manifests.yaml"
_TIME = re.compile(r"(?=[^1-9]*[1-9])(?:[0-9]+(?:\.[0-9]+)?[hms])+")

# What kustomize writes is read as text: two spaces below each key, keys sorted by name.
_FIELD = re.compile(r"^(kind|  name|  namespace): (\S+)$", re.MULTILINE)
_REPLICAS = re.compile(r"^  (?:replicas|maxReplicas): (\d+)$", re.MULTILINE)
_SCALED = re.compile(r"^  scaleTargetRef:\n(?:    .*\n)*?    name: (\S+)$", re.MULTILINE)
_IMAGE = re.compile(r"^ +(?:- )?image: (\S+)$", re.MULTILINE)
_OURS = ("\n    app.kubernetes.io/managed-by: graphbus\n", "- graphbus_core.runtime\n")
"""Every workload with a bus contains one of them, even if an overlay has changed its labels."""


class _Applied(NamedTuple):
    """An object that is applied.

    Attributes:
        replicas: The highest number of replicas that an object or an autoscaler asks for.
        scaled: The workload that an autoscaler changes, or the name of a workload that contains a bus.
    """

    kind: str
    name: str
    namespace: str
    replicas: int = 1
    scaled: str = ""


class _Kubectl:
    """kubectl, for one cluster.

    Attributes:
        target: The cluster, as shown to the user.
    """

    def __init__(self, folder: Path, context: str) -> None:
        if not shutil.which("kubectl"):
            raise DeployError("GBE704", program="kubectl", otherwise=f"give {folder} to what applies it in your place")
        if not context:
            current = self._ask("config", "current-context")
            context = current.text.strip()
            host = os.environ.get("KUBERNETES_SERVICE_HOST")
            if current.status and not host:
                raise DeployError("GBE731", reason=current.reason)
            self.target = f"the cluster around this container, https://{host}"
        self.options = ("--context", context) if context else ()  # switching the context now has no effect
        if context:
            path = "jsonpath={.clusters[0].cluster.server}"
            view = self._ask("config", "view", "--minify", *self.options, "-o", path)
            if view.status:
                raise DeployError("GBE731", reason=view.reason)
            self.target = f"context {context}, {view.text}"

    def render(self, folder: Path) -> str:
        """Return the manifests that kustomize renders from a folder.

        Raises:
            DeployError: GBE733.
        """
        place = str(folder) if folder.is_absolute() else f"./{folder}"  # otherwise it may look like an option
        answer = self._ask("kustomize", place)
        if answer.status:
            raise DeployError("GBE733", where=Place(str(folder)), reason=answer.reason)
        return answer.text

    def run(self, *words: str) -> None:
        """Run a command at this terminal.

        Raises:
            DeployError: GBE705.
        """
        shipping.run_at_terminal(["kubectl", *words, *self.options], Path.cwd())

    def _ask(self, *words: str) -> shipping.ProgramResult:
        return shipping.run_captured(["kubectl", *words])


def _write_manifests(kubectl: _Kubectl, folder: Path, image: str, manifests: Path) -> str:
    """Write the manifests to apply to a file and return their text; later changes to the folder have no effect."""
    rendered = kubectl.render(folder)
    if image:
        manifests.write_text(rendered, encoding="utf-8")
        names = sorted({split_image(each)[0] for each in _read_images(rendered)})
        if len(names) != 1:
            raise DeployError("GBE734", where=Place(str(folder)), names=", ".join(names) or "none")
        new_name, tag, digest = split_image(image)
        change = fill_template(
            "overlay.yaml", base=_MANIFESTS, name=names[0], new_name=new_name, tag=tag, digest=digest
        )
        (manifests.parent / KUSTOMIZATION).write_text(change, encoding="utf-8")
        rendered = kubectl.render(manifests.parent)
    manifests.write_text(rendered, encoding="utf-8")
    return rendered


def _read_objects(rendered: str) -> Iterator[_Applied]:
    """Yield the object in each document, in the form in which kustomize writes it."""
    for document in re.split(r"^---$", rendered, flags=re.MULTILINE):
        parts = re.split(r"^(?=[a-z])", document, flags=re.IGNORECASE | re.MULTILINE)
        own = "".join(part for part in parts if part.startswith(("kind:", "metadata:")))
        found = {key.strip(): _unquoted(value) for key, value in _FIELD.findall(own)}
        if "kind" not in found:
            continue
        name = found.get("name", "")
        asked, scaled = _REPLICAS.search(document), _SCALED.search(document)
        is_graph = found["kind"] in ("Deployment", "StatefulSet", "ReplicaSet") and any(
            sign in document for sign in _OURS
        )
        yield _Applied(
            found["kind"],
            name,
            found.get("namespace", ""),
            replicas=int(asked[1]) if asked else 1,
            scaled=_unquoted(scaled[1]) if scaled else name if is_graph else "",
        )


def _read_images(rendered: str) -> list[str]:
    """Return the references of all images, each once."""
    return list(dict.fromkeys(map(_unquoted, _IMAGE.findall(rendered))))


def _unquoted(text: str) -> str:
    return text.strip("\"'")


def _check(objects: Sequence[_Applied], namespace: str) -> None:
    """Refuse manifests for another namespace, and replicas or an autoscaler of a workload with a bus."""
    found = sorted({each.namespace for each in objects if each.namespace})
    if namespace and found != [namespace]:
        raise DeployError("GBE729", namespace=namespace, found=", ".join(found) or "none")
    graphs = {each.name for each in objects if each.scaled == each.name}
    many = [each for each in objects if each.scaled in graphs and each.replicas > 1]
    raise_all(DeployError("GBE728", name=each.scaled, replicas=each.replicas) for each in many)


def _announce(kubectl: _Kubectl, objects: Sequence[_Applied], images: Sequence[str]) -> None:
    console.print_note(f"{style('To', 'strong')} {sanitize(kubectl.target)}:")
    for each in objects:
        inside = f" in {each.namespace}" if each.namespace else ""
        console.print_note(sanitize(f"  {each.kind} {each.name}{inside}"))
    console.print_note(sanitize(f"  with {', '.join(images)}"))


def _make_sure(kubectl: _Kubectl) -> None:
    if not sys.stdin.isatty():
        raise DeployError("GBE732", target=kubectl.target)
    click.confirm("Apply it?", abort=True, err=True)


def _follow(kubectl: _Kubectl, deployment: _Applied, namespace: str, timeout: str) -> None:
    """Wait until a deployment is ready; if it fails, print how to find out why."""
    inside = ["--namespace", deployment.namespace or namespace] if deployment.namespace or namespace else []
    name = f"deployment/{deployment.name}"
    try:
        kubectl.run("rollout", "status", name, *inside, f"--timeout={timeout}")
    except DeployError:
        words = " ".join(["kubectl", *kubectl.options, *inside])
        console.print_note(sanitize(f"Look at it: {words} describe {name}; {words} logs {name}"))
        raise


_NO_STATE = "none"
_NOT_OF_THE_PLAN = frozenset({"artifacts", "output", *shipping.WriteOptions._fields})


@click.group("k8s", short_help="Write manifests for Kubernetes, and apply them.")
def k8s() -> None:
    """Write manifests for Kubernetes from the artifacts of a build, and apply them with kubectl.

    \b
    Examples:
      graphbus k8s generate --namespace production
      graphbus k8s deploy --dry-run
    """


@k8s.command("generate", short_help="Write a kustomization for the graph.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--namespace", "-n", required=True, metavar="NAME", help="The namespace of the pods.")
@click.option(
    "--topology",
    type=click.Choice(["single", "per-agent"]),
    default="single",
    help="One pod for the graph (single), or one for each agent, if no event or call goes from one to another.",
)
@click.option(
    "--image",
    default="",
    metavar="IMAGE",
    help="The image, by a tag that is not moved or a digest (NAME:VERSION of the project).",
)
@click.option("--name", default="", metavar="NAME", help="The name of the application (that of the project).")
@click.option("--serve", "is_served", is_flag=True, help="Accept calls and events over HTTP.")
@click.option("--pull-secret", default="", metavar="NAME", help="The secret to pull the image with.")
@click.option("--cpu", default="100m", metavar="AMOUNT", help="CPU that is reserved (100m).")
@click.option("--memory", default="256Mi", metavar="AMOUNT", help="Memory that is reserved, and the most (256Mi).")
@click.option(
    "--state",
    default="",
    metavar="SIZE",
    help="A volume for state and dead letters; `none`: they go with the pod (1Gi where an agent uses `self.state` or "
    "`keep_dead_letters` is set).",
)
@click.option(
    "--allow-from", "admitted", multiple=True, metavar="NAMESPACE", help="Pods from there may come in; may be repeated."
)
@click.option(
    "--allow-egress",
    "destinations",
    multiple=True,
    metavar="CIDR|NAMESPACE[:PORT]",
    help="What the agents may reach (what the powers declare); may be repeated.",
)
@click.option("--output", "-o", default="k8s", metavar="DIR", help="Where to write (k8s).")
@shipping.writing_options
def generate(*, artifacts: str, topology: Topology, output: str, **given: Any) -> None:
    """Write a kustomization for the graph in ARTIFACTS, a folder (.graphbus by default), for Kubernetes 1.30 or newer.

    The pods are restricted, have probes and may reach nothing but what you name. There is one replica of each: two would be two
    buses, and an event is heard only where it was published. Nothing of other content is overwritten without --force.

    Exit status: 0 written; 6 the artifacts are missing, damaged or outdated; 8 a value is refused, the agents cannot be parted, a
    file would be overwritten, or with --check would differ.

    \b
    Examples:
      graphbus k8s generate --namespace production
      graphbus k8s generate -n production --image ghcr.io/acme/shop:1.4.2
      graphbus k8s generate -n production --serve --allow-from ingress-nginx
      graphbus k8s generate -n staging --topology per-agent -o deploy/staging
      graphbus k8s generate -n production --check
    """
    wish = shipping.WriteOptions(**{name: given.pop(name) for name in shipping.WriteOptions._fields})
    plan = _plan(read_project(artifacts), topology, **given, command=_command())
    states = shipping.write_files(Path(output), generate_files(plan), wish)
    if wish.as_json:
        facts = {"namespace": plan.namespace, "image": plan.image, "topology": topology}
        console.emit_json({**facts, "output": output, "files": states})
        return
    for line in _notes(plan):
        console.print_note(console.sanitize(line))


@k8s.command("deploy", short_help="Apply a kustomization with kubectl, and wait for it.")
@click.argument("folder", metavar="[FOLDER]", default="k8s", type=click.Path(path_type=Path))
@click.option(
    "--context", default="", metavar="CONTEXT", help="The context of kubectl's configuration (the current one)."
)
@click.option(
    "--namespace",
    "-n",
    default="",
    metavar="NAME",
    help="Refuse manifests that are for another one; what names none goes there.",
)
@click.option("--image", default="", metavar="IMAGE", help="In the place of the one in the manifests.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Let the cluster judge all of it, and change nothing.")
@click.option("--timeout", default="5m", metavar="TIME", help="How long each deployment may take to be ready (5m).")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask.")
def deploy(
    *, folder: Path, context: str, namespace: str, image: str, is_dry: bool, timeout: str, is_sure: bool
) -> None:
    """Apply the kustomization in FOLDER (k8s by default) with kubectl, and wait until its deployments are ready.

    It says first what goes to which cluster, and asks; without a terminal it needs --yes. What is applied is what stands in the
    folder and was shown: nothing is generated again. --image replaces the image without a change to the folder, so that a
    pipeline can deploy the digest that it has just pushed.

    Exit status: 0 done; 8 there is no kubectl, no kustomization or no cluster, or kubectl has refused;
    130 somebody said no.

    \b
    Examples:
      graphbus k8s deploy --dry-run
      graphbus k8s deploy --context production --namespace production
      graphbus k8s deploy overlays/staging --yes
      graphbus k8s deploy --yes --image ghcr.io/acme/shop@sha256:...
    """
    if not any(os.path.isfile(folder / name) for name in _NAMES):
        raise DeployError("GBE730", where=Place(str(folder)), file=KUSTOMIZATION)
    if not _TIME.fullmatch(timeout):
        raise invalid_value(
            timeout, "time", "it must be one or more numbers, each followed by h, m or s, and longer than 0", "5m"
        )
    if image:
        check_pinned_image(image)
    kubectl = _Kubectl(folder, context)
    inside = ("--namespace", namespace) if namespace else ()
    with TemporaryDirectory(prefix="graphbus-") as made:
        manifests = Path(made).resolve() / _MANIFESTS
        rendered = _write_manifests(kubectl, folder, image, manifests)
        objects = list(_read_objects(rendered))
        _check(objects, namespace)
        _announce(kubectl, objects, _read_images(rendered))
        if is_dry:
            kubectl.run("apply", "-f", str(manifests), *inside, "--dry-run=server")
            return
        if not is_sure:
            _make_sure(kubectl)
        kubectl.run("apply", "-f", str(manifests), *inside)
    for each in objects:
        if each.kind == "Deployment":
            _follow(kubectl, each, namespace, timeout)


def _plan(
    project: BuiltProject,
    topology: Topology,
    *,
    name: str,
    image: str,
    state: str,
    admitted: tuple[str, ...],
    destinations: tuple[str, ...],
    **given: Any,
) -> ClusterPlan:
    """Return the plan from the options and the project; `given` holds further fields of the plan."""
    if topology == "per-agent":
        refuse_cut_edges(project.artifacts)
    name = check_application_name(name or make_label(text_of(project.about, "name") or project.root.name))
    settings = project.run.settings
    agents = tuple(agent.name for agent in project.artifacts.agents.agents)
    keepers = frozenset(agents if state or settings.keep_dead_letters is True else _find_keepers(project))
    return ClusterPlan(
        name=name,
        image=image or name_image(project.root, option="--image"),
        version=text_of(project.about, "version"),
        runtime=settings,
        powers=project.run.powers,
        pods=plan_pods(name, topology, agents, frozenset() if state == _NO_STATE else keepers),
        artifacts=_artifacts(project),
        state="" if state == _NO_STATE else state or "1Gi",
        admitted=tuple(dict.fromkeys(admitted)),
        destinations=tuple(dict.fromkeys(destinations)),
        **given,
    )


def _artifacts(project: BuiltProject) -> str:
    """Return the artifact folder inside the image, relative to the project."""
    below = Path(os.path.relpath(os.path.realpath(project.folder), os.path.realpath(project.root))).as_posix()
    return ".graphbus" if below.startswith("..") else below


def _find_keepers(project: BuiltProject) -> Iterator[str]:
    """Return the agents whose module uses `self.state`; all agents if another module does, e.g. that of a base class."""
    agents = project.artifacts.agents.agents
    modules = {agent.path for agent in agents}
    sources = [path for path in store.needed_files(project.manifest) if path.endswith(".py")]
    stateful = {path for path in sources if re.search(rb"\bself\.state\b", (project.root / path).read_bytes())}
    return (agent.name for agent in agents if agent.path in stateful or stateful - modules)


def _command() -> str:
    """Return this command line again, without the folders that it reads and writes."""
    given = click.get_current_context().params
    names = [each.name for each in click.get_current_context().command.params if each.name not in _NOT_OF_THE_PLAN]
    return shipping.command_line("graphbus k8s generate", {name: given[name] for name in names if name})


def _notes(plan: ClusterPlan) -> Iterator[str]:
    """Yield the remaining steps for the user."""
    powers = plan.powers
    kept = [pod.name for pod in plan.pods if pod.keeps_state]
    if kept:
        yield f"State is kept: {', '.join(kept)} {'has' if len(kept) == 1 else 'have'} a volume of {plan.state}."
    files = (path for path in powers.write if not path.endswith("/"))
    mounted = [*files, *(path for path in powers.read if path.startswith("/"))]
    if mounted:
        yield f"Yours to mount, if the image does not have it: {', '.join(mounted)}."
    if powers.environment:
        yield f"Yours to set, from an overlay: the variables {', '.join(powers.environment)}."
    if plan.is_served:
        yield f"The token is yours to make: key `token` of the secret {plan.token_secret} in {plan.namespace}."
        yield "The image must be able to take calls: `graphbus docker build --serve`."
