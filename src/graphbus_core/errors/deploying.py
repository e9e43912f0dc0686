"""Refusals of what leaves the project, images, manifests, pipelines, and of the programs that take it: exit status 8."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE701": Entry(
        "{count} would be overwritten, with other content: {names}.",
        "Compare with --diff; write with --force, which shows what changes, or to another folder with --output.",
    ),
    "GBE702": Entry(
        "{path} cannot be written: {reason}.", "Nothing was written. Correct that, or give another --output."
    ),
    "GBE703": Entry(
        "{value} is no {kind}: {reason}.",
        "For example: {example}.",
    ),
    "GBE704": Entry("{program} was not found.", "Install it, or {otherwise}."),
    "GBE705": Entry("{command} has ended with status {status}.", "What it says stands above."),
    "GBE706": Entry(
        "{count} would differ from what is generated: {names}.", "Run the same command without --check, with --force."
    ),
    "GBE710": Entry(
        "The agents import what Python does not bring along, and no version of it is pinned: {modules}.",
        "Pin them with their hashes, e.g. `uv pip compile --generate-hashes deps.in -o requirements.txt`, "
        "and give the file: --requirements requirements.txt. What they can do without is named with --optional.",
    ),
    "GBE711": Entry(
        "{path} does not pin everything: {reason}.",
        "Write it with hashes, e.g. with `uv pip compile --generate-hashes` or `pip-compile --generate-hashes`.",
    ),
    "GBE712": Entry(
        "The base {image} may be another image tomorrow: it has no digest.",
        "Write NAME:TAG@sha256:..., or let it float with --allow-unpinned.",
    ),
    "GBE713": Entry(
        "There is no pinned base image for Python {version}.",
        "There is one for {known}; another image is given with --base.",
    ),
    "GBE714": Entry(
        "{path} cannot go into the image: {reason}.",
        "An image is made of files below the folder of the project.",
    ),
    "GBE715": Entry(
        "{program} is installed, but its engine does not answer: {reason}.",
        "Start it, or {otherwise}.",
    ),
    "GBE716": Entry(
        "The image has no name: the project has no {missing}.",
        "Set it in [project] of pyproject.toml, or give {option} {example}.",
    ),
    "GBE720": Entry(
        "The image {image} may be another one tomorrow: it has no tag but `latest`, and no digest.",
        "Give a tag that is not moved, or a digest: --image {example}.",
    ),
    "GBE721": Entry(
        "{name} would begin anew before the old pod has ended: for a while there would be two buses.",
        "Leave `strategy: {{type: Recreate}}` as it is generated.",
    ),
    "GBE722": Entry(
        "The agents cannot run in pods of their own, because a bus ends where its process ends; {count} would be cut: {edges}.",
        "Keep them together with --topology single.",
    ),
    "GBE723": Entry(
        "{first} and {second} would both be called {label} in the cluster.",
        "Rename one of them, or keep them together with --topology single.",
    ),
    "GBE724": Entry(
        "{agent} has no name that a cluster could use: nothing of it is a-z or 0-9.",
        "Rename it, or keep the agents together with --topology single.",
    ),
    "GBE728": Entry(
        "{name} would have {replicas} replicas, and each of them a bus of its own.",
        "Take `replicas` out of the overlay: an event is heard only in the process that published it.",
    ),
    "GBE729": Entry(
        "The manifests are not for the namespace {namespace}, but for {found}.",
        "Generate them with another --namespace, or name the folder of the right ones.",
    ),
    "GBE730": Entry("There is no {file} here.", "`graphbus k8s generate` writes one; or name its folder."),
    "GBE731": Entry(
        "kubectl knows no cluster to deploy to: {reason}.",
        "Choose one with `kubectl config use-context`, or for this command with --context.",
    ),
    "GBE732": Entry(
        "Nobody is at a terminal to say yes to {target}.",
        "Say it before, with --yes, or look at what would happen, with --dry-run.",
    ),
    "GBE733": Entry("kustomize cannot make manifests of this folder: {reason}.", "Correct the folder."),
    "GBE734": Entry(
        "It is not clear which image --image replaces: the manifests name {names}.",
        "Use an overlay with `images:` instead.",
    ),
    "GBE736": Entry(
        "{path} does not exist, so that the jobs would have nothing to install GraphBus from.",
        "Write it: `{command}`; then add what the agents import. Or name another file with --requirements.",
    ),
    "GBE737": Entry(
        "{value} cannot stand in a pipeline as a {kind}.",
        "It is one line without control characters and without `${{{{`; a path is one of this project, "
        "without signs that forges give a meaning: `*?[]{{}}$\\`, or `-#!~` at its begin.",
    ),
    "GBE738": Entry(
        "The project does not allow Python {wanted}: it requires {requires}.",
        "Give another --python, or leave it out; then a fitting one is taken.",
    ),
    "GBE739": Entry(
        "The package that public indexes call `graphbus` is somebody else's, and this line would install it.",
        "Pin GraphBus with its hash, or by the address of its wheel: `graphbus @ https://...`.",
    ),
    "GBE745": Entry(
        "The contracts of {state} cannot be read: {reason}.",
        "What cannot be read cannot be compared. `graphbus check` says what is wrong with sources.",
    ),
    "GBE746": Entry(
        "There are neither agents nor artifacts in {path}.",
        "Name the folder with the agents; `graphbus build` writes artifacts.",
    ),
}
