"""Refusals of usage and configuration: exit status 2."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE001": Entry("{count} problems were found.", ""),
    "GBE101": Entry("{path} does not exist.", "Give a folder or file with your agents, e.g. `graphbus build agents/`."),
    "GBE102": Entry("Unknown key {key!r} in {table}.{suggestion}", "Known keys: {known}."),
    "GBE103": Entry("{key} in {table} must be {expected}, not {got}.", "Correct the value in this file."),
    "GBE104": Entry("{path} is not valid TOML: {reason}.", "Correct the file; nothing was read from it."),
    "GBE105": Entry(
        "There is no package {name} here.",
        "Give the dotted name of a package below the working directory, its `src` or sys.path, or give a path.",
    ),
    "GBE106": Entry("{path} is no Python file.", "Give a folder, or a file `.py` with agents."),
    "GBE110": Entry("{message}", "`{command} --help` shows what it takes."),
    "GBE111": Entry(
        "{name!r} cannot be the name of a project: {reason}.", "Choose another folder name, e.g. `my-shop`."
    ),
    "GBE112": Entry(
        "There is something here already.", "Choose a new folder or empty this one; GraphBus never overwrites."
    ),
    "GBE113": Entry(
        "This cannot be written: {reason}.", "Check the permissions and the space on the disk; nothing was left."
    ),
    "GBE114": Entry(
        "{name!r} cannot be the name of a new agent: {reason}.", "Class names look like `ShippingService`."
    ),
    "GBE115": Entry(
        "{topic!r} is no topic.", "Topics look like `/Order/Created`; only --subscribes takes `*` and `**`."
    ),
    "GBE116": Entry("{one} and {other} would both give {method!r} as a method's name.", "Leave one of them out."),
    "GBE117": Entry("There is no agent called {name!r}.{suggestion}", "`graphbus inspect` lists the agents."),
    "GBE118": Entry("This file exists already.", "Choose another name, or remove the file; GraphBus never overwrites."),
    "GBE119": Entry(
        "The output cannot be written: {reason}.",
        "Give stdout another place. Files may have been written already: look before you run the command again.",
    ),
    "GBE120": Entry("There is no rule {name}.{suggestion}", "Codes and prefixes are known: {known}."),
    "GBE130": Entry("`{option} {name}` cannot be understood: {reason}.", "Example: `{option} {example}`."),
    "GBE131": Entry("{option} has no effect without {needed}.", "Add {needed}, or leave {option} out."),
    "GBE132": Entry("{option} and {other} exclude each other: {reason}.", "Leave one of them out."),
    "GBE140": Entry(
        "There is no provider {name!r} of models.{suggestion}",
        "Known: {known}. A table in [tool.graphbus.llm.providers] adds one.",
    ),
    "GBE141": Entry(
        "{spec!r} names no model: {reason}.",
        "Examples: `anthropic:claude-sonnet-5-5`, `ollama:qwen3-coder`, `command:PROGRAM ARGUMENTS`, `rules`.",
    ),
    "GBE142": Entry(
        "The provider {name} may not have {variable}: that key goes only to {owner}.",
        "Put the key of your server into a variable of its own and name that as `key_env`.",
    ),
    "GBE143": Entry(
        "{address!r} cannot be the address of the provider {name}: {reason}.",
        "Write e.g. `https://models.example.org/v1`, or `http://localhost:8000/v1` for a server on this machine.",
    ),
    "GBE144": Entry("{key} in {table} is missing.", "Add it to this file."),
    "GBE145": Entry("{got} dollars are no limit.", "Give `--max-usd` a number of at least 0; 0: no limit."),
    "GBE147": Entry(
        "There is a file here that is no report.", "Choose another name with `-o`, or write over it with `--force`."
    ),
    "GBE148": Entry(
        "--review asks a person before each change, and there is nobody to ask.",
        "Run it in a terminal, or leave --review out. From Python, give the `Negotiation` a reviewer.",
    ),
    "GBE149": Entry("The report cannot be written: {reason}.", "Give another place with `-o`, or `-o -` for stdout."),
    "GBE150": Entry(
        "{name} is no folder, and artifacts are compared folder by folder.",
        "Give two folders that `graphbus build` wrote; `graphbus contract diff` compares git revisions.",
    ),
    "GBE151": Entry("There is no dead letter {number}.", "`graphbus dlq ls` lists them."),
    "GBE152": Entry("No dead letter is named.", "Give the numbers that `graphbus dlq ls` shows, or `--all`."),
    "GBE153": Entry(
        "Dropping dead letters asks a person, and there is nobody to ask.",
        "Say `--yes` to drop them without a question.",
    ),
    "GBE155": Entry(
        "Whoever reaches {host} could use this graph: it needs a token.",
        "Put one of at least {length} characters into the variable {variable}, or into a file that `token_file` names.",
    ),
    "GBE156": Entry(
        "The token in {source} cannot be used: {reason}.",
        "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes a good one.",
    ),
    "GBE157": Entry(
        "{address!r} is no address to listen on: {reason}.", "Write PORT or HOST:PORT, e.g. `0.0.0.0:8766`."
    ),
    "GBE158": Entry(
        "{option} asks a person, and there is nobody to ask.", "Run it in a terminal, or leave {option} out."
    ),
    "GBE159": Entry("There is no command {name!r}.{suggestion}", "`help` lists them."),
    "GBE160": Entry("`{command}` cannot be understood: {reason}.", "Example: `{example}`."),
    "GBE161": Entry(
        "The settings in {path} cannot be read: {reason}.",
        "`--config` and the variable GRAPHBUS_CONFIG name a TOML file; nothing was done without it.",
    ),
    "GBE163": Entry("{option} needs watchfiles, which is not installed.", "Run `pip install 'graphbus[watch]'`."),
    "GBE164": Entry(
        "The project cannot be watched: {reason}.",
        "Leave large folders out with `exclude` in [tool.graphbus], or raise the limit of watches of the machine.",
    ),
    "GBE165": Entry(
        "These artifacts cannot follow their source files: a build writes to {path}.",
        "Leave --watch out, or run the artifacts that `graphbus build` writes.",
    ),
    "GBE166": Entry(
        "The script of {name} has no step left for {what}: it was used up after {times}.",
        "Add a step, or give one that is no list: it is taken every time.",
    ),
    "GBE167": Entry(
        "The script of {name} gives {what} something that its contract does not allow: {reason}.",
        "Correct the script, or the contract that the class declares.",
    ),
    "GBE168": Entry("The class {name} {what}.{suggestion}", "A script may do only what the class can do."),
    "GBE170": Entry("{version!r} is no version.", "Write it as in pyproject.toml, e.g. `--current 1.4.2`."),
    "GBE171": Entry(
        "{name!r} is neither a folder here nor a git revision: {reason}.",
        "Give a folder with agents or with artifacts, or a branch, tag or commit; `rev:NAME` is a revision in any case.",
    ),
    "GBE172": Entry(
        "There is no version of the {which} state to check.",
        "Give the version before with --current; that of now stands in `[project]` of pyproject.toml.",
    ),
    "GBE175": Entry("There is no state of {agent}.{suggestion}", "`graphbus state ls` lists what there is."),
    "GBE176": Entry("{agent} has no key {key!r}.{suggestion}", "`graphbus state ls {agent}` lists them."),
    "GBE177": Entry(
        "`state {command}` asks a person, and there is nobody to ask.", "Say `--yes` to go on without a question."
    ),
    "GBE178": Entry("No agent is named.", "Name one, and a key if only that shall go, or say `--all`."),
    "GBE179": Entry("There is a file here already.", "Choose another name, or write over it with `--force`."),
}
