"""Who voted what, file by file what became of it, and what it has cost: the tables of a report."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.cli.negotiating.live import counted
from graphbus_core.cli.report.diffs import diffs_of
from graphbus_core.cli.report.markup import Child, Markup, element, together
from graphbus_core.cli.report.proposals import badge
from graphbus_core.cli.report.story import DECISIONS, STATUSES, Case, Story
from graphbus_core.model.proposals import ProposalEvaluation, VoteDecision
from graphbus_core.model.spending import dollars

_LETTERS: dict[VoteDecision, str] = {"accept": "A", "reject": "R", "counter": "C", "defer": "D", "abstain": "–"}


def table(name: str, head: tuple[str, ...], rows: Child, *, foot: Child = None, numbers: bool = False) -> Markup:
    """Give a table in a box that scrolls by itself; with `numbers` all columns but the first are numbers."""
    titles = element("tr", (element("th", title, scope="col") for title in head))
    whole = element(
        "table",
        element("thead", titles),
        element("tbody", rows),
        element("tfoot", foot) if foot else None,
        class_="numbers" if numbers else None,
    )
    return element("div", whole, class_="scroll", role="region", tabindex=0, aria_label=name)


# --- files -------------------------------------------------------------------------------------


def files(story: Story) -> Markup:
    """Give every file that accepted proposals changed, with the size of the change."""
    changed: dict[str, list[tuple[Case, int, int]]] = {}
    for case in story.cases:
        if case.record.commit:
            for diff in diffs_of(case.record):
                changed.setdefault(diff.path, []).append((case, diff.count("+"), diff.count("-")))
    if not changed:
        return together()
    return table(
        "Changed files", ("Changed file", "Lines", "By"), (_file(path, changed[path]) for path in sorted(changed))
    )


def lines_changed(story: Story) -> str:
    """Give the size of all accepted changes in words."""
    diffs = [diff for case in story.cases if case.record.commit for diff in diffs_of(case.record)]
    added, removed = (sum(diff.count(sign) for diff in diffs) for sign in ("+", "-"))
    return f"{counted(added, 'line')} added, {removed} removed" if diffs else "nothing was written"


def _file(path: str, changes: list[tuple[Case, int, int]]) -> Markup:
    added, removed = sum(added for _, added, _ in changes), sum(removed for *_, removed in changes)
    links = ((element("a", case.name, href=f"#{case.anchor}"), " ") for case, *_ in changes)
    counts = (element("ins", f"+{added}"), " ", element("del", f"−{removed}"))
    return element(
        "tr",
        element("th", element("code", path), scope="row"),
        element("td", counts, class_="counts"),
        element("td", links),
    )


# --- votes -------------------------------------------------------------------------------------


def votes(story: Story) -> Markup:
    """Give the matrix: a row for each agent that had a voice, a column for each proposal."""
    voters = {vote.evaluator for case in story.cases for vote in case.votes}
    if not voters:
        return element("p", "Nobody voted.", class_="quiet")
    proposers = {case.proposal.src for case in story.cases}
    rows = [name for name in story.agents if name in voters | proposers]
    by_case = [{vote.evaluator: vote for vote in case.votes} for case in story.cases]
    head = element(
        "tr",
        element("th", "Agent", scope="col"),
        (
            element("th", element("a", case.name, href=f"#{case.anchor}", title=case.title), scope="col")
            for case in story.cases
        ),
    )
    body = (element("tr", _voices(story, name, by_case)) for name in rows)
    results = element(
        "tr",
        element("th", "Outcome", scope="row"),
        (element("td", badge(case.record.status)) for case in story.cases),
    )
    whole = element("table", element("thead", head), element("tbody", body), element("tfoot", results), class_="matrix")
    box = element("div", whole, class_="scroll", role="region", tabindex=0, aria_label="Votes of agents on proposals")
    legend = (
        element("li", element("span", letter, class_=f"vote {decision}"), DECISIONS[decision].lower())
        for decision, letter in _LETTERS.items()
    )
    others = (
        element("li", element("span", "P", class_="vote own"), "its own proposal"),
        element("li", "§ arbiter, ! veto with verified evidence"),
    )
    return together(box, element("ul", legend, others, class_="legend"))


def _voices(story: Story, name: str, by_case: list[dict[str, ProposalEvaluation]]) -> Iterator[Markup]:
    yield element("th", name, scope="row")
    for case, said in zip(story.cases, by_case, strict=True):
        yield element("td", _voice(case, name, said.get(name)))


def _voice(case: Case, name: str, vote: ProposalEvaluation | None) -> Markup:
    if vote is None:
        is_own = name == case.proposal.src
        return element("span", "P", class_="vote own", title="its own proposal") if is_own else together()
    sign = ("§" if vote.is_arbiter else "") + ("!" if any(evidence.is_verified for evidence in vote.evidence) else "")
    text = f"{name} on {case.name}: {DECISIONS[vote.decision].lower()}{' as arbiter' if vote.is_arbiter else ''}"
    letter = element("span", f"{_LETTERS[vote.decision]}{sign}", aria_hidden="true")
    return element("span", letter, element("span", text, class_="unseen"), class_=f"vote {vote.decision}", title=text)


# --- cost --------------------------------------------------------------------------------------


def cost(story: Story) -> Markup:
    """Give tokens and dollars, in total and for each proposal; of a session without models one sentence."""
    spent = story.record.spent
    if story.was_free:
        asked = f" Agents answered {counted(spent.calls, 'question')}." if spent.calls else ""
        return element("p", f"No model was asked: nothing left the machine and nothing was spent.{asked}")
    usage = spent.usage
    fresh = usage.input_tokens - usage.cache_read_tokens
    rows = (
        ("Questions answered", spent.calls, "by rules or by a model"),
        (
            "Requests to models",
            spent.requests,
            f"{spent.cached:,} of them answered from a cache or a record of this machine",
        ),
        (
            "Input tokens",
            usage.input_tokens,
            f"{fresh:,} new, {usage.cache_read_tokens:,} read from the provider's cache",
        ),
        ("Written to the cache", usage.cache_write_tokens, "input tokens that the provider keeps for later requests"),
        ("Output tokens", usage.output_tokens, "the answers, thinking included"),
        ("All tokens", usage.total_tokens, "input and output"),
    )
    body = [_spent(title, f"{number:,}", text) for title, number, text in rows]
    unpriced = f"without {counted(spent.unpriced, 'request')} whose price is not known" if spent.unpriced else ""
    total = _spent("Dollars", dollars(spent.cost_usd), unpriced)
    return together(
        table("What the session has cost", ("What", "How much", "Of this"), body, foot=total), _by_proposal(story)
    )


def _spent(title: str, number: str, text: str) -> Markup:
    return element(
        "tr",
        element("th", title, scope="row"),
        element("td", number, class_="number"),
        element("td", text, class_="quiet"),
    )


def _by_proposal(story: Story) -> Markup:
    costs, total = story.record.costs, story.record.spent.cost_usd
    if not costs:
        return together()
    most = max(*costs.values(), total - sum(costs.values()), 0.000001)
    rows = [
        _priced(
            element("a", case.name, href=f"#{case.anchor}"),
            case.title,
            costs[case.name],
            most,
            STATUSES[case.record.status],
        )
        for case in story.cases
        if case.name in costs
    ]
    others = total - sum(costs.get(case.name, 0.0) for case in story.by_name.values())
    if others >= 0.00005:
        rows.append(_priced("Other", "analysis, and questions about no one proposal", others, most, ""))
    head = ("Proposal", "Dollars", "", "What", "Outcome")
    sum_ = element(
        "tr",
        element("th", "Total", scope="row"),
        element("td", dollars(total), class_="number"),
        element("td", colspan=3),
    )
    return together(element("h3", "By proposal"), table("Cost by proposal", head, rows, foot=sum_))


def _priced(name: Child, title: str, amount: float, most: float, status: str) -> Markup:
    bar = element("rect", width=max(round(96 * amount / most), 1), height=8, rx=2)
    drawn = element("svg", bar, class_="bar", width=96, height=8, viewBox="0 0 96 8", aria_hidden="true")
    return element(
        "tr",
        element("th", name, scope="row"),
        element("td", dollars(amount), class_="number"),
        element("td", drawn),
        element("td", title),
        element("td", status),
    )
