"""One step of the negotiation in the making, and what may become of a proposal. Pure."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from graphbus_core.model.proposals import Status
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.protocol import (
    Announcement,
    Case,
    Command,
    ProposalRejected,
    ProtocolError,
    Question,
    State,
    Step,
    key_of,
)

MOVES: dict[Status, frozenset[Status]] = {
    "pending": frozenset({"refused", "accepted", "rejected", "countered", "deferred", "superseded"}),
    "countered": frozenset({"pending", "superseded"}),
    "deferred": frozenset({"pending", "superseded"}),
    "accepted": frozenset(),
    "rejected": frozenset(),
    "refused": frozenset(),
    "superseded": frozenset(),
}
"""What may become of a proposal. A status without successors is decided, once and for all."""


def is_decided(case: Case) -> bool:
    """Tell whether a proposal's story is over."""
    return not MOVES[case.status]


class Turn:
    """One step in the making: the state that becomes the next one, and the commands so far."""

    def __init__(self, state: State) -> None:
        self.state = replace(state, cases=dict(state.cases))
        self.commands: list[Command] = []

    @property
    def cases(self) -> dict[str, Case]:
        """The cases of the state in the making, in the order of their numbers."""
        return self.state.cases

    def set(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def change(self, case: Case, **changes: Any) -> Case:
        """Replace fields of a case, its status excepted."""
        changed = replace(case, **changes)
        self.cases[case.proposal_id] = changed
        return changed

    def move(self, case: Case, status: Status, **changes: Any) -> Case:
        """Give a case its next status.

        Raises:
            ProtocolError: `MOVES` does not allow it: the engine broke the protocol.
        """
        if status not in MOVES[case.status]:
            raise ProtocolError("engine", f"{case.proposal_id} is {case.status} and cannot become {status}")
        return self.change(case, status=status, **changes)

    def close(self, case: Case, status: Status, reason: str) -> None:
        """Decide a proposal against a change."""
        self.move(case, status, refusal=reason)
        count = votes.tally(case.evaluations)
        self.tell(ProposalRejected(case.proposal_id, status, count.accepts, count.rejects, count.abstains, reason))

    def ask(self, question: Question) -> None:
        """Put a question whose reply will be awaited."""
        self.commands.append(question)
        self.set(awaited=(*self.state.awaited, key_of(question)))

    def tell(self, announcement: Announcement) -> None:
        """Announce a fact."""
        self.commands.append(announcement)

    def ready(self) -> list[Case]:
        """Give the pending proposals whose dependencies are in the workspace, in the order of their numbers."""
        cases = self.cases
        return [
            case
            for case in cases.values()
            if case.status == "pending" and all(cases[name].status == "accepted" for name in case.proposal.dependencies)
        ]

    def done(self) -> Step:
        """Give the step as it stands."""
        return Step(self.state, tuple(self.commands))
