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
from graphbus_core.cli.process_options import ledger_option
from graphbus_core.cli.shipping import BuiltProject, name_image, read_project, text_of
from graphbus_core.deploy.kubernetes import (
    KUSTOMIZATION,
    ClusterPlan,
    Topology,
    check_application_name,
    check_ledger,
    check_pinned_image,
    parse_replicas,
    plan_pods,
    refuse_cut_edges,
)
from graphbus_core.deploy.kubernetes import generate_manifests as generate_files
from graphbus_core.deploy.names import invalid_value, make_label, split_image
from graphbus_core.deploy.render import fill_template
from graphbus_core.errors import DeployError, Place, UsageError, raise_all
from graphbus_core.hosting.arguments import LEDGER_VARIABLE
from graphbus_core.ledger.attached import check_agents_on_nats
from graphbus_core.ledger.nats_names import is_on_nats
from graphbus_core.model.config import NatsConfig

_NAMES = (KUSTOMIZATION, "kustomization.yml", "Kustomization")
_MANIFESTS = "manifests.yaml"
_TIME = re.compile(r"(?=[^1-9]*[1-9])(?:[0-9]+(?:\.[0-9]+)?[hms])+")

# The output of kustomize is parsed as text: it always indents by two spaces and sorts keys by name.
_FIELD = re.compile(r"^(kind|  name|  namespace): (\S+)$", re.MULTILINE)
_REPLICAS = re.compile(r"^  (?:replicas|maxReplicas|maxReplicaCount): (\d+)$", re.MULTILINE)
_SCALED = re.compile(r"^  scaleTargetRef:\n(?:    .*\n)*?    name: (\S+)$", re.MULTILINE)
_IMAGE = re.compile(r"^ +(?:- )?image: (\S+)$", re.MULTILINE)
_GRAPH_SIGNS = ("\n    app.kubernetes.io/managed-by: graphbus\n", "- graphbus_core.runtime\n")
"""Every workload that runs a graph contains one of them, even if an overlay has changed its labels."""
_LEDGER_SIGN = f"- name: {LEDGER_VARIABLE}\n"
"""Every workload that runs a graph on NATS contains it."""
_WORKLOADS = ("Deployment", "StatefulSet")


class _AppliedObject(NamedTuple):
    """An object of the manifests that are applied.

    Attributes:
        replicas: The number of replicas that it asks for; of an autoscaler, the highest.
        scaled: Of an autoscaler, the workload that it scales; of a workload that runs a graph which may not have several
            replicas, its own name; else empty.
    """

    kind: str
    name: str
    namespace: str
    replicas: int = 1
    scaled: str = ""


class _Kubectl:
    """Runs kubectl for one cluster.

    Args:
        folder: The folder with the manifests, for the hint of GBE704.
        context: The context of kubectl's configuration. Empty means the current context or, without one, the cluster in whose
            container this process runs.

    Attributes:
        target: The description of the cluster for the user.

    Raises:
        DeployError: GBE704, kubectl is not installed; GBE731, there is no such context, or no cluster.
    """

    def __init__(self, folder: Path, context: str) -> None:
        if not shutil.which("kubectl"):
            raise DeployError(
                "GBE704", program="kubectl", otherwise=f"apply the manifests in {folder} with another tool"
            )
        if not context:
            current = self._run_captured("config", "current-context")
            context = current.text.strip()
            host = os.environ.get("KUBERNETES_SERVICE_HOST")
            if current.status and not host:
                raise DeployError("GBE731", reason=current.reason)
            self.target = f"the cluster around this container, https://{host}"
        self.options = ("--context", context) if context else ()  # a later switch of the current context has no effect
        if context:
            path = "jsonpath={.clusters[0].cluster.server}"
            view = self._run_captured("config", "view", "--minify", *self.options, "-o", path)
            if view.status:
                raise DeployError("GBE731", reason=view.reason)
            self.target = f"the context {context} ({view.text})"

    def render(self, folder: Path) -> str:
        """Return the manifests that kustomize renders from a folder.

        Raises:
            DeployError: GBE733, kustomize has failed.
        """
        place = str(folder) if folder.is_absolute() else f"./{folder}"  # otherwise it may look like an option
        answer = self._run_captured("kustomize", place)
        if answer.status:
            raise DeployError("GBE733", where=Place(str(folder)), reason=answer.reason)
        return answer.text

    def run(self, *words: str) -> None:
        """Run a command of kubectl, with its output on stderr.

        Raises:
            DeployError: GBE705, it has failed.
        """
        shipping.run_at_terminal(["kubectl", *words, *self.options], Path.cwd())

    def _run_captured(self, *words: str) -> shipping.ProgramResult:
        return shipping.run_captured(["kubectl", *words])


def _write_manifests(kubectl: _Kubectl, folder: Path, image: str, manifests: Path) -> str:
    """Write the rendered manifests to a file, with the image replaced if one is named, and return their text.

    The file is what is applied: later changes to the folder have no effect.

    Raises:
        DeployError: GBE733; GBE734, the manifests name several images or none.
    """
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


def _read_objects(rendered: str) -> Iterator[_AppliedObject]:
    """Yield the object in each document of the output of kustomize."""
    for document in re.split(r"^---$", rendered, flags=re.MULTILINE):
        parts = re.split(r"^(?=[a-z])", document, flags=re.IGNORECASE | re.MULTILINE)
        own = "".join(part for part in parts if part.startswith(("kind:", "metadata:")))
        found = {key.strip(): _strip_quotes(value) for key, value in _FIELD.findall(own)}
        if "kind" not in found:
            continue
        name = found.get("name", "")
        replicas, scaled = _REPLICAS.search(document), _SCALED.search(document)
        is_graph = found["kind"] in (*_WORKLOADS, "ReplicaSet") and any(sign in document for sign in _GRAPH_SIGNS)
        must_be_one = is_graph and _LEDGER_SIGN not in document
        yield _AppliedObject(
            found["kind"],
            name,
            found.get("namespace", ""),
            replicas=int(replicas[1]) if replicas else 1,
            scaled=_strip_quotes(scaled[1]) if scaled else name if must_be_one else "",
        )


def _read_images(rendered: str) -> list[str]:
    """Return the references of all images, each once."""
    return list(dict.fromkeys(map(_strip_quotes, _IMAGE.findall(rendered))))


def _strip_quotes(text: str) -> str:
    return text.strip("\"'")


def _check_objects(objects: Sequence[_AppliedObject], namespace: str) -> None:
    """Raise GBE729 for manifests of another namespace, GBE728 for several replicas of a graph without a ledger on NATS."""
    found = sorted({each.namespace for each in objects if each.namespace})
    if namespace and found != [namespace]:
        raise DeployError("GBE729", namespace=namespace, found=", ".join(found) or "none")
    graphs = {each.name for each in objects if each.scaled == each.name}
    many = [each for each in objects if each.scaled in graphs and each.replicas > 1]
    raise_all(DeployError("GBE728", name=each.scaled, replicas=each.replicas) for each in many)


def _print_targets(kubectl: _Kubectl, objects: Sequence[_AppliedObject], images: Sequence[str]) -> None:
    """Print the cluster, the objects and the images before they are applied."""
    console.print_note(f"{style('To', 'strong')} {sanitize(kubectl.target)}:")
    for each in objects:
        inside = f" in {each.namespace}" if each.namespace else ""
        console.print_note(sanitize(f"  {each.kind} {each.name}{inside}"))
    console.print_note(sanitize(f"  with {', '.join(images)}"))


def _confirm_or_refuse(kubectl: _Kubectl) -> None:
    """Ask whether to apply; without a terminal raise GBE732, and abort if the answer is no."""
    if not sys.stdin.isatty():
        raise DeployError("GBE732", target=kubectl.target)
    click.confirm("Apply it?", abort=True, err=True)


def _wait_until_ready(kubectl: _Kubectl, workload: _AppliedObject, namespace: str, timeout: str) -> None:
    """Wait until a workload is ready; if it fails, print the commands that show why, and raise GBE705."""
    inside = ["--namespace", workload.namespace or namespace] if workload.namespace or namespace else []
    name = f"{workload.kind.lower()}/{workload.name}"
    try:
        kubectl.run("rollout", "status", name, *inside, f"--timeout={timeout}")
    except DeployError:
        words = " ".join(["kubectl", *kubectl.options, *inside])
        console.print_note(sanitize(f"To find the cause: {words} describe {name}; {words} logs {name}"))
        raise


_NO_STATE = "none"
_NOT_REPEATED = frozenset({"artifacts", "output", *shipping.WriteOptions._fields})


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
    help="One pod for the graph (single), or one for each agent: on NATS, or if there are no edges between them.",
)
@ledger_option(
    "Keep events in this ledger: sqlite, or nats://HOST:PORT/APP, without credentials (that of the settings).",
    has_variable=False,
)
@click.option(
    "--replicas",
    multiple=True,
    metavar="AGENT=N|N..M",
    help="How many pods an agent has on NATS (1); a range is scaled by KEDA; may be repeated.",
)
@click.option(
    "--monitoring",
    default="",
    metavar="HOST:PORT[/ACCOUNT]",
    help="Where KEDA asks the NATS server what waits (port 8222 of the ledger's host, account $G).",
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
@click.option("--memory", default="256Mi", metavar="AMOUNT", help="Memory that is reserved, and its limit (256Mi).")
@click.option(
    "--state",
    default="",
    metavar="SIZE",
    help="The size of the volume for state and dead letters; with `none` they are lost with the pod (1Gi if an agent "
    "uses `self.state`, or with `keep_dead_letters` or a ledger).",
)
@click.option(
    "--allow-from",
    "admitted",
    multiple=True,
    metavar="NAMESPACE",
    help="Accept connections from this namespace; may be repeated.",
)
@click.option(
    "--allow-egress",
    "destinations",
    multiple=True,
    metavar="CIDR|NAMESPACE[:PORT]",
    help="A destination that the agents may connect to (those in the powers); may be repeated.",
)
@click.option("--output", "-o", default="k8s", metavar="DIR", help="The folder to write to (k8s).")
@shipping.writing_options
def generate(*, artifacts: str, topology: Topology, output: str, **options: Any) -> None:
    """Write a kustomization for the graph in ARTIFACTS, a folder (.graphbus by default), for Kubernetes 1.30 or newer.

    The pods are restricted, have probes, and can connect only to what you name. Each has one replica, because a second one would
    be a separate bus that does not get the events of the first. With a ledger on NATS, each agent can have a StatefulSet: with a
    pod for each of its partitions, or, if it is listed under `shared`, with --replicas several pods that share its events in
    no order. A file with other content is overwritten only with --force.

    Exit status: 0 written; 6 the artifacts are missing, damaged or outdated; 8 a value is refused, the agents cannot be
    separated, or a file exists already or, with --check, is out of date.

    \b
    Examples:
      graphbus k8s generate --namespace production
      graphbus k8s generate -n production --image ghcr.io/acme/shop:1.4.2
      graphbus k8s generate -n production --serve --allow-from ingress-nginx
      graphbus k8s generate -n staging --topology per-agent -o deploy/staging
      graphbus k8s generate -n a --topology per-agent --ledger nats://nats/shop
      graphbus k8s generate -n production --check
    """
    write_options = shipping.WriteOptions(**{name: options.pop(name) for name in shipping.WriteOptions._fields})
    project = read_project(artifacts)
    plan = _make_plan(project, topology, **options, command=_repeat_command_line())
    states = shipping.write_files(Path(output), generate_files(plan), write_options)
    if write_options.as_json:
        facts = {"namespace": plan.namespace, "image": plan.image, "topology": topology}
        console.emit_json({**facts, "output": output, "files": states})
        return
    for line in (*_next_steps(plan), *_next_steps_on_nats(plan, project)):
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
    help="The namespace of objects that name none; manifests for another one are refused.",
)
@click.option("--image", default="", metavar="IMAGE", help="Replaces the image in the manifests.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Let the cluster validate the manifests, and change nothing.")
@click.option("--timeout", default="5m", metavar="TIME", help="How long each workload may take to be ready (5m).")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask.")
def deploy(
    *, folder: Path, context: str, namespace: str, image: str, is_dry: bool, timeout: str, is_sure: bool
) -> None:
    """Apply the kustomization in FOLDER (k8s by default) with kubectl, and wait until its pods are ready.

    The command first shows the objects and the cluster, and asks; without a terminal it needs --yes. It applies the manifests
    in the folder and generates nothing. --image replaces the image without a change to the folder, so that a pipeline can
    deploy the digest that it has just pushed.

    Exit status: 0 done; 8 there is no kubectl, no kustomization or no cluster, or kubectl has failed; 130 the answer was no.

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
        _check_objects(objects, namespace)
        _print_targets(kubectl, objects, _read_images(rendered))
        if is_dry:
            kubectl.run("apply", "-f", str(manifests), *inside, "--dry-run=server")
            return
        if not is_sure:
            _confirm_or_refuse(kubectl)
        kubectl.run("apply", "-f", str(manifests), *inside)
    for each in objects:
        if each.kind in _WORKLOADS:
            _wait_until_ready(kubectl, each, namespace, timeout)


def _make_plan(
    project: BuiltProject,
    topology: Topology,
    *,
    name: str,
    image: str,
    state: str,
    admitted: tuple[str, ...],
    destinations: tuple[str, ...],
    ledger: str | None,
    replicas: tuple[str, ...],
    **options: Any,
) -> ClusterPlan:
    """Return the plan from the options and the project; `options` holds the fields that the plan takes unchanged.

    Raises:
        DeployError: An option is not valid, or agents with edges between them would be separated.
        UsageError: GBE132, two options contradict each other.
    """
    ledger = check_ledger(ledger or project.run.settings.ledger)
    if ledger and state == _NO_STATE:
        raise UsageError("GBE132", option="--state none", other="a ledger", reason="events are kept with the state")
    if replicas and topology == "single":
        reason = "it gives the number of pods of one agent"
        raise UsageError("GBE132", option="--replicas", other="--topology single", reason=reason)
    agents = tuple(agent.name for agent in project.artifacts.agents.agents)
    nats = project.run.settings.nats if is_on_nats(ledger) else NatsConfig(shared=agents)
    check_agents_on_nats(project.artifacts.agents.agents, nats)
    scales = parse_replicas(replicas, project.artifacts.agents.agents, nats)
    if not is_on_nats(ledger):
        many = {agent: max(scale) for agent, scale in scales.items() if max(scale) > 1}
        raise_all(DeployError("GBE728", name=agent, replicas=number) for agent, number in many.items())
        if topology == "per-agent":
            refuse_cut_edges(project.artifacts)
    name = check_application_name(name or make_label(text_of(project.about, "name") or project.root.name))
    settings = project.run.settings
    is_stateful = state or ledger or settings.keep_dead_letters is True
    keepers = frozenset(agents if is_stateful else _find_stateful_agents(project))
    return ClusterPlan(
        name=name,
        image=image or name_image(project.root, option="--image"),
        version=text_of(project.about, "version"),
        runtime=settings,
        powers=project.run.powers,
        pods=plan_pods(
            name,
            topology,
            agents,
            frozenset() if state == _NO_STATE else keepers,
            replicas=scales,
            partitions=nats.partitions,
        ),
        artifacts=_artifact_folder_in_image(project),
        state="" if state == _NO_STATE else state or "1Gi",
        admitted=tuple(dict.fromkeys(admitted)),
        destinations=tuple(dict.fromkeys(destinations)),
        ledger=ledger,
        **options,
    )


def _artifact_folder_in_image(project: BuiltProject) -> str:
    """Return the artifact folder inside the image, relative to the project."""
    below = Path(os.path.relpath(os.path.realpath(project.folder), os.path.realpath(project.root))).as_posix()
    return ".graphbus" if below.startswith("..") else below


def _find_stateful_agents(project: BuiltProject) -> Iterator[str]:
    """Yield the agents whose module uses `self.state`; all agents if another module does, e.g. that of a base class."""
    agents = project.artifacts.agents.agents
    modules = {agent.path for agent in agents}
    sources = [path for path in store.needed_files(project.manifest) if path.endswith(".py")]
    stateful = {path for path in sources if re.search(rb"\bself\.state\b", (project.root / path).read_bytes())}
    return (agent.name for agent in agents if agent.path in stateful or stateful - modules)


def _repeat_command_line() -> str:
    """Return the command line that the written files quote, without the folders that it reads and writes."""
    options = click.get_current_context().params
    names = [each.name for each in click.get_current_context().command.params if each.name not in _NOT_REPEATED]
    return shipping.command_line("graphbus k8s generate", {name: options[name] for name in names if name})


def _next_steps(plan: ClusterPlan) -> Iterator[str]:
    """Yield the remaining steps for the user."""
    powers = plan.powers
    kept = [pod.name for pod in plan.pods if pod.keeps_state]
    if kept:
        yield f"State is stored: {', '.join(kept)} {'has' if len(kept) == 1 else 'have'} a volume of {plan.state}."
    files = (path for path in powers.write if not path.endswith("/"))
    mounted = [*files, *(path for path in powers.read if path.startswith("/"))]
    if mounted:
        yield f"Mount these unless the image contains them: {', '.join(mounted)}."
    if powers.environment:
        yield f"Set these variables in an overlay: {', '.join(powers.environment)}."
    if plan.is_served:
        yield f"Create the secret {plan.token_secret} in {plan.namespace}, with the token under the key `token`."
        yield "Build the image with `graphbus docker build --serve`, so that it accepts calls."


def _next_steps_on_nats(plan: ClusterPlan, project: BuiltProject) -> Iterator[str]:
    """Yield the remaining steps of a graph on NATS, and what several replicas of an agent mean."""
    if plan.server is None:
        return
    address = f"{plan.server.scheme}://USER:PASSWORD@{plan.server.place}/{plan.server.app}"
    keys = ", ".join(sorted({f"`{pod.component if pod.agent else 'url'}`" for pod in plan.pods}))
    under = f"the key {keys}" if len(plan.pods) == 1 else f"each of the keys {keys}"
    yield f"Create the secret {plan.ledger_secret} in {plan.namespace}, with the address under {under}: {address}."
    if not is_on_nats(project.run.settings.ledger):
        yield "Build the image with `graphbus docker build --nats`, so that it can connect."
    divided = [f"{pod.agent} ({pod.replicas})" for pod in plan.pods if pod.is_divided]
    if divided:
        yield f"A pod for each partition: {', '.join(divided)}. Run `graphbus nats deploy` before them if the number has changed."
    several = [pod.agent for pod in plan.pods if max(pod.replicas, pod.most) > 1 and not pod.is_divided]
    if several:
        yield (
            f"Several pods: {', '.join(several)}. The pods of an agent share its events in no order, and each has a state of its "
            "own."
        )
        stateful = {*_find_stateful_agents(project)}.intersection(several)
        yield from (
            f"{agent} uses `self.state`: its pods do not see what the others store." for agent in sorted(stateful)
        )
    if any(pod.most for pod in plan.pods):
        place, _ = plan.monitoring_endpoint
        yield f"KEDA must be installed, and reach the monitoring port of the NATS server: http://{place}/jsz."
