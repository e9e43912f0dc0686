"""`--review`: what a person is shown, and what an answer becomes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from graphbus_core.cli.review import ConsoleReviewer
from graphbus_core.model.proposals import (
    Counterexample,
    GateReport,
    ProposalEvaluation,
    Removal,
    RungResult,
    SchemaChange,
)
from graphbus_core.negotiation.protocol import GatedProposal
from graphbus_core.negotiation.session_workspace import PersonDecision, ReviewSheet
from tests.fakes.negotiating_agents import replace_text
from tests.fakes.typing_person import Person as TypingPerson

pytestmark = pytest.mark.measures_children

DIFF = "--- a/agents/order.py\n+++ b/agents/order.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
TEXTS = {"agents/order.py": "x = 2\n"}


def sheet(**fields: Any) -> ReviewSheet:
    proposal = replace_text("agents/order.py", "x = 1", "x = 2", reason="Two is\nbetter.")
    report = GateReport(
        proposal_id="P001",
        passed=True,
        rungs=(
            RungResult(rung="G0", status="passed"),
            RungResult(rung="G1", status="passed"),
            RungResult(rung="G6", status="not_run", message="The project has no tests."),
        ),
        schema_changes=(SchemaChange(method="Order.place"),),
    )
    votes = (
        ProposalEvaluation(proposal_id="P001", evaluator="Stock", round=1, decision="accept"),
        ProposalEvaluation(
            proposal_id="P001",
            evaluator="Mail",
            round=1,
            decision="reject",
            reasoning="no\x1b[31m",
            concerns=("slow",),
            evidence=(Counterexample("test", "def test_x(): ...", is_verified=True, detail="test_x fails"),),
        ),
        ProposalEvaluation(proposal_id="P001", evaluator="Judge", round=1, decision="accept", is_arbiter=True),
    )
    from msgspec.structs import replace

    own = replace(proposal, proposal_id="P001", src="Order")
    values: dict[str, Any] = {"diff": DIFF, "texts": TEXTS, "evaluations": votes, "agreed": "majority", **fields}
    return ReviewSheet(review=GatedProposal(own, values.pop("report", report)), **values)


class Person:
    """Says what a test tells it to, and sees what is shown."""

    def __init__(self, *lines: str) -> None:
        self.lines = [*(f"{line}\n" for line in lines), ""]
        self.shown: list[str] = []
        self.reviewer = ConsoleReviewer(self.shown.append, lambda: self.lines.pop(0))

    def decide(self, **fields: Any) -> PersonDecision:
        return self.reviewer.decide(sheet(**fields))

    @property
    def text(self) -> str:
        return click.unstyle("\n".join(self.shown))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("yes", PersonDecision("yes")),
        ("y", PersonDecision("yes")),
        ("Y", PersonDecision("yes")),
        ("no", PersonDecision("no")),
        ("n too broad", PersonDecision("no", "too broad")),
        ("quit", PersonDecision("quit")),
        ("q", PersonDecision("quit")),
    ],
)
def test_a_word_or_its_first_letter_is_an_answer(line: str, word: PersonDecision) -> None:
    assert Person(line).decide() == word


def test_silence_and_nonsense_are_no_answer_and_the_end_of_input_is_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    person = Person("", "perhaps", "ye", "skip")
    assert person.decide() == PersonDecision("quit", "the input ended")
    said = click.unstyle(capsys.readouterr().err)
    assert said.count("Answer yes, no, diff, why, edit, quit, or with the first letter.") == 4
    assert said.startswith("yes / no / diff / why / edit / quit: ")


def test_a_change_is_shown_whole_before_the_question() -> None:
    person = Person("y")
    person.decide()
    assert person.text == (
        "\nReview P001 of Order: replace x = 1\n"
        "  why:      Two is better.\n"
        "  files:    agents/order.py\n"
        "  votes:    Stock accept, Mail reject, Judge accept (majority)\n"
        "  gate:     passed G0 G1; not run G6\n" + DIFF.rstrip("\n")
    )


def test_why_tells_everything_that_was_said_and_escapes_nothing_into_the_terminal() -> None:
    person = Person("why", "y")
    person.decide()
    for line in (
        "  Stock: accept, without a reason",
        "  Mail: reject, no␛[31m",
        "      concern: slow",
        "      evidence: test_x fails",
        "  Judge (ARBITER): accept, without a reason",
        "  G6 not run: The project has no tests.",
        "  contract: Order.place changes",
    ):
        assert line in person.text.splitlines()


def test_what_the_votes_rejected_is_shown_without_its_diff() -> None:
    person = Person("n")
    assert person.decide(agreed=None, reason="0 for, 2 against") == PersonDecision("no")
    assert "  rejected: 0 for, 2 against" in person.text
    assert "+x = 2" not in person.text


def test_a_long_diff_is_shown_only_on_request() -> None:
    person = Person("diff", "y")
    person.decide(diff=DIFF + "+more\n" * 100)
    asked, shown = person.text.split("  The diff has 105 lines: answer `diff` to see it.")
    assert "+more" not in asked
    assert shown.count("+more") == 100


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"reason": "G1: it does not parse"}, "  refused:  your text does not pass: G1: it does not parse"),
        (
            {
                "report": GateReport(
                    proposal_id="P001",
                    passed=True,
                    rungs=(),
                    removals=(Removal(method="Order.place", lost={"publishes": ("/Mail",)}),),
                )
            },
            "  removes:  Order.place no longer publishes /Mail.",
        ),
        ({"diff": ""}, "  The files already contain this change."),
    ],
    ids=["an edit was refused", "something is removed", "nothing is changed"],
)
def test_what_a_person_should_know_is_in_the_summary(fields: dict[str, Any], line: str) -> None:
    person = Person("y")
    person.decide(**fields)
    assert line in person.text.splitlines()


def test_without_a_terminal_there_is_no_reviewer(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphbus_core.cli.review import console_reviewer
    from graphbus_core.errors import UsageError

    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="GBE148"):
        console_reviewer(print)


# --- edit ------------------------------------------------------------------------------------


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def use(code: str) -> None:
        script = tmp_path / "editor.py"
        script.write_text(f"import sys\nfrom pathlib import Path\npath = Path(sys.argv[1])\n{code}\n", encoding="utf-8")
        monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")

    return use


def test_edit_opens_the_new_text_and_takes_what_is_left(editor: Callable[[str], None]) -> None:
    editor("assert path.name == 'order.py' and path.read_text() == 'x = 2\\n'\npath.write_text('x = 3\\n')")
    assert Person("e").decide() == PersonDecision("edit", texts={"agents/order.py": "x = 3\n"})


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "Nothing was changed."),
        ("sys.exit(3)", "The editor ended with exit status 3."),
        ("path.write_bytes(b'\\xff')", "The text could not be edited: "),
        ("path.unlink()", "The text could not be edited: "),
    ],
)
def test_an_edit_that_comes_to_nothing_asks_again(
    editor: Callable[[str], None], capsys: pytest.CaptureFixture[str], code: str, said: str
) -> None:
    editor(code)
    assert Person("e", "n").decide() == PersonDecision("no")
    assert said in capsys.readouterr().err


def test_without_an_editor_or_a_text_there_is_no_edit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    assert Person("e", "n").decide() == PersonDecision("no")
    assert "Set VISUAL or EDITOR" in capsys.readouterr().err
    monkeypatch.setenv("EDITOR", "there-is-no-such-editor")
    assert Person("e", "n").decide() == PersonDecision("no")
    assert "The text could not be edited" in capsys.readouterr().err


# --- the whole -------------------------------------------------------------------------------


@pytest.fixture
def defect(project: Callable[[Mapping[str, str]], Path]) -> Path:
    """A project in which the rules find one thing to fix."""
    return project(
        {
            "pyproject.toml": "[project]\nname = 'x'\n",
            "agents/order.py": """
                from graphbus_core import GraphBusNode


                class Order(GraphBusNode):
                    def place(self) -> None:
                        self.publish("/Order/Created", {"quantity": 1, "sku": "mug"})
                """,
            "agents/stock.py": """
                from graphbus_core import GraphBusNode, subscribe


                class Stock(GraphBusNode):
                    @subscribe("/Order/Created")
                    def on_order(self, event):
                        self.log(event["quantty"])
                """,
        }
    )


COMMAND = [sys.executable, "-m", "graphbus_core", "negotiate", "agents", "--review"]


@pytest.mark.slow
def test_review_without_a_terminal_is_refused_before_anything_happens(defect: Path) -> None:
    done = subprocess.run(COMMAND, cwd=defect, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "GBE148" in done.stderr
    assert not (defect / ".graphbus" / "negotiations").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "is_changed"), [("y", True), ("n", False), ("q", False)])
def test_a_person_at_a_terminal_decides(defect: Path, answer: str, is_changed: bool) -> None:
    before = (defect / "agents/stock.py").read_bytes()
    status, text = at_a_terminal(defect, answer)
    assert "Review P001 of Stock" in text
    assert ((defect / "agents/stock.py").read_bytes() != before) is is_changed, text
    assert status == 0, text
    if answer == "q":
        assert "ended in the review" in text


def at_a_terminal(folder: Path, answer: str) -> tuple[int, str]:
    """Run the command at a terminal and give the same answer to every question."""
    with TypingPerson(COMMAND[3:], folder) as person:
        while person.is_asked("quit: "):
            person.types(answer)
        return person.leaves(), person.seen
