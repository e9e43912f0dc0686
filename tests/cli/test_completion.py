"""Completion: which words are offered where, from what they are read, and that real shells put them into the line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import COMMANDS, completion, main
from graphbus_core.cli.completion import complete_words
from tests.commands import ALL
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

FILES = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/__init__.py": "",
    "agents/orders.py": """
        from graphbus_core import GraphBusNode, schema_method, subscribe


        class Orders(GraphBusNode):
            \"\"\"Takes orders.\"\"\"

            @schema_method(input_schema={"order_id": str}, output_schema={})
            def place(self, order_id: str) -> dict[str, object]:
                \"\"\"Take an order.\"\"\"
                self.publish("/Order/Placed", {"order_id": order_id})
                return {}

            @subscribe("/Order/Paid")
            def on_paid(self, event: dict[str, object]) -> None: ...
        """,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_project(tmp_path_factory.mktemp("completion") / "shop", FILES)
    build_graph(root / "agents")
    return write_project(root, {f".graphbus/sessions/S00{number}/record.json": "{}" for number in (1, 2)})


@pytest.fixture
def _in_shop(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)


OFFERED = [
    ("inspect", ["inspect", "inspect-negotiation"]),
    ("dlq s", ["show"]),
    ("completion ", ["bash", "zsh", "fish"]),
    ("run --call ", ["Orders.place"]),
    ("run --call Orders.place {} --publish ", ["/Order/Paid", "/Order/Placed"]),
    ("run --break ", ["Orders.place", "Orders.on_paid"]),
    ("run --validation=w", ["warn"]),
    ("generate agent Payments --depends-on ", ["Orders"]),
    ("inspect-negotiation --session ", ["S002", "S001"]),
    ("check ", ["<file>"]),
    ("-C ", ["<dir>"]),
    ("validate ", ["<dir>"]),
    ("run --nothing ", ["<dir>"]),
    ("report --output=out.html --js", ["--json"]),
]


@pytest.mark.usefixtures("_in_shop")
@pytest.mark.parametrize(("line", "expected"), OFFERED)
def test_the_words_that_fit_are_offered(line: str, expected: list[str]) -> None:
    *words, incomplete = line.split(" ")
    found = [word.value if word.type == "plain" else f"<{word.type}>" for word in complete_words(words, incomplete)]
    assert found[: len(expected) or None] == expected


def test_a_folder_that_was_named_before_is_where_words_are_read(shop: Path, tmp_path: Path) -> None:
    assert asked(tmp_path, "-C", str(shop), "inspect", "--agent", "").stdout == "plain\nOrders\nTakes orders.\n"
    assert [word.value for word in complete_words(["run", f"{shop}/.graphbus", "--call"], "")] == ["Orders.place"]


@pytest.mark.usefixtures("_in_shop")
def test_every_command_and_most_words_are_offered_with_what_they_mean() -> None:
    assert {word.value: word.help for word in complete_words([], "")} == {
        name: e.summary for name, e in COMMANDS.items()
    }
    assert complete_words(["inspect", "--agent"], "")[0].help == "Takes orders."
    assert all(word.help for word in complete_words(["run"], "-"))


HOSTILE = [
    "$(touch hacked)",
    "`touch hacked`",
    "a b",
    "\x1b[31mred",
    "line\nbreak",
    "/Order/Fine",
]


def test_no_source_of_words_is_left_without_a_value_that_asks_for_it() -> None:
    asking = {
        name for _, command in ALL for parameter in command.params for name in completion.completable_names(parameter)
    }
    assert {*completion.SOURCES, *completion.FILES} == asking


def test_what_a_shell_would_take_apart_or_run_is_never_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"topics": [{"name": name, "subscribers": ["a\x1b]0;b\n"]} for name in HOSTILE]}
    write_project(tmp_path, {".graphbus/topics.json": json.dumps(topics)})
    monkeypatch.chdir(tmp_path)
    assert [word.value for word in complete_words(["run", "--publish"], "")] == ["/Order/Fine"]
    assert asked(tmp_path, "run", "--publish", "").stdout == "plain\n/Order/Fine\nhandled by a ]0;b\n"


def asked(folder: Path, *words: str, shell: str = "zsh") -> subprocess.CompletedProcess[str]:
    line = {
        "_GRAPHBUS_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": shlex.join(["graphbus", *filter(None, words)]),
        "COMP_CWORD": str(len(words)),
    }
    return subprocess.run(
        [sys.executable, "-m", "graphbus_core"],
        cwd=folder, env=os.environ | line, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def test_what_cannot_be_read_gives_no_words_and_no_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = {"another form": {".graphbus/agents.json": "[]"}, "no TOML": {"pyproject.toml": "["}, "nothing": {}}
    for what, files in broken.items():
        monkeypatch.chdir(write_project(tmp_path / what, files | {"a.txt": ""}))
        for words in (["run", "--call", ""], ["-C", "nowhere", "undo", ""], ["biuld", "x"]):
            monkeypatch.setenv("COMP_WORDS", shlex.join(["graphbus", *filter(None, words)]))
            monkeypatch.setenv("COMP_CWORD", str(len(words)))
            assert completion.print_completions("zsh_complete") == 0
            assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_name_of_a_command_is_completed_without_importing_any(tmp_path: Path) -> None:
    script = (
        "import sys; from graphbus_core.cli import main; main();"
        "print(*(name for name in sys.modules if name.startswith('graphbus_core') or name in ('msgspec', 'rich')))"
    )
    environment = os.environ | {"_GRAPHBUS_COMPLETE": "fish_complete", "COMP_WORDS": "graphbus", "COMP_CWORD": "ne"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    word, loaded = done.stdout.splitlines()
    assert word == f"plain,negotiate\t{COMMANDS['negotiate'].summary}"
    own = {"", ".cli", ".cli.console", ".cli.completion", ".collector", ".errors", ".errors.legible", ".isolation"}
    assert {*loaded.split()} <= {f"graphbus_core{name}" for name in own}


# --- the scripts ----------------------------------------------------------------------------


def test_the_script_of_each_shell_is_printed_and_of_others_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        assert "_GRAPHBUS_COMPLETE" in capsys.readouterr().out
    assert main(["completion", "fihs"]) == 2
    assert "Did you mean 'fish'?" in capsys.readouterr().err


def environment_of(folder: Path) -> dict[str, str]:
    """A command `graphbus` that is this one, and nothing of the user's shell."""
    program = folder / "bin" / "graphbus"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m graphbus_core "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {"PATH": path, "HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8"}


def need(shell: str) -> None:
    if not shutil.which(shell) and not os.environ.get("CI"):
        pytest.skip(f"there is no {shell} on this machine")


BASH = [
    ("graphbus nego", "negotiate"),
    ("graphbus run --publish /Order/Pl", "/Order/Placed"),
    ("graphbus run --validation = w", "warn"),
    ("graphbus -C . inspect --agent O", "Orders"),
]


@pytest.mark.slow
def test_bash_completes_the_line(shop: Path, tmp_path: Path) -> None:
    need("bash")
    script = 'eval "$(graphbus completion bash)"\n' + "".join(
        f"COMPREPLY=(); COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}; "
        '_graphbus_completion graphbus; echo "$COMPREPLY"\n'
        for line, _ in BASH
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=shop, env=environment_of(tmp_path), capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [word for _, word in BASH], done.stderr


def test_zsh_is_answered_with_the_whole_word_and_finds_no_fault_with_its_script(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(shop, "run", "--validation=w").stdout.splitlines()[:2] == ["plain", "--validation=warn"]
    need("zsh")
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out, encoding="utf-8")
    subprocess.run(["zsh", "-n", str(tmp_path / "script")], timeout=PATIENCE_S, check=True)


FISH = [
    ("graphbus nego", ["negotiate"]),
    ("graphbus run --publish /Order/Pl", ["/Order/Placed"]),
    ("graphbus run --validation=w", ["--validation=warn"]),
    ("graphbus check ag", ["agents/"]),
    ("graphbus -C . inspect --agent ", ["Orders"]),
]


@pytest.mark.slow
def test_fish_completes_the_line(shop: Path, tmp_path: Path) -> None:
    need("fish")
    lines = [f"complete -C {json.dumps(line)}; echo ==" for line, _ in FISH]
    script = "; ".join(["graphbus completion fish | source", *lines])
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=shop, env=environment_of(tmp_path), capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    answers = [[line.split("\t")[0] for line in part.split()[:1]] for part in done.stdout.split("==\n")[:-1]]
    assert answers == [expected for _, expected in FISH]
