"""`graphbus contract export`: the promises of the agents in formats that others read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

import click

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.contracting.check import is_artifacts
from graphbus_core.cli.shipping import writing
from graphbus_core.cli.shipping.writing import Wish
from graphbus_core.compiler.description import History, describe
from graphbus_core.compiler.project import Project
from graphbus_core.contracts import documents
from graphbus_core.deploy import yaml
from graphbus_core.errors import DeployError, UsageError, raise_all
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import BuildRequest, RuntimeRequest
from graphbus_core.model.project_info import ProjectInfo
from graphbus_core.store.migration import load_any

Document = Mapping[str, Any]


@click.command("export", short_help="Write the contracts as JSON Schema, OpenAPI or AsyncAPI.")
@click.argument("path", metavar="[PATH]", default="")
@click.option(
    "--format", "form", required=True, type=click.Choice(["jsonschema", "openapi", "asyncapi"]), help="What is written."
)
@click.option(
    "--output",
    "-o",
    default="",
    metavar="FILE|DIR",
    help="Where to; a folder ends with `/` or is there. Default: stdout.",
)
@click.option("--yaml", "as_yaml", is_flag=True, help="YAML instead of JSON.")
@writing.options
def export(*, path: str, form: str, output: str, as_yaml: bool, **wished: bool) -> None:
    """Write what agents promise in a format that others read. No code of yours is run.

    PATH is a folder with sources, or one with artifacts. Without PATH the working directory is read. The same contracts
    give the same bytes.

    \b
    jsonschema  payloads of topics, arguments and results (draft 2020-12):
                one document, or with a folder as --output one for each
    openapi     what `graphbus run --serve` offers over HTTP (OpenAPI 3.1)
    asyncapi    topics with their payloads and both ends (AsyncAPI 3.0)

    Exit status: 0 done; 2 wrong usage; 3 sources cannot be read; 6 artifacts cannot; 8 a file is there already, or with --check
    differs.

    \b
    Examples:
      graphbus contract export --format asyncapi
      graphbus contract export agents/ --format jsonschema --output schemas/
      graphbus contract export .graphbus/ --format openapi --yaml
      graphbus contract export --format asyncapi --output asyncapi.json --check
    """
    wish = Wish(**wished)
    given = {"--force": wish.is_forced, "--check": wish.is_check, "--diff": wish.is_diff}
    if not output and any(given.values()):
        option = next(option for option, is_given in given.items() if is_given)
        raise UsageError("GBE131", option=option, needed="--output")
    artifacts, about = _read(path)
    suffix, render = ("yaml", _as_yaml) if as_yaml else ("json", _as_json)
    place = Path(output)
    is_folder = output.endswith(("/", os.sep)) or (bool(output) and place.is_dir())
    if is_folder and form == "jsonschema":
        files = {f"{name}.{suffix}": render(each) for name, each in documents.single(artifacts).items()}
    else:
        name = f"{form}.{suffix}" if is_folder else place.name
        files = {name: render(_describe(form, artifacts, about))}
    if not output:
        console.out(*files.values(), end="")
        return
    folder = place if is_folder else place.parent
    states = writing.write(folder, files, wish)
    if wish.as_json:
        console.emit_json({"format": form, "folder": str(folder), "files": states})


class _About(NamedTuple):
    """What a document says besides the contracts: the project, and how long its server lets one wait."""

    info: ProjectInfo
    wait_limit_s: float


def _read(path: str) -> tuple[BuildArtifacts, _About]:
    """The artifacts in a folder, or what a build would make of the sources there; and the project that they belong to.

    Raises:
        GraphBusError: What is wrong with the artifacts or the sources.
    """
    folder = Path(path)
    if path and is_artifacts(path):
        serve = settings.resolve_run(RuntimeRequest(artifacts=path)).settings.serve
        info = settings.project_info(settings.find_root([folder.resolve().parent]))
        return load_any(folder)[0], _About(info, serve.call_timeout_s)
    project = Project.read(settings.resolve_build(BuildRequest(paths=(path,) if path else ())))
    raise_all(project.errors)
    if not project.definitions:  # an empty document would be taken for a promise of nothing
        raise DeployError("GBE746", path=path or "this folder")
    about = _About(settings.project_info(project.config.root), project.config.settings.runtime.serve.call_timeout_s)
    return describe(project, History()), about


def _describe(form: str, artifacts: BuildArtifacts, about: _About) -> Document:
    if form == "openapi":
        from graphbus_core.hosting.serving import openapi

        return openapi.document(artifacts, about.info, wait_limit_s=about.wait_limit_s)
    write = documents.asyncapi if form == "asyncapi" else documents.bundle
    return write(artifacts, about.info)


def _as_json(document: Document) -> str:
    """Legible, with escapes for what a terminal may obey."""
    text = dumps(document, indent=2, ensure_ascii=False)
    return "".join(each if each.isprintable() or each == "\n" else dumps(each)[1:-1] for each in text) + "\n"


def _as_yaml(document: Document) -> str:
    return yaml.render(document)
