"""`--review`: show each change to a person before it is committed, and ask. If the input ends, the answer is `quit`.

Review P001 of OrderProcessor: Refuse negative prices
  why:      A negative price would make the total wrong.
  votes:    InventoryService accept, NotificationService accept (unanimous)
  gate:     passed G0 G1 G2 G3 G4 G5; not run G6
... the diff ...
yes / no / diff / why / edit / quit:
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, sanitize_line, style
from graphbus_core.errors import UsageError
from graphbus_core.negotiation.commit_message import gate_summary
from graphbus_core.negotiation.session_workspace import PersonDecision, ReviewSheet

_ANSWERS = ("yes", "no", "diff", "why", "edit", "quit")
_SHOWN_LINES = 80


def console_reviewer(write: Callable[[str], None]) -> ConsoleReviewer:
    """Return a reviewer that asks at the terminal.

    Args:
        write: Prints a line of the change under review; the questions go to stderr.

    Raises:
        UsageError: GBE148, there is no terminal.
    """
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("GBE148")
    return ConsoleReviewer(write, sys.stdin.readline)


class ConsoleReviewer:
    """Asks a person about each change until the answer is a verdict.

    Args:
        read: Returns the next line of input; empty at its end.
    """

    def __init__(self, write: Callable[[str], None], read: Callable[[], str]) -> None:
        self._write = write
        self._read = read

    def decide(self, sheet: ReviewSheet) -> PersonDecision:
        """Show a change, and return the verdict of the person: yes, no, edit with new texts, or quit."""
        self._write_lines(_summary_lines(sheet))
        if sheet.agreed:  # the diff of a rejected change is shown only on request
            self._write_diff(sheet, _SHOWN_LINES)
        while not (decision := self._ask_once(sheet)):
            pass
        return decision

    def _write_lines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._write(line)

    def _ask_once(self, sheet: ReviewSheet) -> PersonDecision | None:
        """Ask once, and return the verdict. After `diff`, `why`, a failed edit or an unknown answer, return None."""
        console.print_note(f"{style(' / '.join(_ANSWERS), 'strong')}: ", end="")
        line = self._read()
        if not line:
            return PersonDecision("quit", "the input ended")
        answer, _, reason = line.strip().partition(" ")
        word = next((word for word in _ANSWERS if answer and answer.lower() in (word, word[0])), "")
        if word in {"yes", "no", "quit"}:
            return PersonDecision(word, reason.strip())  # type: ignore[arg-type] # these three are verdicts
        if word == "edit":
            return _let_person_edit(sheet)
        if word == "diff":
            self._write_diff(sheet)
        elif word == "why":
            self._write_lines(_reason_lines(sheet))
        else:
            console.print_note(f"Answer {', '.join(_ANSWERS)}, or with the first letter.")
        return None

    def _write_diff(self, sheet: ReviewSheet, most: int = 0) -> None:
        """Write the diff, or only its length if it has more than `most` lines; 0 means no limit."""
        count = sheet.diff.count("\n")
        if most and count > most:
            self._write(style(f"  The diff has {count} lines: answer `diff` to see it.", "dim"))
        else:
            console.print_diff(sheet.diff or "  The files already contain this change.\n", self._write)


def _summary_lines(sheet: ReviewSheet) -> Iterator[str]:
    """Yield the title, reason, files, votes and gate report of a change, and why it or an edited text was refused."""
    proposal = sheet.review.proposal
    title = sanitize_line(proposal.title or proposal.intent.replace("_", " "))
    yield ""
    yield f"{style(f'Review {proposal.proposal_id}', 'strong')} of {style(sanitize(proposal.src), 'name')}: {title}"
    if proposal.reason:
        yield _labelled_line("why", sanitize_line(proposal.reason))
    yield _labelled_line("files", sanitize(", ".join(proposal.files)))
    last = {vote.agent: vote.decision for vote in sheet.evaluations}
    votes = sanitize(", ".join(f"{name} {decision}" for name, decision in last.items())) or "none"
    yield _labelled_line("votes", f"{votes} ({sheet.agreed or 'rejected'})")
    yield _labelled_line("gate", sanitize(gate_summary(sheet.review.report)))
    for text in sheet.review.report.removed:
        yield _labelled_line("removes", style(sanitize_line(text), "warn"))
    if sheet.agreed is None:
        yield _labelled_line("rejected", style(sanitize_line(sheet.reason), "warn"))
        yield style("  The change passed the gate, so you may still accept it.", "dim")
    elif sheet.reason:
        yield _labelled_line("refused", style(f"your text does not pass: {sanitize_line(sheet.reason)}", "warn"))


def _labelled_line(label: str, text: str) -> str:
    return f"  {label + ':':<10}{text}"


def _reason_lines(sheet: ReviewSheet) -> Iterator[str]:
    """Yield all reasons, votes and results of the gate for a change."""
    proposal, report = sheet.review.proposal, sheet.review.report
    yield _labelled_line("intent", sanitize_line(proposal.intent))
    yield _labelled_line("why", sanitize_line(proposal.reason) or "no reason was given")
    for vote in sheet.evaluations:
        reason = sanitize_line(vote.reasoning) or "without a reason"
        yield f"  {style(sanitize(vote.evaluator), 'name')}: {vote.decision}, {reason}"
        proven = (item.detail or item.text for item in vote.evidence if item.is_verified)
        yield from (f"      concern: {sanitize_line(concern)}" for concern in vote.concerns)
        yield from (f"      evidence: {sanitize_line(text)}" for text in proven)
    for rung in report.rungs:
        yield f"  {rung.rung} {rung.status.replace('_', ' ')}{f': {sanitize_line(rung.message)}' if rung.message else ''}"
    yield from (_labelled_line("contract", f"{sanitize(change.method)} changes") for change in report.schema_changes)


def _let_person_edit(sheet: ReviewSheet) -> PersonDecision | None:
    """Open the changed files in the editor of the person, and return the new texts as a decision.

    None if no editor is set, it failed, or nothing was changed; a note then says so.
    """
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        console.print_note("Set VISUAL or EDITOR to your editor, e.g. `export EDITOR=nano`.")
        return None
    with tempfile.TemporaryDirectory(prefix="graphbus-review-") as folder:
        places = {path: Path(folder, str(number), Path(path).name) for number, path in enumerate(sheet.texts)}
        try:
            for path, place in places.items():
                place.parent.mkdir()
                place.write_text(sheet.texts[path], encoding="utf-8", newline="\n")
            status = subprocess.run([*command, *map(str, places.values())], check=False).returncode
            texts = {path: place.read_text(encoding="utf-8") for path, place in places.items()}
        except (OSError, UnicodeDecodeError) as reason:
            console.print_note(sanitize(f"The text could not be edited: {reason}."))
            return None
    if status or texts == dict(sheet.texts):
        console.print_note(f"The editor ended with exit status {status}." if status else "Nothing was changed.")
        return None
    return PersonDecision("edit", texts=texts)
