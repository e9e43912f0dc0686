"""`graphbus contract export`: the promises of the agents in formats that others read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.contracting.check import is_artifacts
from graphbus_core.cli.shipping import writing
from graphbus_core.cli.shipping.writing import Wish
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import History, describe
from graphbus_core.contracts import documents
from graphbus_core.deploy import yaml
from graphbus_core.errors import DeployError, UsageError, raise_all
from graphbus_core.model.artifacts import BuildArtifacts, ProjectInfo
from graphbus_core.model.config import BuildConfig, RuntimeConfig
from graphbus_core.store.migration import load_any

Document = Mapping[str, Any]


def write(path: str, form: str, output: str, wish: Wish, *, as_yaml: bool) -> None:
    """Describe the contracts and write them, to stdout without `output`.

    Raises:
        UsageError: GBE131, an option about files without a file.
        GraphBusError: The sources or artifacts cannot be read, or a file not be written.
    """
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
        serve = settings.resolve_run(RuntimeConfig(artifacts=path)).settings.serve
        info = settings.project_info(settings.find_root([folder.resolve().parent]))
        return load_any(folder)[0], _About(info, serve.call_timeout_s)
    project = Project.read(settings.resolve_build(BuildConfig(paths=(path,) if path else ())))
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
