"""The part of the register about models: keys, servers, answers and budget (GBE440 to GBE472)."""

from __future__ import annotations

from graphbus_core import __version__
from graphbus_core.errors import ErrorText


def how_to_install(extra: str) -> str:
    """Return the hint for a missing extra. It must not name `graphbus` alone, which is another package on public indexes."""
    return (
        f"In a checkout of GraphBus, run `pip install '.[{extra}]'`; in the folder that contains its wheel, "
        f"run `pip install './graphbus-{__version__}-py3-none-any.whl[{extra}]'`."
    )


MODEL_REGISTER: dict[str, ErrorText] = {
    # Models and their providers: exit status 5, as all of a negotiation
    "GBE440": ErrorText(
        "There is no key for the provider `{provider}`: the environment variable {variable} is not set.",
        "Set {variable}, or choose another model with `--model`. `graphbus doctor` shows which models are usable.",
    ),
    "GBE441": ErrorText(
        "The provider `{provider}` cannot be used: the package {package} is not installed.",
        f'{how_to_install("llm")} Or choose `--model rules` or `--model "command:PROGRAM"`.',
    ),
    "GBE442": ErrorText(
        "The provider `{provider}` rejected the key in {variable}: {reason}.",
        "Correct the key or its permissions, then test it with `graphbus doctor --test {provider}`.",
    ),
    "GBE443": ErrorText(
        "The provider `{provider}` has no model {model}: {reason}.",
        "Correct the model's name after the colon and, for a provider of your own, its `base_url`.",
    ),
    "GBE444": ErrorText(
        "The provider `{provider}` rejected the request: {reason}.",
        "Correct the setting that the provider names. If the prompt is too long, choose a model with a larger context "
        "window.",
    ),
    "GBE445": ErrorText(
        "The provider `{provider}` cannot answer now: {reason}.",
        "Try again later. To send fewer requests at a time, lower `concurrency` or `requests_per_minute` in "
        "[tool.graphbus.llm].",
    ),
    "GBE446": ErrorText(
        "The provider `{provider}` cannot be reached at {address}: {reason}.",
        "Start the server, correct `base_url` in [tool.graphbus.llm.providers.{provider}], or check the network.",
    ),
    "GBE447": ErrorText(
        "`{provider}` did not finish its answer within {timeout_s:g} s.",
        "Raise `timeout_s` in [tool.graphbus.llm], or choose a faster model. `--resume` continues a negotiation.",
    ),
    "GBE448": ErrorText(
        "The answer from `{provider}` was cut off: {reason}.", "Try again. The request itself was not the cause."
    ),
    "GBE449": ErrorText(
        "The provider `{provider}` sent a response that is not a valid answer: {reason}.",
        "Check `base_url` and `wire` (the protocol) of this provider in [tool.graphbus.llm.providers].",
    ),
    "GBE450": ErrorText(
        "The answer from `{provider}` is longer than {limit_bytes:,} bytes.",
        "Choose another model. No part of the answer was used.",
    ),
    "GBE451": ErrorText(
        "The account for this key at `{provider}` has no credit left: {reason}.",
        "Add credit to the account, or choose another model with `--model`.",
    ),
    "GBE452": ErrorText(
        "The program {program} cannot be started: {reason}.",
        "{advice}",
    ),
    "GBE453": ErrorText(
        "The program {program} failed with exit status {status}: {reason}.",
        "To find the cause, run the program yourself with a prompt on stdin. Of your environment, GraphBus passes "
        "it only PATH, HOME, TMPDIR, the locale and the variables that `pass_env` in [tool.graphbus.llm] lists.",
    ),
    "GBE454": ErrorText(
        "The value of {variable} is not a valid key: it contains spaces, line breaks or other characters that a "
        "key cannot contain.",
        "Set the variable again, to the key alone.",
    ),
    "GBE455": ErrorText(
        "`{provider}` did not begin its answer within {timeout_s:g} s.",
        "If the server is busy with other requests or reads long prompts slowly, raise `first_token_timeout_s` in "
        "[tool.graphbus.llm]. `--resume` continues a negotiation.",
    ),
    "GBE456": ErrorText(
        "The server of `{provider}` at {address} did not respond to a short test prompt within {timeout_s:g} s.",
        "If it is still loading the model, try again in a minute. Otherwise check its log, restart it, or correct "
        "`base_url`.",
    ),
    "GBE459": ErrorText(
        "{provider} does not accept a JSON schema for the answers of {model}: {reason}.",
        'Set `answers = "text"` in [tool.graphbus.llm].',
    ),
    "GBE460": ErrorText(
        "{model} gave no usable answer in two attempts. {reason}",
        "{advice} Changes accepted earlier stay accepted.",
    ),
    "GBE461": ErrorText(
        "{model} refused to answer the prompt.",
        "Check the source files for text that the model may refuse to process, or choose another model.",
    ),
    "GBE462": ErrorText(
        "The prompt is too long for {model}: it has {tokens} tokens, and {limit}.",
        "Start the server with a larger context, choose a model with one, or split large classes. If `max_prompt_tokens` "
        "in [tool.graphbus.llm] is the limit and the model accepts more, raise it.",
    ),
    "GBE463": ErrorText(
        "{model} does not follow the answer format: {count} of its answers in this session could not be used, also after "
        "they were sent back. The last one: {reason}",
        "{advice} `{test}` shows whether it does. Changes accepted earlier are kept.",
    ),
    "GBE464": ErrorText(
        "The program of {agent} broke {requirement}: {reason}.",
        "{text} `graphbus conform --agent {agent} -- PROGRAM` shows what else it does wrong.",
    ),
    "GBE465": ErrorText(
        "The program `{program}` cannot be started: {reason}.",
        "{advice} It is the `command` in [tool.graphbus.agents].",
    ),
    "GBE466": ErrorText(
        "The program of {agent} is not asked again in this session: it has failed {count} times in a row.",
        "`graphbus conform --agent {agent} -- PROGRAM` shows what it does wrong.",
    ),
    "GBE467": ErrorText(
        "The program of {agent} gives no answer to `{task}`: {reason}.",
        "The message is its own: correct the program, or what it complains about.",
    ),
    "GBE470": ErrorText(
        "The budget does not allow another request: {reason}.", "Raise the limit named above in [tool.graphbus.budget]."
    ),
    "GBE471": ErrorText(
        "The record of this session contains no answer from {model} to this request.",
        "Negotiate again: the source files, the settings or GraphBus itself have changed since the session.",
    ),
    "GBE472": ErrorText(
        "The model's answers cannot be saved in this file: {reason}.", "{advice} Then continue with `--resume`."
    ),
}
