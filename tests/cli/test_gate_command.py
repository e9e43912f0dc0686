"""`graphbus gate`: what it judges, what it says, with which exit status, and that it never writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.editing.foreign import is_document
from graphbus_core.editing.gate import check_file
from graphbus_core.errors import EditError
from tests.project_files import NO_PLUGINS, write_project
from tests.thoroughness import some

pytestmark = pytest.mark.slow

SHOP = """
from graphbus_core import GraphBusNode, schema_method, subscribe

LIMIT = 3


class Shop(GraphBusNode):
    SYSTEM_PROMPT = "I sell."

    @schema_method(input_schema={"count": int}, output_schema={"total": float})
    def sell(self, count: int) -> dict:
        self.publish("/Shop/Sold", {"count": count})
        return {"total": 2.5 * count}


class Books(GraphBusNode):
    @subscribe("/Shop/Sold")
    def on_sold(self, event) -> None:
        self.log(event["count"])
"""
EMPTIED = """\
        def announce() -> float:
            self.publish("/Shop/Sold", {"count": count})
            return 2.5 * count
        return {"total": 5.0}"""
TESTS = """
from agents.shop import LIMIT, Shop


class Silent(Shop):
    def publish(self, topic, payload=None):
        pass


def test_total():
    assert Silent().sell(2) == {"total": 5.0}


def test_limit():
    assert LIMIT == 3
"""
FILES = {
    "pyproject.toml": '[project]\nname = "shop"\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
    f'addopts = "{NO_PLUGINS}"\n',
    "agents/__init__.py": "",
    "agents/shop.py": SHOP,
    "lib/money.py": "def cents(value):\n    return value\n",
    "tests/test_shop.py": TESTS,
}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_project(tmp_path / "repository" / "services" / "shop", FILES)
    git(root.parents[1], "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Begin")
    monkeypatch.chdir(root)
    return root


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def edit(root: Path, old: str, new: str, path: str = "agents/shop.py") -> None:
    text = (root / path).read_text()
    assert old in text
    (root / path).write_text(text.replace(old, new))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def judged(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    status = main(["gate", *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def code(document: dict) -> str:
    return next((rung["code"] for rung in document["rungs"] if rung["status"] == "failed"), "")


def test_a_good_change_passes_every_rung_and_nothing_is_written(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(shop, "2.5 * count", "count * 2.5")
    edit(shop, '{"count": count}', '{"count": count, "unit": "piece"}')
    (shop / "README.md").write_text("new")
    before = contents(shop.parents[1])

    assert main(["gate"]) == 0

    out = capsys.readouterr().out
    assert "1 file against HEAD" in out
    assert "✓ G6 tests" in out
    assert "~ /Shop/Sold: its contract changes, but no edge breaks." in out
    assert "not judged, and absent from the copy in which the tests ran: README.md" in out
    assert contents(shop.parents[1]) == before


def test_what_is_allowed_by_name_may_change_and_bring_agents_tests_and_plugins(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = 'from graphbus_core import GraphBusNode\n\n\nclass Fresh(GraphBusNode):\n    SYSTEM_PROMPT = "I am new."\n'
    plugin = "class Late:\n    def pytest_runtest_setup(self, item):\n        pass\n"
    hook = "\n\ndef pytest_configure(config):\n    config.pluginmanager.register(Late())\n"
    new = {"agents/fresh.py": agent, "Makefile": "all:\n", "tests/conftest.py": plugin + hook}
    write_project(shop, {**new, "tests/test_more.py": "def test_more():\n    assert True\n"})
    edit(shop, "return value", "return round(value)", "lib/money.py")
    allowed = [each for path in ("agents/fresh.py", "Makefile", "lib/*", "tests/**") for each in ("--allow", path)]

    for left_out in range(0, len(allowed), 2):
        some_allowed = allowed[:left_out] + allowed[left_out + 2 :]
        assert code(judged(*some_allowed, capsys=capsys)[1]).startswith("G0."), allowed[left_out]
    assert judged(*allowed, capsys=capsys)[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("LIMIT = 3", "import subprocess\nLIMIT = 3", "G3.process"),
        ('{"count": count}', '{"number": count}', "G4.finding"),
        ('    @subscribe("/Shop/Sold")\n', "", "G4.edge"),
        ("LIMIT = 3", "LIMIT = (", "G2.compile"),
        ('return {"total": 2.5', 'return {"total": PRICE', "G2.undefined"),
        (SHOP[SHOP.index("        self.publish") : SHOP.index("\n\n\nclass Books")], EMPTIED, "G2.emptied"),
    ],
)
def test_a_bad_change_is_refused_by_its_rung(
    shop: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, expected: str
) -> None:
    edit(shop, old, new)

    status, document = judged(capsys=capsys)

    assert (status, code(document)) == (3, expected)
    assert document["files"] == ["agents/shop.py"]


WEAKER = [
    ('{"total": 5.0}', '{"total": 7.0}'),
    ("def test_total", "def no_test_total"),
    ("def test_total():", "def test_total():\n    return\n"),
    (TESTS.strip(), "import pytest\n\npytest.skip('later', allow_module_level=True)"),
]


@pytest.mark.parametrize(("old", "new"), some(WEAKER, 4))
def test_a_weakened_test_does_not_help(shop: Path, capsys: pytest.CaptureFixture[str], old: str, new: str) -> None:
    edit(shop, "2.5 * count", "3.5 * count")
    edit(shop, old, new, "tests/test_shop.py")

    assert code(judged(capsys=capsys)[1]) == "G0.not-agent-file"
    assert code(judged("--allow", "tests/**", capsys=capsys)[1]) == "G6.tests"


def test_a_test_that_goes_is_refused(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "tests" / "test_shop.py").unlink()
    edit(shop, "return value", "return 1 * value", "lib/money.py")
    document = judged("--allow", "tests/**", "--allow", "lib/*", capsys=capsys)[1]
    assert code(document) == "G6.tests"
    assert "With the changed tests" in document["rungs"][-1]["message"]


def test_settings_and_fixtures_of_the_change_do_not_count(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(shop, "2.5 * count", "3.5 * count")
    edit(shop, "[project]", '[tool.graphbus.gate]\ntest_command = ["true"]\n[project]', "pyproject.toml")

    assert code(judged(capsys=capsys)[1]) == "G0.unjudged"
    assert code(judged("--allow", "pyproject.toml", "--base-tests", capsys=capsys)[1]) == "G6.tests"


def test_what_is_staged_is_judged_by_itself_and_other_revisions_can_be_named(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(shop, "LIMIT = 3", "import socket\nLIMIT = 3")
    git(shop, "add", "-A")
    edit(shop, "import socket\n", "")

    assert code(judged("--staged", capsys=capsys)[1]) == "G3.network"
    assert judged(capsys=capsys)[0] == 0

    git(shop, "commit", "-q", "-m", "More")
    git(shop, "checkout", "-q", ".")
    assert code(judged("--against", "HEAD~1", capsys=capsys)[1]) == "G3.network"
    assert judged("--against", "main", capsys=capsys)[0] == 0
    assert main(["gate", "--against", "nowhere"]) == 5


def test_a_patch_and_a_new_text_are_judged_without_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path, FILES)
    monkeypatch.chdir(root / "agents")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    patch = "--- a/agents/shop.py\n+++ b/agents/shop.py\n@@ -3,2 +3,2 @@\n-LIMIT = 3\n+LIMIT = (\n \n"
    (tmp_path / "change.patch").write_text(patch)
    (tmp_path / "new.py").write_text(SHOP.lstrip().replace("LIMIT = 3", "import socket"))
    before = contents(root)

    assert code(judged("--patch", "../change.patch", capsys=capsys)[1]) == "G2.compile"
    assert code(judged("shop.py", "--new", "../new.py", capsys=capsys)[1]) == "G3.network"
    assert code(judged("../lib/money.py", "--new", "../new.py", capsys=capsys)[1]) == "G0.not-agent-file"
    assert code(judged("../../outside.py", "--new", "../new.py", capsys=capsys)[1]) == "G0.path"
    assert main(["gate"]) == 4
    assert contents(root) == before


def test_a_patch_comes_through_a_pipe(shop: Path) -> None:
    edit(shop, "LIMIT = 3", "import socket\nLIMIT = 3")
    patch = git(shop, "diff", "--relative")
    git(shop, "checkout", "-q", ".")
    command = [sys.executable, "-m", "graphbus_core", "gate", "--patch", "-"]

    done = subprocess.run(command, input=patch, capture_output=True, text=True, check=False, env=dict(os.environ))

    assert (done.returncode, done.stderr) == (3, "")
    assert "✗ Refused by G3 capability" in done.stdout


def test_sarif_names_codes_as_rules(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(shop, "LIMIT = 3", "import subprocess\nLIMIT = 3")

    assert main(["gate", "--format", "sarif"]) == 3

    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["G3.process"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("agents/shop.py", 3)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["x.py"], 2),
        (["--new", "x.py"], 2),
        (["--staged", "--against", "main"], 2),
        (["--patch", "-", "--staged"], 2),
        (["--json", "--format", "sarif"], 2),
        (["--patch", "nowhere.patch"], 4),
    ],
)
def test_what_does_not_go_together_is_refused(shop: Path, arguments: list[str], status: int) -> None:
    assert main(["gate", *arguments]) == status


def test_a_function_may_be_emptied_in_a_file_that_is_allowed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(shop, SHOP[SHOP.index("        self.publish") : SHOP.index("\n\n\nclass Books")], EMPTIED)

    assert main(["gate"]) == 3
    assert "name its file, without a pattern, in --allow if it may do nothing" in " ".join(
        capsys.readouterr().out.split()
    )
    assert judged("--allow", "agents/shop.py", capsys=capsys)[0] == 0


@pytest.mark.parametrize("allowed", ["tests/**", "lib/money.py", "agents/**", "*.py", "shop.py"])
def test_what_is_allowed_for_other_files_empties_no_function(
    shop: Path, capsys: pytest.CaptureFixture[str], allowed: str
) -> None:
    edit(shop, SHOP[SHOP.index("        self.publish") : SHOP.index("\n\n\nclass Books")], EMPTIED)
    same_name = SHOP[SHOP.index("    def sell(") : SHOP.index("\n\n\nclass Books")]
    write_project(shop, {"tests/test_more.py": f"class Fake:\n{same_name}\n"})

    assert code(judged("--allow", allowed, "--allow", "tests/test_more.py", capsys=capsys)[1]) == "G2.emptied"


def test_a_file_can_be_checked_from_python(shop: Path) -> None:
    bad = check_file(str(shop), "agents/shop.py", SHOP.lstrip().replace("2.5", "eval('2.5')").encode())

    assert (bad.passed, bad.failure and bad.failure.code) == (False, "G3.exec")
    assert check_file(shop, "agents/shop.py", SHOP.lstrip()).passed


def test_a_folder_without_agents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EditError) as refusal:
        check_file(tmp_path, "a.py", "x = 1\n")

    assert refusal.value.code == "GBE340"


# --- what is neither Python nor a document ---

DECISIVE = """
    agents/shop.cpython-311-x86_64-linux-gnu.so agents/shop.so agents/shop.abi3.so agents/shop.pyd shop.pyc
    agents/__pycache__/shop.cpython-311.pyc agents/shop.pyi agents/shop.pyx agents/shop.PY agents/py.typed
    graphbus.pth agents/x.pth agents/x.egg-link x.egg-info/entry_points.txt x.dist-info/entry_points.txt
    pyproject.toml pytest.ini .pytest.ini tox.ini setup.cfg mypy.ini ruff.toml .coveragerc requirements.txt
    requirements/dev.txt constraints.txt uv.lock poetry.lock Pipfile .python-version Makefile Dockerfile
    .github/workflows/ci.yml .gitlab-ci.yml .pre-commit-config.yaml noxfile .gitignore .gitattributes .gitmodules
    .env agents/prices.json agents/prompt.md data.bin tests/expected.md tests/data.json tests/readme.md
    .hidden/readme.md agents/notes.txt conftest.py tests/conftest.py sitecustomize.py usercustomize.py setup.py
    agents/new.py
""".split()  # noqa: SIM905
DOCUMENTS = """
    README.md CHANGELOG.md agents/README.md LICENSE docs/guide.md docs/deep/graph.svg docs/notes.txt NOTICE
    CONTRIBUTING.rst roadmap.md doc/index.adoc
""".split()  # noqa: SIM905


@pytest.mark.parametrize("way", [[], ["--staged"]])
def test_what_could_change_the_next_judgement_is_refused_beside_a_harmless_edit(
    shop: Path, capsys: pytest.CaptureFixture[str], way: list[str]
) -> None:
    edit(shop, "2.5 * count", "count * 2.5")
    for path in some(DECISIVE, 6):
        place = shop / path
        is_there = place.is_file()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((place.read_text() if is_there else "") + "\n# x\n")
        if way:
            git(shop, "add", "-f", "agents/shop.py", path)

        status, document = judged(*way, capsys=capsys)

        assert status == 3, path
        assert code(document).startswith("G0."), document["rungs"]
        assert document["rungs"][0]["path"] == path
        assert path in document["files"]
        assert path not in document["not_judged"]
        git(shop, "reset", "-q")
        git(shop, "checkout", "-q", "--", path) if is_there else place.unlink()


def test_so_is_the_removal_of_such_a_file_and_its_change_alone(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("pyproject.toml", "tests/test_shop.py"):
        (shop / path).unlink()
        assert main(["gate"]) == 3
        assert path in capsys.readouterr().out
        git(shop, "checkout", "-q", "--", path)


def test_a_patch_with_such_a_file_is_refused_and_with_a_document_it_is_not(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, expected in (("README.md", "G3.network"), ("pytest.ini", "G0.unjudged")):
        edit(shop, "LIMIT = 3", "import socket\nLIMIT = 3")
        (shop / path).write_text("x\n")
        git(shop, "add", "-A")
        patch = shop.parent / "change.diff"
        patch.write_text(git(shop, "diff", "--cached", "--relative"))
        git(shop, "reset", "-q", "--hard")
        assert code(judged("--patch", str(patch), capsys=capsys)[1]) == expected
        patch.unlink()


def test_documents_are_passed_over() -> None:
    assert [path for path in (*DOCUMENTS, *DECISIVE) if is_document(path)] == DOCUMENTS


def test_everything_that_cannot_be_judged_is_named_at_once(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.bin", "two.bin", "note.md"):
        (shop / name).write_text("x")
    message = judged(capsys=capsys)[1]["rungs"][0]["message"]
    assert "one.bin" in message
    assert "two.bin" in message
    assert "note.md" not in message


def test_a_document_that_is_tested_or_a_link_is_none(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "README.md").symlink_to("agents/shop.py")
    assert code(judged(capsys=capsys)[1]) == "G0.link"
    (shop / "README.md").unlink()
    (shop / "pytest.ini").write_text("[pytest]\naddopts = --doctest-glob=*.md\n")
    git(shop, "add", "-A")
    git(shop, "commit", "-q", "-m", "Test the documents")
    (shop / "README.md").write_text("new")
    assert code(judged(capsys=capsys)[1]) == "G0.unjudged"


def test_what_a_build_wrote_is_passed_over_until_it_is_given_to_git(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["build", "agents"])
    capsys.readouterr()
    assert judged(capsys=capsys)[0] == 0
    git(shop, "add", "-f", ".graphbus/manifest.json", ".graphbus/agents.json")
    assert judged("--staged", capsys=capsys)[0] == 0
    (shop / ".graphbus/journal").mkdir(exist_ok=True)
    (shop / ".graphbus/journal/journal.json").write_text("{}")
    git(shop, "add", "-f", ".graphbus")
    assert code(judged("--staged", capsys=capsys)[1]) == "G0.unjudged"
