"""`graphbus contract` of artifacts that older versions wrote: they are read as they would be after `graphbus migrate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.fakes.frozen_artifacts import SAMPLES, contents, thaw


@pytest.mark.parametrize("sample", SAMPLES)
def test_artifacts_of_older_formats_are_validated_compared_and_exported(
    sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = thaw(sample, tmp_path)
    monkeypatch.chdir(tmp_path)
    before = contents(folder)
    assert main(["contract", ".graphbus", "--json"]) == main(["contract", "--json"])
    of_artifacts, of_sources = capsys.readouterr().out.split("}\n{")
    assert json.loads(f"{of_artifacts}}}")["edges"] == json.loads("{" + of_sources)["edges"]
    assert main(["contract", "diff", ".graphbus"]) == 0
    assert "breaks" not in capsys.readouterr().out
    assert main(["contract", "export", ".graphbus", "--format", "asyncapi"]) == 0
    assert json.loads(capsys.readouterr().out)["asyncapi"] == "3.0.0"
    after = contents(folder)
    assert {name: after[name] for name in before} == before
