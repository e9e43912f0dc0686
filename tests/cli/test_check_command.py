"""`graphbus check`: what it reports, in which form, with which exit status, and what it fixes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from graphbus_core import __version__
from graphbus_core.cli import main
from tests.project_files import write_project

Write = Callable[[Mapping[str, str | bytes]], Path]

STOCK = """
from graphbus_core import GraphBusNode, schema_method, subscribe


class Stock(GraphBusNode):
    def change(self, sku: str, count: int):
        self.publish("/Stock/Changed", {"sku": sku, "in_stock": count})
"""
LISTENER = """
from graphbus_core import GraphBusNode, schema_method, subscribe


class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, event):
        self.note(f"é {event['instock']}")

    @schema_method({"text": str})
    def note(self, text, log=[]):
        log.append(text)
"""
BROKEN = "import graphbus_core\ndef ("
FILES = {"agents/stock.py": STOCK, "agents/listener.py": LISTENER, "pyproject.toml": ""}
CLEAN = {"agents/stock.py": STOCK, "agents/listener.py": LISTENER.replace("instock", "in_stock")
         .replace("text, log=[]", "text: str, log: list | None = None").replace("log.append(text)", "self.log(text)"),
         "pyproject.toml": ""}  # fmt: skip


@pytest.fixture
def shop(project: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(FILES)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def clean(project: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project(CLEAN)
    monkeypatch.chdir(root)
    return root


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


TEXT = """\
agents/listener.py:7:30: GB003 Listener.on_change reads 'instock', which no publisher of '/Stock/Changed' sends
7 |         self.note(f"é {event['instock']}")
  |                              ^^^^^^^^^
  :: agents/stock.py:6:22: Stock sends {sku: str, in_stock: int}
6 |         self.publish("/Stock/Changed", {"sku": sku, "in_stock": count})
  |                      ----------------
  = help: Did you mean 'in_stock'?
  = fix: Read 'in_stock' instead of 'instock' in Listener.on_change (graphbus negotiate)

agents/listener.py:10:20: GB201 note: Listener.note takes 'text' without an annotation; its input_schema says str
10 |     def note(self, text, log=[]):
   |                    ^^^^
   = help: Annotate it: `text: str`.
   = fix: Annotate 'text' of Listener.note with str (--fix)

agents/listener.py:10:30: GB301 Listener.note changes the default value of 'log', which all calls share
10 |     def note(self, text, log=[]):
   |                              ^^
   = help: Write `log=None` and make a new value in the body.
   = fix: Make the default of 'log' anew in each call of Listener.note (--fix)

Found 1 error, 1 warning, 1 note in 1 file. \
Can be fixed: 2 with `graphbus check --fix`, 1 by the agents, with `graphbus negotiate`.
2 edges: 1 proven, 1 broken
"""


@pytest.mark.usefixtures("shop")
def test_text_shows_the_line_the_other_end_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "agents"]) == 3
    shown = capsys.readouterr()
    assert shown.out == TEXT
    assert shown.err == ""


@pytest.mark.parametrize(
    ("paths", "line"),
    [
        (["agents/stock.py"], "✓ agents/stock.py: nothing to say. Read with it: 2 agents in 2 files.\n"
         "1 edge: 1 proven"),
        (["agents/stock.py", "agents/listener.py"], "✓ agents/stock.py, agents/listener.py: nothing to say. "
         "Read with it: 2 agents in 2 files.\n2 edges: 2 proven"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("clean")
def test_nothing_found_in_files_is_said_of_these_files_only(
    paths: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *paths]) == 0
    assert capsys.readouterr().out == f"{line}\n"


def test_a_clean_file_of_a_broken_project_does_not_speak_for_the_project(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("agents/broken.py").write_text(BROKEN, encoding="utf-8")
    assert main(["check", "agents/stock.py"]) == 0
    assert (
        capsys.readouterr().out
        == "✓ agents/stock.py: nothing to say. Read with it: 2 agents in 3 files.\n1 edge: 1 unknown\n"
    )


@pytest.mark.parametrize("options", [[], ["--exit-zero"], ["--fix"], ["--diff"], ["--format", "sarif"]], ids=repr)
def test_a_folder_without_agents_is_refused_so_that_no_pipeline_stays_green_in_the_wrong_place(
    options: list[str], shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("docs").mkdir()
    Path("docs/conf.py").write_text("project = 'shop'\n", encoding="utf-8")
    assert main(["check", "docs", *options]) == 3
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "error: No agent was found in docs. [GBE213]" in streams.err


@pytest.mark.parametrize("path", ["README.md", "agents/data"])
def test_what_is_no_python_file_is_refused(path: str, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(path).write_text("# Hello\n", encoding="utf-8")
    for paths in ([path], ["agents", path]):
        assert main(["check", *paths]) == 2
        streams = capsys.readouterr()
        assert streams.out == ""
        assert f"error: {path} is not a Python file. [GBE106]" in streams.err


@pytest.mark.parametrize("path", ["agents/test_stock.py", "agents/conftest.py"])
def test_a_file_that_is_never_read_is_named_as_such(path: str, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text("", encoding="utf-8")
    assert main(["check", path]) == 0
    assert capsys.readouterr() == ("", f"{path}: not checked, because it is a test or excluded.\n")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 3),
        (["--exit-zero"], 0),
        (["--select", "GB301"], 3),
        (["--select", "GB201"], 0),
        (["--select", "GB201", "--strict"], 3),
        (["--select", "GB2,GB310"], 0),
        (["--ignore", "GB003", "--ignore", "GB3"], 0),
        (["--format", "sarif"], 3),
        (["--format", "github"], 3),
        (["--json"], 3),
        (["--diff"], 3),
        (["--diff", "--select", "GB003"], 0),
        (["--select", "GB999"], 2),
        (["--diff", "--format", "sarif"], 2),
        (["nowhere"], 2),
    ],
    ids=str,
)
@pytest.mark.usefixtures("shop", "capsys")
def test_the_exit_status_tells_what_was_found(options: list[str], status: int) -> None:
    assert main(["check", "agents", *options]) == status


@pytest.mark.usefixtures("shop")
def test_a_file_is_checked_within_its_package_and_only_its_findings_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "agents/stock.py", "--json"]) == 0
    assert document(capsys)["findings"] == []
    assert main(["check", "agents/listener.py", "--json"]) == 3
    findings = document(capsys)["findings"]
    assert {finding["path"] for finding in findings} == {"agents/listener.py"}  # type: ignore[attr-defined]
    assert len(findings) == 3  # type: ignore[arg-type]


# --- other forms ------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
def test_json_is_one_document_with_places_in_characters(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "agents", "--json"])
    found = document(capsys)
    assert found["summary"] == {
        "errors": 1,
        "warnings": 1,
        "notes": 1,
        "fixable": 2,
        "negotiable": 1,
        "agents": 2,
        "files": 2,
    }
    assert found["errors"] == found["fixed"] == []
    assert found["findings"][0] == {  # type: ignore[index]
        "code": "GB003",
        "severity": "error",
        "agent": "Listener",
        "path": "agents/listener.py",
        "line": 7,
        "column": 30,
        "end_line": 7,
        "end_column": 39,
        "message": "Listener.on_change reads 'instock', which no publisher of '/Stock/Changed' sends",
        "hint": "Did you mean 'in_stock'?",
        "related": [
            {
                "agent": "Stock",
                "path": "agents/stock.py",
                "line": 6,
                "column": 22,
                "end_line": 6,
                "end_column": 38,
                "message": "Stock sends {sku: str, in_stock: int}",
            }
        ],
        "fix": {
            "title": "Read 'in_stock' instead of 'instock' in Listener.on_change",
            "intent": "align_schema",
            "is_safe": False,
            "affects": ["Stock"],
        },
    }


@pytest.mark.usefixtures("shop")
def test_github_gets_one_escaped_command_per_finding(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "agents", "--format", "github"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::notice", "::warning"]
    assert lines[0] == (
        "::error file=agents/listener.py,line=7,endLine=7,col=30,endColumn=39,title=GB003 key that nobody sends::"
        "Listener.on_change reads 'instock', which no publisher of '/Stock/Changed' sends%0A"
        "agents/stock.py:6: Stock sends {sku: str, in_stock: int}%0ADid you mean 'in_stock'?"
    )


def test_github_gets_paths_from_the_top_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "of many" / "services"
    monkeypatch.chdir(write_project(place / "shop", FILES))

    def named() -> str:
        main(["check", "agents", "--format", "github"])
        return capsys.readouterr().out

    assert "file=agents/listener.py," in named(), "nothing says that there is more above"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "of many"))
    assert "file=services/shop/agents/listener.py," in named()
    (place / ".git").mkdir()
    assert "file=shop/agents/listener.py," in named(), "a repository may be checked out below the workspace"
    assert "%0Ashop/agents/stock.py:6: Stock sends" in named()


def test_sarif_has_rules_results_fingerprints_and_what_could_not_be_read(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project({**FILES, "agents/brök en.py": BROKEN, "agents/other.py": LISTENER.replace("Listener", "Öther")})
    monkeypatch.chdir(root)
    assert main(["check", "agents", "--format", "sarif"]) == 3
    log = document(capsys)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]  # type: ignore[misc,attr-defined]
    assert run["tool"]["driver"]["semanticVersion"] == __version__
    codes = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(codes)) == len(codes)
    assert all(codes[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    prints = [result["partialFingerprints"]["finding/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["descriptor"]["id"] == "GBE201"
    place = notification["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "agents/br%C3%B6k%20en.py"


# --- what cannot be read ----------------------------------------------------------------------


def test_files_that_cannot_be_read_are_reported_together_with_the_findings(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project({**FILES, "agents/broken.py": BROKEN, "agents/binary.py": b"import graphbus_core\nx = '\xff'\n"})
    monkeypatch.chdir(root)
    assert main(["check", "agents"]) == 3
    shown = capsys.readouterr()
    assert "GB301" in shown.out
    assert "Found 2 errors, 1 warning, 1 note in 3 files." in shown.out
    assert "agents/broken.py:2" in shown.err
    assert "[GBE201]" in shown.err
    assert "[GBE202]" in shown.err


# --- fixing ----------------------------------------------------------------------------------


def test_fix_changes_what_is_safe_and_says_so(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "agents", "--fix"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "✓ agents/listener.py: GB201 Annotate 'text' of Listener.note with str",
        "✓ agents/listener.py: GB301 Make the default of 'log' anew in each call of Listener.note",
    ]
    assert lines[-2:] == [
        "Found 1 error in 1 file. Can be fixed: 1 by the agents, with `graphbus negotiate`.",
        "2 edges: 1 proven, 1 broken",
    ]
    assert (shop / "agents/listener.py").read_text() == dedent(LISTENER).removeprefix("\n").replace(
        "text, log=[]):\n", "text: str, log=None):\n        if log is None:\n            log = []\n"
    )
    assert main(["check", "agents", "--fix", "--json"]) == 3
    assert document(capsys)["fixed"] == []


def test_a_diff_shows_what_fix_would_do_and_writes_nothing(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (shop / "agents/listener.py").read_bytes()
    assert main(["check", "agents", "--diff"]) == 3
    shown = capsys.readouterr()
    assert "-    def note(self, text, log=[]):\n+    def note(self, text: str, log=None):\n" in shown.out
    assert shown.err == "2 to fix in 1 file; nothing was written.\n"
    assert (shop / "agents/listener.py").read_bytes() == before
    assert main(["check", "agents", "--diff", "--json"]) == 3
    assert list(document(capsys)["diffs"]) == ["agents/listener.py"]  # type: ignore[call-overload]


@pytest.mark.usefixtures("capsys")
def test_a_file_that_changed_meanwhile_is_left_alone(shop: Path) -> None:
    from graphbus_core import settings
    from graphbus_core.cli.check import CheckOptions, apply_safe_fixes, write_fixes
    from graphbus_core.compiler.project import Project
    from graphbus_core.errors import EditError
    from graphbus_core.model.config import BuildConfig

    project = Project.read(settings.resolve_build(BuildConfig(paths=("agents",))))
    fixed = apply_safe_fixes(project, CheckOptions())
    path = shop / "agents/listener.py"
    path.write_text("# mine\n")
    with pytest.raises(EditError, match="GBE330"):
        write_fixes(fixed)
    assert path.read_text() == "# mine\n"
    path.unlink()
    with pytest.raises(EditError, match="GBE321"):
        write_fixes(fixed)


def test_a_file_that_leads_out_of_the_project_is_left_alone(
    shop: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from graphbus_core import settings
    from graphbus_core.cli.check import CheckOptions, apply_safe_fixes, write_fixes
    from graphbus_core.compiler.project import Project
    from graphbus_core.errors import EditError
    from graphbus_core.model.config import BuildConfig

    fixed = apply_safe_fixes(
        Project.read(settings.resolve_build(BuildConfig(paths=("agents",)))), CheckOptions(), {"agents/listener.py"}
    )
    assert list(fixed.files) == ["agents/listener.py"]
    outside = tmp_path_factory.mktemp("outside") / "listener.py"
    path = shop / "agents/listener.py"
    before = path.read_bytes()
    path.rename(outside)
    path.symlink_to(outside)
    with pytest.raises(EditError, match="GBE322"):
        write_fixes(fixed)
    assert outside.read_bytes() == before


@pytest.mark.parametrize(("files", "status", "said"), [(FILES, 3, "GB003"), (CLEAN, 0, "")], ids=["broken", "clean"])
def test_a_strict_check_prints_only_if_it_fails(
    files: dict[str, str], status: int, said: str, *, project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    from graphbus_core.cli.check import check_strictly

    root = project(files)
    assert check_strictly((str(root / "agents"),)) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert bool(shown.err) == bool(status)


def test_a_diff_tells_of_files_that_cannot_be_read(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "agents/broken.py").write_text("def (:\n")
    assert main(["check", "agents", "--diff"]) == 3
    shown = capsys.readouterr()
    assert "+    def note(self, text: str, log=None):" in shown.out
    assert "agents/broken.py" in shown.err


@pytest.mark.usefixtures("shop")
def test_a_file_in_a_package_of_a_package_is_checked_with_the_outer_one(capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("agents", "agents/more"):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "__init__.py").touch()
    Path("agents/listener.py").rename("agents/more/listener.py")
    assert main(["check", "agents/more/listener.py"]) == 3
    said = capsys.readouterr().out
    assert "GB003" in said
    assert ":: agents/stock.py" in said


def test_what_is_not_proven_fails_a_strict_check_and_is_told(
    project: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = {**CLEAN, "agents/stock.py": STOCK.replace('{"sku": sku, "in_stock": count}', "self.make()")}
    monkeypatch.chdir(project(unknown))
    assert main(["check", "agents", "--strict"]) == 3
    assert "not proven; `graphbus contract --unknown` gives the reasons." in capsys.readouterr().out


def test_no_code_of_the_project_is_run(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "agents/trap.py").write_text("from graphbus_core import GraphBusNode\nraise SystemExit('imported')\n")
    assert main(["check", "agents"]) == 3
    assert "GB003" in capsys.readouterr().out
