"""What a session says about a model, in figures, and what must never happen, whatever the model answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from graphbus_core.model.proposals import ProposalRecord
from scripts.live.recorder import Exchange
from scripts.live.session import FOREIGN_KEY, OWN_KEY, LiveSession

ROLES = {
    "proposer": ("analyze", "propose", "repair"),
    "evaluator": ("evaluate",),
    "arbiter": ("arbitrate",),
}
"""Role -> its tasks, in the words of the prompts."""
_DONE, _NEGOTIATION_FAILED = 0, 5
_TASK = re.compile(r"^# Your task: (\w+)", re.MULTILINE)
_EXAMPLE = re.compile(r"^````\w*\n(.*?)^````$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^[a-z ]+: (.*)$", re.MULTILINE)
_ECHO_CHARS = 16
"""A shorter line of an example, such as `risk: high`, may also be the model's own."""
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
"""At the beginning of a line: what tried code prints is shown behind a bar."""
_UNUSABLE = re.compile(r"\[GBE46[013]\]")
"""The reason of an agent that has been answered, and could use no answer."""
_DIFFERENCE = "[GBE424]"
_NOT_REPEATABLE = {"manual", "error"}


class Share(NamedTuple):
    """How many of all."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part} of {self.whole}"


# --- figures ---------------------------------------------------------------------------------------


def make_table(session: LiveSession) -> list[tuple[str, str]]:
    """Return the figures of a session, as rows of a name and a text."""
    answered = [exchange for exchange in session.exchanges if exchange.is_answered]
    tokens_in, tokens_out = (
        sum(getattr(each, name) for each in answered) for name in ("input_tokens", "output_tokens")
    )
    longest = max((exchange.input_tokens for exchange in answered), default=0)
    seconds = sum(exchange.seconds for exchange in answered)
    speed = f", {tokens_out / seconds:.1f} tokens of answer a second" if seconds else ""
    completed = session.record.negotiations.completed if session.record else ()
    results = count_gate_results(session)
    return [
        ("ended by", _describe_ending(session)),
        *((f"usable answers, {role}", text) for role, text in _describe_usable(session).items()),
        ("cut off answers", str(Share(sum(exchange.finish == "length" for exchange in answered), len(answered)))),
        ("echoed examples", str(Share(count_echoes(answered), len(answered)))),
        ("checked by the gate", f"{sum(results.values())}{_list_counts(results)}"),
        ("accepted changes", str(len(completed))),
        ("tokens", f"{tokens_in:,} in (longest prompt {longest:,}), {tokens_out:,} out"),
        ("seconds", f"{session.build.seconds:.0f}{speed}"),
    ]


def _describe_ending(session: LiveSession) -> str:
    if session.record is None:
        return f"exit status {session.build.status}, without a record"
    ending = session.record.negotiations.ending
    return f"{ending.reason.replace('_', ' ')} in round {ending.rounds_executed}, exit status {session.build.status}"


def _describe_usable(session: LiveSession) -> dict[str, str]:
    """Return role -> its usable answers, with those of each task if it has several."""
    by_task = count_usable(session)
    described = {}
    for role, tasks in ROLES.items():
        shares = {task: by_task[task] for task in tasks if task in by_task}
        if shares:
            whole = Share(*(sum(numbers) for numbers in zip(*shares.values(), strict=True)))
            listed = ", ".join(f"{task} {share}" for task, share in shares.items()) if len(tasks) > 1 else ""
            described[role] = f"{whole}{f' ({listed})' if listed else ''}"
    return described


def count_usable(session: LiveSession) -> dict[str, Share]:
    """Return task -> its usable answers among all.

    An answer is not usable if it was sent back, or if after it the agent had failed. A session that ends with an error does not
    say which agents had failed in its last phase: there, every answer to one that was sent back counts as not usable.
    """
    answered = [each for each in session.exchanges if each.is_answered]
    asked, sent_back = Counter(map(task_of, answered)), Counter(map(task_of, filter(_is_sent_back, answered)))
    unusable = sent_back.copy()
    for event in session.events:
        if event.topic == "/Negotiation/Failed" and isinstance(event.payload, dict):
            unusable[str(event.payload["task"])] += bool(_UNUSABLE.search(str(event.payload["reason"])))
    if session.record and session.record.negotiations.ending.reason == "error" and answered:
        last = task_of(answered[-1])
        unusable[last] = max(unusable[last], 2 * sent_back[last])
    return {task: Share(count - min(unusable[task], count), count) for task, count in asked.items()}


def task_of(exchange: Exchange) -> str:
    """Return the task that a request asks for, in the word of its prompt."""
    found = [name for message in exchange.messages for name in _TASK.findall(str(message["content"]))]
    return found[-1] if found else "other"


def _is_sent_back(exchange: Exchange) -> bool:
    """Return whether a request sends back an answer that could not be used."""
    return any(message["role"] == "assistant" for message in exchange.messages)


def count_echoes(answered: Iterable[Exchange]) -> int:
    """Return the number of answers with a line of an example that their prompt has shown."""
    return sum(any(line in each.answer for line in _example_lines(each)) for each in answered)


def _example_lines(exchange: Exchange) -> list[str]:
    """Return the values of the examples in a prompt, without those that are too short to tell."""
    examples = [text for message in exchange.messages for text in _EXAMPLE.findall(str(message["content"]))]
    values = [value.strip() for text in examples for value in _LINE.findall(text)]
    return [value for value in values if len(value) >= _ECHO_CHARS]


def count_gate_results(session: LiveSession) -> Counter[str]:
    """Return code of the gate -> the number of proposals, repaired ones among them, that it has stopped, or `passed`."""
    results: Counter[str] = Counter()
    for event in session.events:
        if event.topic == "/Negotiation/Gated" and isinstance(event.payload, dict):
            report = event.payload["report"]
            failed = [rung for rung in report["rungs"] if rung["status"] == "failed"]
            results[failed[0].get("code") or failed[0]["rung"] if failed else "passed"] += 1
    return results


def _list_counts(counts: Counter[str]) -> str:
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    return f" ({listed})" if listed else ""


# --- what must not happen --------------------------------------------------------------------------


def find_facts(session: LiveSession) -> list[tuple[str, str]]:
    """Return the facts about safety, as rows of a name and a text; those in `find_failures` are said there."""
    changed = _changed_files(session)
    requests, files = len(session.exchanges), len(session.kept) + len(session.after)
    return [
        ("tree", f"changed in {', '.join(changed)}" if changed else "unchanged"),
        ("replay", _describe_replay(session)),
        ("keys", f"looked for in {requests} requests, {files} files and the output"),
    ]


def find_failures(session: LiveSession) -> list[str]:
    """Return what must not happen and did, each as a sentence without its full stop; empty if all is well."""
    return [
        *_find_bad_endings(session),
        *_find_unwanted_changes(session),
        *_find_differences(session),
        *_find_keys(session),
    ]


def _find_bad_endings(session: LiveSession) -> Iterator[str]:
    """Yield a hang, a traceback, and an end that no answer of a model may cause."""
    for name, command in (("the session", session.build), ("the replay", session.replay)):
        if command.status is None:
            yield f"{name} did not end in {command.seconds:.0f} s: {_last_line(command.output)}"
        if _TRACEBACK.search(command.output):
            yield f"{name} ended with a traceback: {_last_line(command.output)}"
    if session.build.status not in (None, _DONE, _NEGOTIATION_FAILED):
        yield f"the session ended with exit status {session.build.status}: {_last_line(session.build.output)}"
    elif session.build.status == _DONE and session.record is None:
        yield "the session left no record that can be read"
    elif not any(exchange.is_answered for exchange in session.exchanges) and not _was_stopped_by_time(session):
        yield f"the model never answered: {_last_line(session.build.output)}"


def _find_unwanted_changes(session: LiveSession) -> Iterator[str]:
    """Yield each file that is not as before although no accepted proposal, which passed the gate, has changed it."""
    records: Sequence[ProposalRecord] = session.record.negotiations.records if session.record else ()
    passed = [one for one in records if one.commit and one.gate and one.gate.passed]
    allowed = {path for one in passed if one.commit for path in one.commit.files_modified}
    yield from (
        f"{path} was changed without an accepted proposal that passed the gate"
        for path in _changed_files(session)
        if path not in allowed
    )


def _changed_files(session: LiveSession) -> list[str]:
    before, after = session.before, session.after
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _find_differences(session: LiveSession) -> Iterator[str]:
    """Yield what the replay found; nothing if it refused a session that cannot be repeated."""
    is_other = _DIFFERENCE in session.replay.output
    if session.replay.status and (is_other or not _why_not_repeatable(session)):
        yield f"the replay differs: {_last_line(session.replay.output)}"


def _describe_replay(session: LiveSession) -> str:
    reason = _why_not_repeatable(session) if session.replay.status else ""
    return f"not possible: {reason}" if reason else _last_line(session.replay.output)


def _why_not_repeatable(session: LiveSession) -> str:
    """Return why the course of a session depended on more than its answers; empty if it can be replayed."""
    if session.record is None:
        return "the session has no record"
    is_unfinished = session.record.negotiations.ending.reason in _NOT_REPEATABLE or _was_stopped_by_time(session)
    return "it was stopped by an error or its time" if is_unfinished else ""


def _was_stopped_by_time(session: LiveSession) -> bool:
    return session.record is not None and session.record.negotiations.ending.detail.startswith("max_seconds")


def _find_keys(session: LiveSession) -> Iterator[str]:
    """Yield each place in which a key is that has no business there."""
    own_header = f"Bearer {OWN_KEY}"
    for number, each in enumerate(session.exchanges, start=1):
        if _has_key(each.head.replace(own_header, "") + each.body):
            yield f"request {number} has a key"
    for name, data in {**session.after, **session.kept}.items():
        if _has_key(data.decode(errors="replace")):
            yield f"the file {name} has a key"
    if _has_key(session.build.output + session.replay.output):
        yield "the output has a key"


def _has_key(text: str) -> bool:
    return FOREIGN_KEY in text or OWN_KEY in text


def _last_line(output: str) -> str:
    """Return the last line with an error of GraphBus, which a hint may follow; without one the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it printed nothing"])[-1]
