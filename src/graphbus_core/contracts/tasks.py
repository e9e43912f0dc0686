"""Remarks on the tasks of two builds: what changed in a task, whose messages fail, and the order of deploys in which none does.

    Messages x Messages --both_ways--> edges that break --> a remark for each task

`both_ways` finds which messages fail. This module names the reason, which is a difference of two signatures or of two names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from graphbus_core.contracts.both_ways import BothWays, Order, Problem, compare_both_ways
from graphbus_core.contracts.messages import PERHAPS, Consumer, Messages
from graphbus_core.contracts.misfits import fits

TaskVerdict = Literal["breaks", "unknown", "note"]
Change = Literal[
    "added", "required", "removed", "renamed", "by name", "order", "rest", "moved", "gone", "new", "send", "options"
]

_NARROWING: frozenset[Change] = frozenset({"required", "removed", "renamed", "by name", "order", "rest"})
"""The changes of a signature by which an old message can fail; `added` stands for a parameter with a default."""
_ROUTING = ("queue", "exchange", "routing_key", "serializer")
_RANK: Mapping[TaskVerdict, int] = {"breaks": 0, "unknown": 1, "note": 2}


class Difference(NamedTuple):
    """One difference of a task.

    Attributes:
        change: What it is.
        parameter: The parameter, in the new signature if it is there; empty for the whole task.
        text: One sentence without its full stop.
    """

    change: Change
    parameter: str
    text: str


class TaskRemark(NamedTuple):
    """A remark on one task.

    Attributes:
        task: Its name, in the old build if it has one there.
        verdict: `breaks`: messages fail. `unknown`: they may, and who sends them was not found. `note`: nothing fails by itself.
        differences: What changed.
        old: The task in the old build.
        new: The task in the new build, perhaps under another name.
        forward: Why messages of the old build fail in the new one.
        back: Why messages of the new build fail in the old one.
        order: The order of deploys in which none of them fails.
        plan: The order or the steps, in one to three sentences.
    """

    task: str
    verdict: TaskVerdict
    differences: tuple[Difference, ...]
    old: Consumer | None
    new: Consumer | None
    forward: tuple[Problem, ...] = ()
    back: tuple[Problem, ...] = ()
    order: Order = "any"
    plan: str = ""


class TaskComparison(NamedTuple):
    """The comparison of the tasks of two builds.

    Attributes:
        remarks: Those that break first.
        both_ways: The comparison of their messages.
        messages: The old and the new ones.
    """

    remarks: tuple[TaskRemark, ...]
    both_ways: BothWays
    messages: tuple[Messages, Messages]

    @property
    def is_breaking(self) -> bool:
        """True if messages fail."""
        return any(each.verdict == "breaks" for each in self.remarks)

    @property
    def is_known(self) -> bool:
        """True if nothing stayed unknown."""
        return not any(each.verdict == "unknown" for each in self.remarks) and not any(
            each.unread for each in self.messages
        )


def compare_tasks(old: Messages, new: Messages) -> TaskComparison:
    """Compare the tasks of two builds and what is sent to them."""
    found = compare_both_ways(old, new)
    problems: dict[str, list[Problem]] = {}
    for edge in found.edges:
        problems.setdefault(edge.channel, []).extend(each for each in edge.problems if each.is_new)
    comparing = _Comparing(old, new, problems)
    remarks = sorted(comparing.remarks(), key=lambda each: (_RANK[each.verdict], each.task))
    return TaskComparison(tuple(remarks), found, (old, new))


class _Comparing:
    """The comparison of two builds, task by task; `problems` are those of the messages for each task."""

    def __init__(self, old: Messages, new: Messages, problems: Mapping[str, list[Problem]]) -> None:
        self._old = {each.channel: each for each in old.consumers}
        self._new = {each.channel: each for each in new.consumers}
        self._sent = [{each.channel for each in side.producers} for side in (old, new)]
        self._unread = [
            {each.span.path for each in side.unread if each.is_file and each.span.path.endswith(".py")}
            for side in (old, new)
        ]
        self._producers = old.producers, new.producers
        self._problems = problems
        self._moved = self._find_moved(old, new)

    def remarks(self) -> Iterator[TaskRemark]:
        """Yield the remarks on all tasks that differ."""
        for name in sorted(self._old.keys() | self._new.keys()):
            old, new = self._old.get(name), self._new.get(name)
            if old and new:
                yield from self._remark_on_change(old, new)
            elif old and old.span.path not in self._unread[1]:
                yield self._remark_on_gone(old, self._new.get(self._moved.get(name, "")))
            elif new and new.span.path not in self._unread[0] and self._is_new(name):
                yield self._remark_on_new(new)

    # --- a task that both builds have -----------------------------------------------------------------

    def _remark_on_change(self, old: Consumer, new: Consumer) -> Iterator[TaskRemark]:
        differences = tuple(find_differences(old, new))
        forward, back = self._breaks(old.channel, "forward"), self._breaks(old.channel, "back")
        if (forward or back) and (hidden := _hidden_by(old, new)):
            plan = f"{hidden}. If the task takes less than before, let it accept both first."
            yield TaskRemark(old.channel, "unknown", differences, old, new, plan=plan)
        elif wrong := self._find_wrong_send(forward, back, new):
            plan = "Correct this send; no order of deploys helps."
            yield TaskRemark(old.channel, "breaks", (*differences, wrong), old, new, forward, back, "none", plan)
        elif forward or back:
            order = _order_of(forward, back)
            plan = _plan_for(order, differences, back)
            yield TaskRemark(old.channel, "breaks", differences, old, new, forward, back, order, plan)
        elif any(each.change in _NARROWING for each in differences):
            yield from self._remark_on_unseen(old, new, differences)
        elif routing := [each for each in differences if each.change == "options"]:
            yield TaskRemark(old.channel, "note", tuple(routing), old, new, plan=_ROUTING_PLAN)

    def _find_wrong_send(
        self, forward: Sequence[Problem], back: Sequence[Problem], task: Consumer
    ) -> Difference | None:
        """Return the difference if what the new build sends fails in the new build as well: the send is new, or was forgotten."""
        wrong = [each for each in self._producers[1] if each.channel == task.channel and not fits(each, task)]
        if any(each.span == problem.sent_at for each in wrong for problem in back):
            return Difference("send", "", "a new send fits neither the old nor the new task")
        failing = {each.sent_at for each in forward}
        old = [(each.name, each.given, each.positional) for each in self._producers[0] if each.span in failing]
        left = [each.span for each in wrong if (each.name, each.given, each.positional) in old]
        return (
            Difference("send", "", f"the send at {left[0].path}:{left[0].line} does not fit it now") if left else None
        )

    def _remark_on_unseen(
        self, old: Consumer, new: Consumer, differences: tuple[Difference, ...]
    ) -> Iterator[TaskRemark]:
        """Yield a remark on a task that takes less than before, if no send was found of which all arguments are known."""
        doubt = ""
        if any(each.verdict == "unknown" for each in self._problems.get(old.channel, ())):
            doubt = "Not all arguments that are sent are known"
        elif old.channel not in self._sent[0]:
            doubt = "No send was found here"
        elif perhaps := [
            each.span for each in self._producers[0] if not each.channel and fits(each, old) and not fits(each, new)
        ]:
            doubt = f"{perhaps[0].path}:{perhaps[0].line} sends to a task that is computed, which may be this one"
        if doubt:
            plan = f"{doubt}. If something sends it as before, let the task accept both first."
            yield TaskRemark(old.channel, "unknown", differences, old, new, plan=plan)

    def _breaks(self, task: str, way: Literal["forward", "back"]) -> tuple[Problem, ...]:
        found = (each for each in self._problems.get(task, ()) if each.verdict == "breaks" and way in each.ways)
        return tuple(dict.fromkeys(found))

    # --- a task that only one build has --------------------------------------------------------------

    def _remark_on_gone(self, old: Consumer, new: Consumer | None) -> TaskRemark:
        """Return the remark on a task that is no longer there, or has another name now."""
        forward = self._breaks(old.channel, "forward")
        certain = {each.span for each in self._producers[0] if each.channel == old.channel and each.how not in PERHAPS}
        is_certain = any(each.sent_at in certain for each in forward)
        verdict: TaskVerdict = "breaks" if is_certain else "unknown" if forward else "note"
        if new is None:
            is_sent = old.channel in self._sent[1]
            gone = Difference("gone", "", "was removed, and is sent still" if is_sent else "was removed")
            plan = _GONE_PLAN if forward else "No send of it was found here; make sure that nothing else sends it."
            plan = "Remove the sends as well, or keep the task." if is_sent else plan
            if forward and not is_certain:
                place = forward[0].sent_at
                plan = f"{place.path}:{place.line} gave it to other code, which may have sent it. {_GONE_PLAN}"
                forward = ()
            if self._unread[1] - self._unread[0]:
                verdict, plan = "unknown", "It may be in a file that cannot be read."
            return TaskRemark(old.channel, verdict, (gone,), old, None, forward, order="writers first", plan=plan)
        back = self._breaks(new.channel, "back")
        is_derived = "name" not in new.options
        why = "its name comes from its module and function" if is_derived else "its `name` changed"
        moved = Difference("moved", "", f"is called {new.channel} now, because {why}")
        differences = (moved, *find_differences(old, new))
        rest = "then compare again" if any(each.change in _NARROWING for each in differences) else "and nothing fails"
        plan = f'Set `name="{old.channel}"` on it, {rest}. Or keep a task under the old name until no message is left.'
        return TaskRemark(old.channel, verdict, differences, old, new, forward, back, "two steps", plan)

    def _remark_on_new(self, new: Consumer) -> TaskRemark:
        added = Difference("new", "", "is new, and sent already")
        return TaskRemark(new.channel, "note", (added,), None, new, order="readers first", plan=_NEW_PLAN)

    def _is_new(self, name: str) -> bool:
        """True for a task of the new build that it sends, and that had no other name before."""
        return name in self._sent[1] and name not in self._moved.values()

    def _find_moved(self, old: Messages, new: Messages) -> dict[str, str]:
        """Return old name -> new name of tasks that were moved or renamed.

        They have the same function in another module, or the same signature and file.
        """
        gone = {name: each for name, each in self._old.items() if name not in self._new}
        added = {name: each for name, each in self._new.items() if name not in self._old}
        found: dict[str, str] = {}
        for is_same in (_is_same_function, _is_same_signature):
            for name, each in gone.items():
                like = [
                    other for other in added.values() if is_same(each, other) and other.channel not in found.values()
                ]
                if name not in found and len(like) == 1:
                    found[name] = like[0].channel
        return found


def _hidden_by(old: Consumer, new: Consumer) -> str:
    """Return why the signatures of a task may not be what it takes; empty if they are."""
    was, now = (each.options.get("decorators", "") for each in (old, new))
    if not (old.is_whole and new.is_whole):
        return f"The decorator {now or was} changes what it takes"
    return f"Its decorators changed, too, which may change what it takes: {now or was}" if was != now else ""


def _is_same_function(old: Consumer, new: Consumer) -> bool:
    return old.channel.rpartition(".")[2] == new.channel.rpartition(".")[2]


def _is_same_signature(old: Consumer, new: Consumer) -> bool:
    return (
        old.span.path == new.span.path
        and bool(old.wanted.fields)
        and (old.wanted, old.positions) == (new.wanted, new.positions)
    )


# --- two signatures --------------------------------------------------------------------------------


def find_differences(old: Consumer, new: Consumer) -> Iterator[Difference]:
    """Yield the differences of two signatures: their parameters, then what else messages depend on."""
    was, now = ({each.name: each.required for each in side.wanted.fields} for side in (old, new))
    renamed = _find_renamed(old, new)
    for name in (each for each in was if each not in now and each not in renamed):
        yield Difference("removed", name, f"`{name}` was removed")
    for name, other in renamed.items():
        yield Difference("renamed", other, f"`{name}` was renamed to `{other}`")
    for name in (each for each in now if each not in was and each not in renamed.values()):
        yield _describe_added(new, name)
    for name in (each for each in now if now[each] and not was.get(each, True)):
        yield Difference("required", name, f"`{name}` lost its default")
    for name in (each for each in old.positions if each in now and each not in new.positions):
        yield Difference("by name", name, f"`{name}` can only be passed by name now")
    yield from _find_reordered(old, new, renamed)
    yield from _find_other_differences(old, new)


def _find_other_differences(old: Consumer, new: Consumer) -> Iterator[Difference]:
    """Yield the differences of `*args`, `**kwargs` and the options that say where messages wait."""
    if new.is_closed and not old.is_closed:
        yield Difference("rest", "**kwargs", "`**kwargs` was removed")
    if old.takes_rest and not new.takes_rest:
        yield Difference("rest", "*args", "`*args` was removed")
    for option in _ROUTING:
        before, after = old.options.get(option, "the default"), new.options.get(option, "the default")
        if before != after:
            yield Difference("options", option, f"its {option} was {before}, is {after} now")


def _find_renamed(old: Consumer, new: Consumer) -> dict[str, str]:
    """Return old name -> new name of the parameters that have another name at the same position, or alone by name."""
    was, now = ({each.name for each in side.wanted.fields} for side in (old, new))
    pairs = [*zip(old.positions, new.positions, strict=False)]
    by_name = [[each.name for each in side.wanted.fields if each.name not in side.positions] for side in (old, new)]
    gone, added = (
        [name for name in names if name not in others] for names, others in zip(by_name, (now, was), strict=True)
    )
    if len(gone) == len(added) == 1:
        pairs.append((gone[0], added[0]))
    return {before: after for before, after in pairs if before not in now and after not in was}


def _describe_added(new: Consumer, name: str) -> Difference:
    is_required = any(each.name == name and each.required for each in new.wanted.fields)
    rest = new.positions[new.positions.index(name) + 1 :] if name in new.positions else ()
    place = f" before `{rest[0]}`" if rest else ""
    default = "without a default" if is_required else "with a default"
    return Difference("required" if is_required else "added", name, f"`{name}` was added{place} {default}")


def _find_reordered(old: Consumer, new: Consumer, renamed: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the difference if parameters that both signatures have by position come in another order."""
    before = [renamed.get(name, name) for name in old.positions]
    shared = [name for name in before if name in new.positions]
    after = [name for name in new.positions if name in shared]
    if shared != after:
        yield Difference("order", after[0], f"the order changed from ({', '.join(shared)}) to ({', '.join(after)})")


# --- plans --------------------------------------------------------------------------------------

_DRAIN = "wait until no old message and no retry is left"
_GONE_PLAN = f"Deploy the removal of the sends first and {_DRAIN}; remove the task after that."
_NEW_PLAN = "Deploy the workers first: a worker that does not know the task throws its messages away."
_ROUTING_PLAN = (
    "Let workers read the old and the new queue until the old one is empty, and roll back only while both are read."
)


def _order_of(forward: Sequence[Problem], back: Sequence[Problem]) -> Order:
    if any(each.is_mixed_up for each in (*forward, *back)) or (forward and back):
        return "two steps"
    return "writers first" if forward else "readers first"


def _plan_for(order: Order, differences: Sequence[Difference], back: Sequence[Problem]) -> str:
    """Return the order of deploys, or the two steps, for a task whose signature changed."""
    if order == "readers first":
        return "Deploy the workers first, then the code that sends; roll back in the opposite order."
    if order == "writers first":
        return f"Deploy the code that sends first and {_DRAIN}; then deploy the workers."
    return f"No order of deploys is safe. In two steps: {_steps_for(differences)}"


def _steps_for(differences: Sequence[Difference]) -> str:
    """Return the two steps for the differences of a signature; the first kind that is among them decides."""
    named: dict[Change, str] = {}
    for each in differences:
        named.setdefault(each.change, each.parameter)
    if "order" in named:
        return f"first pass the values by name in every send, deploy that and {_DRAIN}; then change the order."
    if "renamed" in named:
        old, new = _names_of_renamed(differences)
        both = f"first let the task take `{old}=None` and `{new}=None`"
        return f"{both}; send `{new}` when all workers have that, and drop `{old}` when no old message is left."
    if "required" in named:
        default = f"first give `{named['required']}` a default and deploy that to all workers"
        return f"{default}; send it with the next deploy, and drop the default after that."
    if "removed" in named:
        default = f"first give `{named['removed']}` a default and deploy that to all workers"
        return f"{default}; then stop sending it, and remove it when no old message is left."
    return (
        "first let the task accept both forms and deploy that to all workers; send the new form with the next deploy."
    )


def _names_of_renamed(differences: Sequence[Difference]) -> tuple[str, str]:
    found = next(each for each in differences if each.change == "renamed")
    return found.text.split("`")[1], found.parameter


def signature_of(task: Consumer) -> str:
    """Return `charge(order_id, amount=..., *, currency)`."""
    required = {each.name: each.required for each in task.wanted.fields}
    listed = [name if required.get(name, True) else f"{name}=..." for name in task.positions]
    only_by_name = [each for each in task.wanted.fields if each.name not in task.positions]
    listed += ["*args"] if task.takes_rest else ["*"] if only_by_name else []
    listed += [each.name if each.required else f"{each.name}=..." for each in only_by_name]
    listed += [] if task.is_closed else ["**kwargs"]
    return f"{task.channel.rpartition('.')[2]}({', '.join(listed)})"
