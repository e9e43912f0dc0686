"""The sentence and the hint of each error code. Codes are public: they are never reused and never renumbered.

This half contains usage, sources, edits and negotiations (GBE101 to GBE437). `GraphBusError` imports it when the first error is
created, because most commands create none.
"""

from __future__ import annotations

from graphbus_core.errors import ErrorText
from graphbus_core.errors.model_register import MODEL_REGISTER, how_to_install
from graphbus_core.errors.run_register import RUN_REGISTER

REGISTER: dict[str, ErrorText] = {
    # Usage and configuration: exit status 2
    "GBE001": ErrorText("{count} problems were found.", ""),
    "GBE101": ErrorText(
        "The path {path} does not exist.",
        "Check its spelling, or pass another path, e.g. `agents/`.",
    ),
    "GBE102": ErrorText(
        "Unknown key {key!r} in {table}.{suggestion}", "Correct the name or remove the key. Valid keys: {known}."
    ),
    "GBE103": ErrorText(
        "{key} in {table} must be {expected}, not {got}.",
        "Correct the value, or remove `{key}` to use its default.",
    ),
    "GBE104": ErrorText(
        "This file is not valid TOML: {reason}.",
        "Correct the file, then run the command again. No setting was read from it.",
    ),
    "GBE105": ErrorText(
        "There is no package or module named {name!r}.",
        "Use the name by which it can be imported from the working directory, its `src` folder or sys.path, or "
        "pass a path instead.",
    ),
    "GBE106": ErrorText("{path} is not a Python file.", "Pass a folder, or a `.py` file that contains agents."),
    "GBE110": ErrorText("{message}", "Run `{command} --help` to {purpose}."),
    "GBE111": ErrorText(
        "{name!r} cannot be used as a project name: {reason}.",
        "Choose another folder, e.g. `my-shop`: the project is named after its folder.",
    ),
    "GBE112": ErrorText(
        "The destination already exists and is not an empty folder.",
        "Choose another folder, or move what is there elsewhere. `graphbus init` never overwrites files.",
    ),
    "GBE113": ErrorText(
        "This path cannot be created: {reason}.",
        "{advice} Nothing was created.",
    ),
    "GBE114": ErrorText(
        "{name!r} cannot be used as the name of a new agent: {reason}.",
        "Choose a different name that is valid for a Python class, e.g. `ShippingService`.",
    ),
    "GBE115": ErrorText(
        "{topic!r} is not a valid topic for {option}.",
        "Write topics like `/Order/Created`: letters, digits, `_` and `-` in each segment. Only --subscribes accepts "
        "the wildcards `*` and `**`.",
    ),
    "GBE116": ErrorText(
        "The topics {one} and {other} would both become a method named {method!r}.",
        "Generate the agent with one of these topics, and write the method for the other one by hand.",
    ),
    "GBE117": ErrorText(
        "There is no agent named {name!r} in this project.{suggestion}",
        "Correct the name, or create that agent first with `graphbus generate agent`. `graphbus inspect` lists the agents "
        "of the last build.",
    ),
    "GBE118": ErrorText(
        "This file already exists.",
        "Choose another agent name, or move this file elsewhere. `graphbus generate` never overwrites files.",
    ),
    "GBE119": ErrorText(
        "GraphBus could not write to stdout: {reason}.",
        "{advice}",
    ),
    "GBE120": ErrorText(
        "No rule has the code {name}, or a code that begins with it.{suggestion}",
        "Use one of these codes, or the beginning of one: {known}.",
    ),
    "GBE130": ErrorText("`{option} {name}` is not valid: {reason}.", "Write, for example, `{example}`."),
    "GBE131": ErrorText("{option} has no effect without {needed}.", "Add {needed}, or leave {option} out."),
    "GBE132": ErrorText(
        "{option} cannot be combined with {other}: {reason}.", "Leave out either {option}, or {other}."
    ),
    "GBE140": ErrorText(
        "There is no model provider named {name!r}.{suggestion}",
        "Use one of these providers: {known}. To define your own, add a table [tool.graphbus.llm.providers.NAME] "
        "to pyproject.toml.",
    ),
    "GBE141": ErrorText(
        "{spec!r} does not name a usable model: {reason}.",
        "{advice}",
    ),
    "GBE142": ErrorText(
        "The provider `{name}` may not use the key in {variable}, because that key may be sent only to {owner}.",
        "Store the key of your server in another environment variable, and set `key_env` in "
        "[tool.graphbus.llm.providers.{name}] of pyproject.toml to the name of that variable.",
    ),
    "GBE143": ErrorText(
        "The address {address!r} cannot be used for the provider `{name}`: {reason}.",
        "Set `base_url` in [tool.graphbus.llm.providers.{name}] to an address such as `https://models.example.org/v1`, "
        "or `http://localhost:8000/v1` for a server on this machine.",
    ),
    "GBE144": ErrorText("The required key `{key}` is missing in {table}.", "Add a line `{key} = ...` to this table."),
    "GBE145": ErrorText(
        "{got} is not a valid limit in dollars.", "Pass a number of at least 0 with `--max-usd`; 0 means no limit."
    ),
    "GBE146": ErrorText("{name} cannot be used: {reason}.", "{advice}"),
    "GBE147": ErrorText(
        "This file already exists and is not a GraphBus report.",
        "Choose another file with `-o`, or overwrite this one with `--force`.",
    ),
    "GBE148": ErrorText(
        "`--review` asks a person about each change, but there is no terminal to ask on.",
        "Run the command in a terminal, or leave --review out. In Python code, pass a reviewer to "
        "`NegotiationSession`.",
    ),
    "GBE149": ErrorText(
        "The report cannot be written: {reason}.", "Choose another file with `-o`, or write to stdout with `-o -`."
    ),
    "GBE150": ErrorText(
        "{name} is not a folder, and `graphbus diff` compares folders.",
        "Pass two folders that `graphbus build` wrote. To compare git revisions, use `graphbus contract diff`.",
    ),
    "GBE151": ErrorText("There is no dead letter with the ID {number}.", "Run `graphbus dlq ls` to see the IDs."),
    "GBE152": ErrorText("No dead letter was selected.", "Pass the IDs that `graphbus dlq ls` shows, or `--all`."),
    "GBE153": ErrorText(
        "`graphbus dlq drop` asks for confirmation, but there is no terminal to ask on.",
        "Pass `--yes` to drop the dead letters without confirmation.",
    ),
    "GBE154": ErrorText(
        "LLMConfig does not accept a key in `api_key`, because settings are recorded and keys must not be.",
        "Set the environment variable of the provider, such as ANTHROPIC_API_KEY, and leave `api_key` out. For a "
        "server of your own, set `key_env` in [tool.graphbus.llm.providers.NAME] to the name of the variable.",
    ),
    "GBE155": ErrorText(
        "The graph needs a token, because other machines can reach it at the address {host}.",
        "Put a token of at least {length} characters into the environment variable {variable}, or into a file whose path "
        "you set as `token_file` in [tool.graphbus.runtime.serve].",
    ),
    "GBE156": ErrorText(
        "The token in {source} cannot be used: {reason}.",
        "{advice}",
    ),
    "GBE157": ErrorText(
        "{address!r} is not a valid address for the server: {reason}.", "Write PORT or HOST:PORT, e.g. `0.0.0.0:8766`."
    ),
    "GBE158": ErrorText(
        "{option} is interactive, but there is no terminal to read commands from.",
        "Run the command in a terminal, or leave {option} out.",
    ),
    "GBE159": ErrorText("There is no command {name!r}.{suggestion}", "Type `help` to list the commands."),
    "GBE160": ErrorText("The command `{command}` cannot be run: {reason}.", "Write it as `{example}`."),
    "GBE161": ErrorText(
        "The settings file {path} cannot be read: {reason}.",
        "{advice} Nothing was done.",
    ),
    "GBE162": ErrorText(
        "The agents of this project are in several folders, and the new agent could go into any of them: {folders}.",
        "Choose one with `--path`, e.g. `--path {first}`.",
    ),
    "GBE163": ErrorText("{option} needs the package watchfiles, which is not installed.", how_to_install("watch")),
    "GBE164": ErrorText(
        "The source files cannot be watched for changes: {reason}.",
        "{advice}",
    ),
    "GBE165": ErrorText(
        "`--watch` cannot update the artifacts in {folder}, because a build of this project writes only to {path}.",
        "Leave --watch out, or run the artifacts in {path}.",
    ),
    "GBE166": ErrorText(
        "The script for {name} has no step left for {what}, which was called more than {times}.",
        "Add a step to the list, or replace the list with a single value, which is then used for every call.",
    ),
    "GBE167": ErrorText(
        "The value for {what} in the script for {name} does not match the contract: {reason}.",
        "Correct the script, or the contract that the class declares.",
    ),
    "GBE168": ErrorText(
        "The class {name} {what}.{suggestion}",
        "Correct the script: it can replace only methods and handlers that the class has.",
    ),
    "GBE169": ErrorText(
        "The argument {value} of a tool is refused: {reason}.",
        "Correct it: the schema of the tool names its arguments, and paths are relative to the project.",
    ),
    "GBE170": ErrorText(
        "{version!r} is not a valid version.",
        "Write a version such as `1.4.2`, in `--current` or as `version` in [project] of pyproject.toml.",
    ),
    "GBE171": ErrorText(
        "{name!r} is neither a folder here nor a git revision: {reason}.",
        "Pass a folder with agents or artifacts, or a branch, tag or commit. `rev:NAME` always means a revision.",
    ),
    "GBE172": ErrorText(
        "The versions cannot be compared, because the version of the {which} contracts is unknown.",
        "{advice}",
    ),
    "GBE173": ErrorText(
        "No build is recorded in the environment {environment}.{suggestion}",
        "After a deploy, record what runs there: `graphbus deployed record`. A clone gets the records with `git fetch origin "
        "'+refs/graphbus/*:refs/graphbus/*'`. Before the first deploy, pass `--allow-unrecorded`.",
    ),
    "GBE174": ErrorText(
        "No build of {component} is recorded in the environment {environment}.{suggestion}",
        "Name the component with `--component`; `graphbus deployed ls` lists them. Before its first deploy, pass "
        "`--allow-unrecorded`.",
    ),
    "GBE175": ErrorText(
        "No state is stored for the agent {agent}.{suggestion}",
        "Run `graphbus state ls` to list the agents that have state.",
    ),
    "GBE176": ErrorText(
        "{agent} stores nothing under the key {key!r}.{suggestion}", "Run `graphbus state ls {agent}` to list its keys."
    ),
    "GBE177": ErrorText(
        "`graphbus state {command}` asks for confirmation, but there is no terminal to ask on.",
        "Pass `--yes` to proceed without confirmation.",
    ),
    "GBE178": ErrorText(
        "No agent was named.",
        "Name an agent to reset all its state, add a key to reset only that key, or pass `--all`.",
    ),
    "GBE179": ErrorText("This file already exists.", "Choose another file, or overwrite this one with `--force`."),
    "GBE185": ErrorText(
        "There is no reader named {name!r}.{suggestion}",
        "Use one of these: {known}. A reader of another package is an entry point of the group `graphbus.readers`.",
    ),
    "GBE186": ErrorText(
        "The reader {name!r} cannot be used: {reason}.",
        "Update or remove the package that brings it; its entry point must name an object with the function `read`.",
    ),
    "GBE190": ErrorText(
        "{path} contains build artifacts, not agents.",
        "Pass the folder with your agents, e.g. `agents/`. To inspect the artifacts, run `graphbus inspect {path}`.",
    ),
    "GBE191": ErrorText(
        "{path} contains source code, not build artifacts.",
        "To check source files, run `graphbus check {path}`. To use artifacts, run `graphbus build {path}` first, "
        "then pass `.graphbus`.",
    ),
    # Source files and the graph that they describe: exit status 3
    "GBE201": ErrorText(
        "This file has a syntax error: {reason}.", "Correct this line. The other files were still read."
    ),
    "GBE202": ErrorText(
        "This file is not valid {encoding} text: {reason}.",
        "Save it as UTF-8, or declare its actual encoding in the first line, e.g. `# coding: latin-1`.",
    ),
    "GBE203": ErrorText(
        "This file is too large: it has {size_bytes:,} bytes, and GraphBus reads files of up to {limit_bytes:,} bytes.",
        "Split it, or leave it out with `exclude` in [tool.graphbus].",
    ),
    "GBE204": ErrorText(
        "This file cannot be read: {reason}.",
        "{advice} Or leave it out with `exclude` in [tool.graphbus].",
    ),
    "GBE205": ErrorText(
        "This symbolic link {problem}.",
        "Remove the link, or leave it out with `exclude` in [tool.graphbus].",
    ),
    "GBE206": ErrorText(
        "The code in this file is nested too deeply to be read.",
        "Split its most deeply nested expression, or leave the file out with `exclude` in [tool.graphbus].",
    ),
    "GBE210": ErrorText(
        "Two agents are named {name}; the other one is at {other}.",
        "Rename one of the classes. The names of agents must be unique in a graph.",
    ),
    "GBE211": ErrorText(
        "{agent} depends on {name}, which is not an agent of this graph.{suggestion}",
        "Correct the name in @depends_on, or add an agent with this name.",
    ),
    "GBE212": ErrorText(
        "The dependencies of these agents form a cycle: {cycle}.",
        "Remove one of these @depends_on declarations. Events may form a cycle; dependencies may not.",
    ),
    "GBE213": ErrorText(
        "No agent was found in {paths}{reason}.",
        "{advice}",
    ),
    "GBE214": ErrorText(
        "The handler {handler} has parameters that an event cannot fill.",
        "Declare no parameters, only `event` and `payload` (one or both), or only fields of the payload by name. "
        "`*args` and positional-only parameters are not allowed.",
    ),
    "GBE215": ErrorText(
        "{handler} subscribes to {topic!r}, which is not a valid topic.",
        "Write topics like `/Order/Created`: letters, digits, `_` and `-` in each segment. `*` stands for one segment, and "
        "`**`, only at the end, for one or more.",
    ),
    "GBE216": ErrorText(
        "{agent} publishes to {topic!r}, which is not a valid topic.",
        "Write topics like `/Order/Created`: letters, digits, `_` and `-` in each segment. Wildcards are not "
        "allowed here.",
    ),
    "GBE220": ErrorText(
        "The lock {path} does not exist, because this project has not been negotiated yet.",
        "Run `graphbus build PATHS --enable-agents` to negotiate and write the lock, then commit it to Git.",
    ),
    "GBE221": ErrorText(
        "The lock is out of date for {agent}: {what}.",
        "Run `graphbus build PATHS --enable-agents` to let the agents negotiate again, then commit the files and the "
        "lock to Git.",
    ),
    "GBE222": ErrorText(
        "The lock cannot be read: {reason}.",
        "{advice} Or negotiate again with `graphbus build PATHS --enable-agents`.",
    ),
    # Changes to source text, promotion and undo: exit status 4
    "GBE301": ErrorText("{target} is not defined in this file.{suggestion}", "{advice}"),
    "GBE302": ErrorText(
        "The change cannot be applied, because {target} is ambiguous: this file defines it {count} times, on lines {lines}.",
        "Change the class or block that contains all these definitions, or use `search_replace`.",
    ),
    "GBE303": ErrorText(
        "The current code of {target} differs from the code that this change expects.",
        "Read the file again, then write the change for its current code. {nearest}",
    ),
    "GBE304": ErrorText(
        "The change to {target} has no effect: the file already contains this code.", "Leave this change out."
    ),
    "GBE305": ErrorText(
        "The edit of {target} also changes code outside of it, near line {line}: {nearest}.",
        "Limit this edit to {target}, and write a separate edit for each other class or function.",
    ),
    "GBE306": ErrorText(
        "The change to {target} makes the file invalid Python: {reason}.", "Correct the new code near {nearest}."
    ),
    "GBE307": ErrorText(
        "The text to replace was not found in {target}.", "Quote the text exactly as it is in the file. {nearest}"
    ),
    "GBE308": ErrorText(
        "The text to replace occurs {count} times in {target}, on lines {lines}.",
        "Include more of the lines around it, so that the text occurs only once.",
    ),
    "GBE309": ErrorText(
        "The operation `{operation}` accepts only {expected}, but the new code is {found}.",
        "{advice} The new code begins with: {nearest}",
    ),
    "GBE310": ErrorText("{target} already exists, on line {line}: {nearest}.", "{advice}"),
    "GBE311": ErrorText(
        "The new code cannot be written in the file's encoding {encoding}: {reason}.",
        "{advice}",
    ),
    "GBE312": ErrorText("This file cannot be edited: {reason}.", "{advice} Nothing was changed."),
    "GBE313": ErrorText(
        "The change to {target} does not state which existing code it expects.",
        "Add `old_code` (the existing code) or `base_sha256` (its digest) to the change.",
    ),
    "GBE314": ErrorText(
        "The decorator{name} of {target} cannot be changed: {reason}.",
        "{advice}",
    ),
    "GBE315": ErrorText(
        "{target} cannot be changed on its own: {reason}.", "Change the class or block that contains it."
    ),
    "GBE317": ErrorText(
        "This change conflicts with another change to {target} that was accepted after it was written.",
        "{advice}",
    ),
    "GBE318": ErrorText(
        "Combined with the changes accepted since it was written, this change makes the file invalid Python: {reason}.",
        "Read the file again, then write the change for its current code.",
    ),
    "GBE320": ErrorText(
        "Another program changed this file during the session.",
        "Run the command again: it then uses the current file. Nothing was written.",
    ),
    "GBE321": ErrorText(
        "This path cannot be written: {reason}.",
        "{advice} Then run the command again. The path was not changed.",
    ),
    "GBE322": ErrorText(
        "This path is a symbolic link, or passes through one.",
        "Replace the link with the actual file or folder. GraphBus changes only regular files of the project.",
    ),
    "GBE323": ErrorText(
        "This file cannot be changed: {reason}.",
        "{advice}",
    ),
    "GBE324": ErrorText(
        "Another GraphBus process is writing to this project.", "Wait until it has finished, then try again."
    ),
    "GBE325": ErrorText(
        "An interrupted promotion could be neither completed nor reversed: {reason}.",
        "{folder} contains the files from before and after the promotion. Copy the versions that you want into "
        "the project, then delete the folder.",
    ),
    "GBE326": ErrorText(
        "Session {session} cannot be undone, because these files have changed since then: {paths}.",
        "Take those later changes back, e.g. in your editor, then run `graphbus undo` again. Nothing was changed.",
    ),
    "GBE327": ErrorText("There is nothing to undo{of_session}.", "{advice}"),
    "GBE328": ErrorText(
        "An interrupted promotion was found here, but another user or another copy of the project wrote it, or "
        "this folder has been modified since. It was neither completed nor reversed.",
        "Check the source files, e.g. with `git diff`, and restore any that are wrong. Then delete {folder}.",
    ),
    "GBE330": ErrorText(
        "Another program changed this file while it was being checked, so no fix was written to it.",
        "Run `graphbus check --fix` again.",
    ),
    "GBE331": ErrorText(
        "The {tier} sandbox, in which changed code runs, could not be set up: {reason}.",
        "Run `graphbus doctor` to see which sandbox this machine supports. No changed code was run.",
    ),
    "GBE332": ErrorText(
        "The machine is too busy to test the change: in {wall_s:.0f} s, the tests got {used_s:.0f} of the "
        "{timeout_s:g} seconds of processor time that they may use.",
        "Try again when the machine is less busy; `--resume` continues a negotiation. The change was neither "
        "refused nor written.",
    ),
    "GBE340": ErrorText(
        "There are no agents in this project.",
        "Change to the folder of a project with agents, or pass that folder with `graphbus -C FOLDER`.",
    ),
    "GBE341": ErrorText(
        "The patch does not apply to this file: {reason}.", "Create the patch again from the current file."
    ),
    "GBE342": ErrorText("The patch cannot be used: {reason}.", "{advice}"),
    "GBE343": ErrorText(
        "This file cannot be read: {reason}.", "Pass the path of a readable file, or `-` for standard input."
    ),
    "GBE344": ErrorText(
        "This project is not in a git repository, so there is no revision to compare with.",
        "Run the command in a git repository, or use `--patch` or `--new`, which work without one.",
    ),
    "GBE345": ErrorText(
        "The edit that the hook announces cannot be judged: {reason}.",
        "If it does not fit the file, repeat it with the exact text; docs/hooks.md shows what a hook may announce.",
    ),
    "GBE346": ErrorText(
        "The settings in this file cannot be changed: {reason}.",
        "Correct the file, or write the hook into it by hand as docs/hooks.md shows.",
    ),
    # Negotiations: exit status 5
    "GBE401": ErrorText(
        "`arbiter_agents` lists {name}, which is not an agent of this graph.{suggestion}",
        "Correct the name, or remove it. The agents of this graph are: {known}.",
    ),
    "GBE402": ErrorText(
        "The session {session} already exists.",
        "Choose another name, or leave the name out to get the next free one.",
    ),
    "GBE403": ErrorText(
        "No finished negotiation was found in {folder}.",
        "Run `graphbus negotiate agents/` or `graphbus build agents/ --enable-agents`; with `--resume` they continue an "
        "interrupted session.",
    ),
    "GBE404": ErrorText("There is no session {session}.{suggestion}", "Choose one of these: {known}."),
    "GBE405": ErrorText(
        "The record of session {session} cannot be read: {reason}.",
        "If a newer GraphBus wrote it, upgrade GraphBus. Otherwise delete the folder of the session: source files and "
        "artifacts do not depend on it.",
    ),
    "GBE406": ErrorText("Session {session} has no {kind} {name}.{suggestion}", "Choose one of these: {known}."),
    "GBE407": ErrorText(
        "The session {session} cannot be recorded: {reason}. No source file was changed.",
        "{advice} Then negotiate again.",
    ),
    "GBE408": ErrorText(
        "{session!r} is not a valid name for a session.",
        "Use letters, digits, `-`, `_` and `.`, or leave the name out to get the next free one.",
    ),
    "GBE409": ErrorText(
        "Together, the changes accepted in session {session} do not pass the gate, so none of them was written: "
        "{reason}.",
        "Run `graphbus inspect-negotiation --session {session}` to see them, then negotiate again with fewer rounds.",
    ),
    "GBE410": ErrorText(
        "The changes of session {session} were written, but its record could not be updated: {reason}.",
        "{advice} Then run `graphbus build` to build with the changes, or `graphbus undo` to reverse them.",
    ),
    "GBE411": ErrorText(
        "`arbiter_domains` names {name}, which is not an arbiter.{suggestion}",
        "{advice} To make an agent an arbiter, set `IS_ARBITER = True` in its class, or add its name to `arbiter_agents`.",
    ),
    "GBE412": ErrorText(
        "[tool.graphbus.agents] has a program for {name}, which is not an agent of this graph.{suggestion}",
        "Correct the name, or remove it. The agents of this graph are: {known}.",
    ),
    "GBE413": ErrorText(
        "Session {session} ended without a result, because no program gave a usable answer: {reason}",
        "`graphbus conform --agent NAME` shows what a program of [tool.graphbus.agents] does wrong.",
    ),
    "GBE420": ErrorText(
        "Another negotiation of this project is running (process {process}).",
        "Wait until it has finished, or stop that process. A negotiation with `--dry-run` can run at the same time.",
    ),
    "GBE421": ErrorText(
        "There is no interrupted session in {folder} to resume.", "Leave `--resume` out to start a new session."
    ),
    "GBE422": ErrorText(
        "Session {session} cannot be resumed, because its inputs have changed since it was interrupted: {what}.",
        "Undo that change, or leave `--resume` out to start a new session. The answers of the models stay in the "
        "cache.",
    ),
    "GBE423": ErrorText(
        "Session {session} cannot be replayed: {reason}.",
        "{advice}",
    ),
    "GBE424": ErrorText(
        "The replay of session {session} differs from its record: {what}.",
        "Replay it with the versions of GraphBus and Python that recorded it. If it still differs, look for a flaky test.",
    ),
    "GBE425": ErrorText(
        "The session has finished, but the lock cannot be written: {reason}.",
        "{advice} Then negotiate again. The accepted changes are already in your source files.",
    ),
    "GBE426": ErrorText(
        "Session {session} ended without a result, because no agent got an answer from its model: {reason}",
        "Test the model with `{test}`. When it answers, continue with `--resume`, which repeats only the "
        "questions without a usable answer, or start a new session. Add `--no-cache` to ignore earlier answers, or use "
        "`--model rules`, which needs no model.",
    ),
    "GBE427": ErrorText(
        "Session {session} cannot be resumed: another user or another copy of the project started it, or the "
        "files of the session have been modified since.",
        "Leave `--resume` out to start a new session.",
    ),
    "GBE430": ErrorText(
        "The program `git` cannot be run: {reason}.",
        "Install git, or leave out the option that needs it: `--commit`, `--against`, `--staged` or `--patch`.",
    ),
    "GBE431": ErrorText(
        "`git {command}` failed: {reason}.",
        "{advice} Then run the command again. GraphBus changed nothing.",
    ),
    "GBE432": ErrorText(
        "There is no commit {revision!r} in this repository.",
        "Name a branch, tag or commit; `git log --oneline` lists the commits.",
    ),
    "GBE433": ErrorText("GraphBus cannot commit in this repository: {reason}.", "{advice}"),
    "GBE434": ErrorText(
        "Changes to this file cannot be committed to git: {reason}.",
        "{advice} Or negotiate without --commit. No agent has been asked yet.",
    ),
    "GBE435": ErrorText(
        "The accepted changes of session {session} were written to the files, but no git commit was made: {reason}.",
        "Review them with `git diff` and commit them yourself, or reverse them with `graphbus undo`. Then run "
        "`graphbus build`.",
    ),
    "GBE436": ErrorText(
        "This is not a text file of the project.{suggestion}", "Pass the path of a text file in {root}."
    ),
    "GBE437": ErrorText(
        "This file has no line {line}: it has {count}.",
        "Write the number of an existing line after the colon; lines are counted from 1.",
    ),
    **MODEL_REGISTER,
    **RUN_REGISTER,
}
