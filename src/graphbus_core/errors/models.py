"""Refusals of models and their providers: exit status 5, as all of a negotiation."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE440": Entry(
        "The key for {provider} is missing: {variable} is not in the environment.",
        "Export {variable}, or choose another model with `--model`; `graphbus doctor` tells which are usable.",
    ),
    "GBE441": Entry(
        "{provider} cannot be asked: {package} is not installed.",
        "`pip install 'graphbus[llm]'`, or choose `--model rules` or `--model \"command:PROGRAM\"`.",
    ),
    "GBE442": Entry(
        "{provider} does not accept the key in {variable}: {reason}.",
        "Check the key and what it may be used for; `graphbus doctor --test {provider}` tries it.",
    ),
    "GBE443": Entry(
        "{provider} has no model {model}: {reason}.",
        "Check the name after the colon, and the address of the provider if it is your own.",
    ),
    "GBE444": Entry(
        "{provider} refuses the request: {reason}.",
        "If the prompt is too long for the model, choose one with a larger context.",
    ),
    "GBE445": Entry(
        "{provider} cannot answer now: {reason}.",
        "Try again later; `concurrency` and `requests_per_minute` in [tool.graphbus.llm] lower the rate.",
    ),
    "GBE446": Entry(
        "{provider} cannot be reached at {address}: {reason}.", "Look whether the server is running and the network up."
    ),
    "GBE447": Entry(
        "{provider} did not finish its answer within {timeout_s:g} s.",
        "Raise `timeout_s` in [tool.graphbus.llm], or choose a faster model; `--resume` goes on with a negotiation.",
    ),
    "GBE448": Entry("The answer of {provider} broke off: {reason}.", "Try again; it is not your request."),
    "GBE449": Entry(
        "What {provider} sent is no answer: {reason}.", "Check the address and the `wire` of the provider."
    ),
    "GBE450": Entry(
        "The answer of {provider} is longer than {limit_bytes} bytes.", "Choose another model; nothing of it was used."
    ),
    "GBE451": Entry(
        "{provider} has no credit left for this key: {reason}.",
        "Look at the account of the provider, or choose another model with `--model`.",
    ),
    "GBE452": Entry(
        "The program {program} cannot be started: {reason}.", "Check the words after `command:`, or give a whole path."
    ),
    "GBE453": Entry(
        "The program {program} failed with status {status}: {reason}.",
        "Run it by hand with a prompt on stdin; `pass_env` in [tool.graphbus.llm] names the variables that it gets.",
    ),
    "GBE454": Entry(
        "What is in {variable} is no key: it holds blanks, line breaks or letters that no key has.",
        "Export it again, with nothing but the key.",
    ),
    "GBE455": Entry("{model} is only asked for its price here.", "Open it with `open_client` to get answers from it."),
    "GBE460": Entry(
        "{model} gave no usable answer, twice: {reason}",
        "A larger model keeps to the format better; what was accepted before stays accepted.",
    ),
    "GBE461": Entry("{model} refuses to answer.", "Look at what the source text asks of it, or choose another model."),
    "GBE462": Entry(
        "{agent} is not asked: its prompt has about {tokens} tokens, and `max_prompt_tokens` allows {limit}.",
        "Split the class, or raise `max_prompt_tokens` in [tool.graphbus.llm] if the model takes so much.",
    ),
    "GBE470": Entry("The budget does not allow another request: {reason}.", "Raise the limit that is named."),
    "GBE471": Entry(
        "The record of this session holds no answer of {model} to what is asked now.",
        "Something that the session rests on has changed: the sources, the settings, or GraphBus itself.",
    ),
    "GBE472": Entry(
        "The answers of a model cannot be kept: {reason}.",
        "Make room or give permission; `--resume` goes on from here.",
    ),
}
