"""`graphbus deployed` and `graphbus contract can-deploy`: what runs where, what may be deployed, and what cannot be asked."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project

Write = Callable[[Mapping[str, str | bytes]], Path]
Capture = pytest.CaptureFixture[str]

TILL = """
from graphbus_core import GraphBusNode, depends_on, subscribe


@depends_on("Books")
class Till(GraphBusNode):
    @subscribe("/Sale/Made")
    def on_sale(self, sku: str) -> None:
        self.publish("/Sold", {"sku": sku})
"""
BOOKS = """
from graphbus_core import GraphBusNode, schema_method, subscribe


class Books(GraphBusNode):
    @subscribe("/Sold")
    def on_sold(self, sku: str) -> None:
        self.state["sku"] = sku

    @schema_method({}, {"sum": int})
    def balance(self) -> dict[str, int]:
        return {"sum": 0}
"""
PYPROJECT = '[project]\nname = "shop"\nversion = "1.0.0"\n[tool.graphbus]\nexternal_topics = ["/Sale/*"]\n'
FILES = {"agents/till.py": TILL, "agents/books.py": BOOKS, "pyproject.toml": PYPROJECT}
SENDS_MORE = TILL.replace('{"sku": sku}', '{"sku": sku, "price": 3}')
NEEDS_MORE = BOOKS.replace("sku: str", "sku: str, price: int")
ASKS = TILL + '        self.call("Books", "balance")\n'


def git(*arguments: str, cwd: Path | None = None) -> str:
    person = ("-c", "user.name=A Person", "-c", "user.email=person@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *person, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def shop(project: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shop whose build is recorded in production."""
    root = project(FILES)
    monkeypatch.chdir(root)
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "The shop")
    build_graph("agents")
    assert main(["deployed", "record", "production"]) == 0
    return root


@pytest.fixture(autouse=True)
def _forget_output(shop: Path, capsys: Capture) -> None:
    capsys.readouterr()


def asked(capsys: Capture, *words: str, status: int) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["contract", "can-deploy", "--to", "production", "--json", *words]) == status
    return json.loads(capsys.readouterr().out)


def refused(capsys: Capture, *words: str, status: int, code: str) -> str:
    capsys.readouterr()
    assert main([*words]) == status
    output = capsys.readouterr()
    assert f"[{code}]" in output.err
    assert "✓" not in output.out + output.err
    return output.err


def test_the_same_build_can_be_deployed(shop: Path, capsys: Capture) -> None:
    assert main(["contract", "can-deploy", "--to", "production"]) == 0
    said = capsys.readouterr().out
    assert "✓ It can be deployed to production: nothing breaks between it and 1 build there." in said


def test_a_build_whose_handler_needs_more_than_is_on_its_way_cannot(shop: Path, capsys: Capture) -> None:
    (shop / "agents/till.py").write_text(SENDS_MORE)
    (shop / "agents/books.py").write_text(NEEDS_MORE)
    assert main(["contract", "can-deploy", "--to", "production"]) == 3
    said = capsys.readouterr().out
    assert "The new Books.on_sold needs 'price', which the old Till does not send." in said
    assert "sent at agents/till.py:8 in production (" in said
    assert (
        "Writers first: deploy Till, wait until nothing of the old build waits for Books.on_sold, then deploy Books."
        in said
    )
    assert "✗ It cannot be deployed to production: messages would break." in said
    assert asked(capsys, status=3)["can_deploy"] is False
    assert asked(capsys, "--allow-breaking", status=0)["can_deploy"] is False


def test_agents_that_are_deployed_one_by_one_are_asked_about_one_by_one(shop: Path, capsys: Capture) -> None:
    """Till sends more than Books reads: Till goes first, is recorded, and then Books may need it."""
    (shop / "agents/till.py").write_text(SENDS_MORE)
    (shop / "agents/books.py").write_text(NEEDS_MORE)
    asked(capsys, "--only", "Books", status=3)
    asked(capsys, "--only", "Till", status=0)
    build_graph("agents")
    assert main(["deployed", "record", "production", "--only", "Till"]) == 0
    [compared] = asked(capsys, "--only", "Books", status=0)["compared"]
    assert [each["agents"] for each in compared["builds"]] == [["Books"], ["Till"]]


def test_what_is_not_known_is_no_yes(shop: Path, capsys: Capture) -> None:
    (shop / "agents/till.py").write_text(TILL.replace('{"sku": sku}', "dict(self.state)"))
    assert main(["contract", "can-deploy", "--to", "production"]) == 0
    said = capsys.readouterr().out
    assert "? Nothing is known to break in production, but 1 edge or place could not be compared." in said
    assert "✓" not in said
    assert asked(capsys, status=0)["unknown"] == 1
    assert asked(capsys, status=0)["can_deploy"] is True
    for options in (["--strict"], ["--strict", "--allow-breaking"]):
        answer = asked(capsys, *options, status=3)
        assert (answer["unknown"], answer["can_deploy"]) == (1, None)
        assert main(["contract", "can-deploy", "--to", "production", *options]) == 3
        assert capsys.readouterr().out.endswith("✗ --strict fails for 1 edge or place that could not be compared.\n")


def test_a_call_of_a_method_that_does_not_run_yet_is_found(shop: Path, capsys: Capture) -> None:
    (shop / "agents/books.py").write_text(BOOKS.replace("balance", "total"))
    (shop / "agents/till.py").write_text(ASKS.replace("balance", "total"))
    found = asked(capsys, "--only", "Till", status=3)
    [edge] = (each for each in found["compared"][0]["edges"] if each["verdict"] == "breaks")
    assert edge["order"] == "readers first"
    assert edge["problems"][0]["why"] == "the old build lacks a method Books.total, which the new Till calls"


def test_another_component_stays_beside_it(
    shop: Path, capsys: Capture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = write_project(tmp_path_factory.mktemp("mail"), {
        "mail/__init__.py": "",
        "mail/agent.py": BOOKS.replace("Books", "Mail").replace("on_sold(self, sku: str)", "on_sold(self, sku: int)"),
    })  # fmt: skip
    assert main(["deployed", "record", "production", "--component", "mail", "--build", str(other / "mail")]) == 0
    found = asked(capsys, status=3)
    assert [each["component"] for each in found["compared"]] == ["mail", "shop"]
    [broken] = (each for each in found["compared"][0]["edges"] if each["verdict"] == "breaks")
    assert (broken["producer"], broken["consumer"]) == ("Till", "Mail.on_sold")
    assert main(["deployed", "rm", "production", "--component", "mail"]) == 0
    asked(capsys, status=0)


@pytest.mark.parametrize("form", ["github", "sarif", "markdown"])
def test_the_answer_has_the_forms_of_the_comparison(shop: Path, capsys: Capture, form: str) -> None:
    (shop / "agents/books.py").write_text(NEEDS_MORE)
    assert main(["contract", "can-deploy", "--to", "production", "--format", form]) == 3
    said = capsys.readouterr().out
    if form == "github":
        assert said.startswith("::error file=agents/books.py,line=7")
    elif form == "markdown":
        assert said.startswith("### Deploy to production\n\n```text\n")
    else:
        [result] = json.loads(said)["runs"][0]["results"]
        assert (result["ruleId"], result["level"]) == ("message-breaks", "error")
        [place] = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "agents/books.py"


def test_records_are_shared_by_git_and_outlive_the_text_of_the_build(
    shop: Path, capsys: Capture, tmp_path: Path
) -> None:
    """A shallow clone has no record until it fetches them; then it needs no commit of the deployed build."""
    clone = tmp_path / "clone"
    (shop / "agents/till.py").write_text(SENDS_MORE)
    git("commit", "-qam", "More")
    git("clone", "-q", "--depth", "1", f"file://{shop}", str(clone))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(clone)
        error = refused(capsys, "contract", "can-deploy", "--to", "production", status=2, code="GBE173")
        assert "git fetch origin '+refs/graphbus/*:refs/graphbus/*'" in error
        git("fetch", "-q", "origin", "+refs/graphbus/*:refs/graphbus/*")
        assert asked(capsys, status=0)["can_deploy"] is True
        assert main(["deployed", "record", "production", "--build", "agents"]) == 0
        git("push", "-q", "origin", "refs/graphbus/*")
    assert git("log", "--format=%s", "refs/graphbus/deployed/production/shop").count("Record shop in production") == 2


def test_a_job_that_may_push_needs_nothing_but_the_bundle(shop: Path, tmp_path: Path) -> None:
    """As the generated pipelines: one job records, another one pushes."""
    for name in ("origin", "pushing"):
        git("clone", "-q", "--bare" if name == "origin" else "-q", f"file://{shop}", str(tmp_path / name))
    assert main(["deployed", "record", "production", "--bundle", str(tmp_path / "record.bundle")]) == 0
    git("fetch", "-q", str(tmp_path / "record.bundle"), "+refs/graphbus/*:refs/graphbus/*", cwd=tmp_path / "pushing")
    git("push", "-q", str(tmp_path / "origin"), "refs/graphbus/*", cwd=tmp_path / "pushing")
    assert "refs/graphbus/deployed/production/shop" in git("for-each-ref", cwd=tmp_path / "origin")


def test_two_clones_that_record_at_once_are_told_apart_by_git(shop: Path, tmp_path: Path) -> None:
    """The second push is refused, because it does not know the first one: no record is lost."""
    for name in ("one", "other"):
        git("clone", "-q", f"file://{shop}", str(tmp_path / name))
        git("fetch", "-q", "origin", "+refs/graphbus/*:refs/graphbus/*", cwd=tmp_path / name)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path / name)
            assert (
                main(
                    [
                        "deployed",
                        "record",
                        "production",
                        "--build",
                        "agents",
                        "--only",
                        {"one": "Till"}.get(name, "Books"),
                    ]
                )
                == 0
            )
    git("push", "-q", "origin", "refs/graphbus/*", cwd=tmp_path / "one")
    with pytest.raises(subprocess.CalledProcessError) as failure:
        git("push", "-q", "origin", "refs/graphbus/*", cwd=tmp_path / "other")
    assert "rejected" in failure.value.stderr


# --- what cannot be asked ---------------------------------------------------------------------------


def test_an_environment_that_was_never_recorded_is_no_yes(shop: Path, capsys: Capture) -> None:
    error = refused(capsys, "contract", "can-deploy", "--to", "productoin", status=2, code="GBE173")
    assert "Did you mean 'production'?" in error
    capsys.readouterr()
    assert main(["contract", "can-deploy", "--to", "staging", "--allow-unrecorded"]) == 0
    said = capsys.readouterr().out
    assert "? No build of shop is recorded in staging: nothing says what it replaces." in said
    assert "✓" not in said


def test_a_component_that_was_never_recorded_is_no_yes(shop: Path, capsys: Capture) -> None:
    words = ("contract", "can-deploy", "--to", "production", "--component", "shp")
    assert "Did you mean 'shop'?" in refused(capsys, *words, status=2, code="GBE174")
    assert asked(capsys, "--component", "new", "--allow-unrecorded", status=0)["can_deploy"] is None
    refused(capsys, "deployed", "rm", "production", "--component", "shp", status=2, code="GBE174")


def store(text: bytes, ref: str = "refs/graphbus/deployed/production/shop", name: str = "record.json") -> None:
    blob = subprocess.run(["git", "hash-object", "-w", "--stdin"], input=text, capture_output=True, check=True).stdout
    entry = b"100644 blob " + blob.strip() + b"\t" + name.encode() + b"\n"
    tree = subprocess.run(["git", "mktree"], input=entry, capture_output=True, check=True).stdout.decode().strip()
    git("update-ref", ref, git("commit-tree", tree, "-m", "By hand").strip())


DAMAGED = {
    "no JSON": (b"{", "GBE748", "is damaged"),
    "conflict marks of a merge": (b"<<<<<<< ours\n{}\n=======\n{}\n>>>>>>> theirs\n", "GBE748", "is damaged"),
    "no version": (b"{}", "GBE748", "version"),
    "a newer version": (b'{"version": 2, "what": "is it"}', "GBE749", "A newer GraphBus has recorded shop"),
    "no builds of a record": (b'{"version": 1}', "GBE748", "is damaged"),
    "another component": (b'{"version": 1, "environment": "staging", "component": "shop"}', "GBE748", "about shop in staging"),
    "a type that does not exist": (
        b'{"version": 1, "environment": "production", "component": "shop", "builds": [{"digest": "a", "revision": "",'
        b' "agents": [], "messages": {"producers": [{"kind": "parcel"}]}}]}', "GBE748", "is damaged"),
    "another file": (b"{}", "GBE748", "it has no record.json"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_record_that_cannot_be_read_is_refused_and_can_be_removed(shop: Path, capsys: Capture, case: str) -> None:
    text, code, what = DAMAGED[case]
    store(text, name="other.json" if case == "another file" else "record.json")
    assert what in refused(capsys, "contract", "can-deploy", "--to", "production", status=8, code=code)
    refused(capsys, "deployed", "ls", status=8, code=code)
    if code == "GBE748":
        refused(capsys, "deployed", "record", "production", status=8, code=code)
    assert main(["deployed", "rm", "production"]) == 0
    assert main(["deployed", "record", "production"]) == 0
    asked(capsys, status=0)


def test_without_git_nothing_is_recorded_or_answered(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_project(tmp_path / "plain", FILES)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for words in (["deployed", "record", "x"], ["deployed", "ls"], ["contract", "can-deploy", "--to", "x"]):
        assert "no git repository" in refused(capsys, *words, status=8, code="GBE747")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("deployed", "record", "pro:duction"), 8, "GBE703"),
        (("deployed", "record", "production", "--only", "Tills"), 6, "GBE511"),
        (("deployed", "record", "production", "--build", "nowhere"), 2, "GBE171"),
        (("contract", "can-deploy", "nowhere", "--to", "production"), 2, "GBE171"),
        (("contract", "can-deploy", "--to", "production", "--only", "Tills"), 6, "GBE511"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    shop: Path, capsys: Capture, words: tuple[str, ...], status: int, code: str
) -> None:
    refused(capsys, *words, status=status, code=code)


def test_what_was_never_built_is_not_recorded(shop: Path, capsys: Capture) -> None:
    shutil.rmtree(shop / ".graphbus")
    assert "graphbus build" in refused(capsys, "deployed", "record", "production", status=6, code="GBE501")


def test_files_that_do_not_parse_are_no_yes(shop: Path, capsys: Capture) -> None:
    (shop / "agents/torn.py").write_text("class (:\n")
    capsys.readouterr()
    assert main(["contract", "can-deploy", "--to", "production"]) != 0
    output = capsys.readouterr()
    assert "agents/torn.py:1" in output.err
    assert "✓" not in output.out


def test_the_list_shows_what_runs_where(shop: Path, capsys: Capture) -> None:
    assert main(["deployed", "ls"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["ENVIRONMENT", "COMPONENT", "BUILD", "COMMIT", "RECORDED", "AGENTS"]
    assert row.startswith("production")
    assert "Books, Till" in row
    assert main(["deployed", "ls", "staging"]) == 0
    assert "Nothing is recorded here." in capsys.readouterr().err
