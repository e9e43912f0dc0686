"""The numbered requirements of the protocol; the specification in docs/protocol/ lists them from here.

A number is never used for anything else, also after its requirement is withdrawn. Each requirement binds one side, so a breach of
it says who is wrong.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Side = Literal["program", "host", "both"]


class Requirement(NamedTuple):
    """One requirement.

    Attributes:
        side: Whom it binds: the program of an agent, GraphBus (the host), or both.
        text: The requirement, a sentence with MUST or MUST NOT.
        needs: The capability without which it does not concern a program; empty if it always does.
    """

    side: Side
    text: str
    needs: str = ""


class Section(NamedTuple):
    """Requirements that belong together: number -> text, and the capability that they need."""

    title: str
    texts: dict[str, str]
    needs: str = ""


SECTIONS = (
    Section(
        "Messages",
        {
            "GBNP-001": "Each message MUST be one JSON object on one line that ends with LF.",
            "GBNP-002": "A message MUST NOT be longer than 1,048,576 bytes, its LF included.",
            "GBNP-003": "A message MUST be UTF-8, without half of a surrogate pair in a string.",
            "GBNP-004": "A number MUST be finite, an integer MUST fit into 64 bits; NaN and Infinity are no numbers.",
            "GBNP-005": "An object MUST NOT contain the same name twice.",
            "GBNP-006": "Arrays and objects MUST NOT be nested more than 64 deep.",
            "GBNP-007": 'A message MUST have the member "jsonrpc" with the value "2.0".',
            "GBNP-008": "A program MUST send nothing but answers to requests.",
        },
    ),
    Section(
        "Requests and answers",
        {
            "GBNP-010": "The id of a request MUST be an integer that is larger than all earlier ids.",
            "GBNP-011": "The host MUST NOT send a request before the last one is answered.",
            "GBNP-012": "A program MUST answer each request, and MUST NOT end before its answer.",
            "GBNP-013": "A program MUST NOT answer a request twice, or when nothing was asked.",
            "GBNP-014": "An answer MUST have the id of the request.",
            "GBNP-015": 'An answer MUST have either "result" or "error", and not both.',
            "GBNP-016": 'An "error" MUST have an integer "code" and a string "message".',
            "GBNP-017": "The answer MUST arrive within the time limit of the host.",
            "GBNP-018": "A program MUST answer a method that it does not know with the error -32601.",
            "GBNP-019": "A program MUST ignore members of parameters that it does not know.",
        },
    ),
    Section(
        "Joining",
        {
            "GBNP-020": "The first message MUST be the request agent/hello, and no other is one.",
            "GBNP-021": 'The answer to agent/hello MUST have an integer "protocol" from 1 to that of the host.',
            "GBNP-022": 'The answer to agent/hello MUST repeat the name in "agent".',
            "GBNP-023": 'The answer to agent/hello MUST list its "capabilities" as strings.',
            "GBNP-024": "The host MUST NOT send a method or notification that is not among the capabilities.",
            "GBNP-025": "A program MUST answer each method although nothing but agent/hello was asked before.",
            "GBNP-026": "The parameters of a message MUST be valid under the schema.",
            "GBNP-027": "The result of agent/hello MUST be a Welcome.",
        },
    ),
    Section(
        "Analyses",
        {
            "GBNP-030": "The result of agent/analyze MUST be an Analysis.",
        },
        "analyze",
    ),
    Section(
        "Proposals",
        {
            "GBNP-040": 'The result of agent/propose MUST have "proposals", a list of Proposal.',
            "GBNP-041": '"src" of a proposal MUST be the name of the agent.',
            "GBNP-042": '"round" of a proposal MUST be that of the question.',
            "GBNP-043": 'There MUST NOT be more proposals than "limit".',
            "GBNP-044": '"proposal_id" MUST be unique in an answer, and not that of an earlier proposal.',
            "GBNP-045": '"parent" MUST be null except in a counter-proposal.',
            "GBNP-046": "Each change MUST name a file by its relative path with `/`, without `..`.",
            "GBNP-047": "Each change MUST be in a file of the agent, or of one that `dst` or `affects` names.",
            "GBNP-048": '"base_sha256" MUST be empty or 64 lowercase hexadecimal digits.',
        },
        "propose",
    ),
    Section(
        "Repairs",
        {
            "GBNP-050": 'The result of agent/repair MUST have "proposal", a Proposal or null.',
            "GBNP-051": "A repaired proposal MUST keep its proposal_id.",
        },
        "repair",
    ),
    Section(
        "Evaluations",
        {
            "GBNP-060": 'The result of agent/evaluate MUST have "evaluations", a list of ProposalEvaluation.',
            "GBNP-061": "An evaluation MUST be about one of the proposals in the question.",
            "GBNP-062": "There MUST NOT be two evaluations of one proposal.",
            "GBNP-063": '"evaluator" MUST be the name of the agent.',
            "GBNP-064": '"round" of an evaluation MUST be that of the question.',
            "GBNP-065": '"decision" MUST be accept, reject, counter or defer.',
            "GBNP-066": '"confidence" MUST be from 0 to 1.',
            "GBNP-067": 'A counter, and nothing else, MUST have a "counter_proposal" whose "parent" is what it counters.',
            "GBNP-068": 'A program MUST NOT set "is_verified" or "is_arbiter": the host decides about both.',
        },
        "evaluate",
    ),
    Section(
        "Arbitration",
        {
            "GBNP-070": 'The result of agent/arbitrate MUST have "evaluation", a ProposalEvaluation.',
            "GBNP-071": "The decision of an arbiter MUST be accept or reject.",
            "GBNP-072": 'The decision MUST be about the proposal in the question, with the agent as "evaluator".',
        },
        "arbitrate",
    ),
    Section(
        "Events and the end",
        {
            "GBNP-080": "A program MUST NOT answer a notification.",
            "GBNP-081": "After agent/bye was answered, a program MUST end with exit status 0.",
            "GBNP-082": "The host MUST NOT send anything after agent/bye.",
            "GBNP-083": "A program MUST end when its input ends.",
            "GBNP-084": 'A program MUST answer agent/bye with an object as "result".',
        },
    ),
)
_BOTH = ("Each message", "A message", "A number", "An object", "Arrays")


def _side_of(text: str) -> Side:
    """Return whom a requirement binds, by its first words."""
    if text.startswith(_BOTH):
        return "both"
    return "host" if text.startswith(("The host", "The id", "The first message", "The parameters")) else "program"


REQUIREMENTS: dict[str, Requirement] = {
    number: Requirement(_side_of(text), text, "events" if text.endswith("a notification.") else section.needs)
    for section in SECTIONS
    for number, text in section.texts.items()
}
"""Number -> requirement."""
