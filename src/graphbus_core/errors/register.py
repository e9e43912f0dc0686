"""The sentence and the hint of each error code. Codes are public: they are never reused and never renumbered.

This half contains usage, sources, edits and negotiation (GBE1xx to GBE4xx). `GraphBusError` imports it when the first error is
created, because most commands create none.
"""

from __future__ import annotations

from graphbus_core.errors import ErrorText
from graphbus_core.errors.run_register import RUN_REGISTER, how_to_install

REGISTER: dict[str, ErrorText] = {
    # Usage and configuration: exit status 2
    "GBE001": ErrorText("{count} problems were found.", ""),
    "GBE101": ErrorText(
        "{path} does not exist.", "Check the path. It must name a folder or file that contains agents, e.g. `agents/`."
    ),
    "GBE102": ErrorText(
        "Unknown key {key!r} in {table}.{suggestion}", "Correct the name or remove the key. Valid keys: {known}."
    ),
    "GBE103": ErrorText("{key} in {table} must be {expected}, not {got}.", "Change the value in this file."),
    "GBE104": ErrorText(
        "{path} cannot be read as TOML: {reason}.",
        "Correct the file, then run the command again. No setting was read from it.",
    ),
    "GBE105": ErrorText(
        "There is no package or module named {name!r}.",
        "Give its dotted name as seen from the working directory, its `src` folder or sys.path, or pass a path instead.",
    ),
    "GBE106": ErrorText("{path} is not a Python file.", "Pass a folder, or a `.py` file that contains agents."),
    "GBE110": ErrorText("{message}", "Run `{command} --help` to see its arguments and options."),
    "GBE111": ErrorText(
        "{name!r} cannot be used as a project name: {reason}.",
        "The project is named after its folder. Choose another folder name, e.g. `my-shop`.",
    ),
    "GBE112": ErrorText(
        "The destination already exists and is not an empty folder.",
        "Choose a new folder, or empty this one. `graphbus init` never overwrites files.",
    ),
    "GBE113": ErrorText(
        "This path cannot be written: {reason}.", "Check the permissions and the free disk space. Nothing was created."
    ),
    "GBE114": ErrorText(
        "{name!r} cannot be used as the name of a new agent: {reason}.",
        "Choose another name, which must be that of a Python class, e.g. `ShippingService`.",
    ),
    "GBE115": ErrorText(
        "{topic!r} is not a valid topic.",
        "Write topics like `/Order/Created`. Only --subscribes accepts the wildcards `*` and `**`.",
    ),
    "GBE116": ErrorText(
        "The topics {one} and {other} would both become a method named {method!r}.",
        "Leave one of them out, and add its method by hand.",
    ),
    "GBE117": ErrorText(
        "There is no agent named {name!r} in this project.{suggestion}",
        "Correct the name, or generate that agent first. `graphbus inspect` lists the agents of the last build.",
    ),
    "GBE118": ErrorText(
        "This file already exists.", "Choose another agent name, or move the file away. GraphBus never overwrites it."
    ),
    "GBE119": ErrorText(
        "GraphBus could not write to stdout: {reason}.",
        "Send the output elsewhere. The command may already have changed files: check them before you run it again.",
    ),
    "GBE120": ErrorText(
        "There is no rule whose code is {name} or begins with it.{suggestion}",
        "Use one of these codes, or the beginning of one: {known}.",
    ),
    "GBE130": ErrorText("`{option} {name}` is not valid: {reason}.", "Write, for example, `{option} {example}`."),
    "GBE131": ErrorText("{option} has no effect without {needed}.", "Add {needed}, or leave {option} out."),
    "GBE132": ErrorText("{option} cannot be combined with {other}: {reason}.", "Leave one of them out."),
    "GBE140": ErrorText(
        "There is no model provider named {name!r}.{suggestion}",
        "Use one of these providers: {known}. To add your own, write a table in [tool.graphbus.llm.providers].",
    ),
    "GBE141": ErrorText(
        "{spec!r} does not name a usable model: {reason}.",
        "Examples: `anthropic:claude-sonnet-5-5`, `ollama:qwen3-coder`, `command:PROGRAM ARGUMENTS`, `rules`.",
    ),
    "GBE142": ErrorText(
        "The provider {name} may not use the key in {variable}: that key is sent only to {owner}.",
        "Put the key of your server into another environment variable, and name that variable in `key_env`.",
    ),
    "GBE143": ErrorText(
        "{address!r} is not a valid address for the provider {name}: {reason}.",
        "Write, for example, `https://models.example.org/v1`, or `http://localhost:8000/v1` for a server on this machine.",
    ),
    "GBE144": ErrorText("The required key {key} is missing in {table}.", "Add it to this table."),
    "GBE145": ErrorText(
        "{got} is not a valid limit in dollars.", "Pass `--max-usd` a number of at least 0; 0 means no limit."
    ),
    "GBE146": ErrorText(
        "{name} cannot be used: {reason}.", "Correct it in the Python code that passes it to GraphBus."
    ),
    "GBE147": ErrorText(
        "This file already exists and is not a GraphBus report.",
        "Choose another file with `-o`, or overwrite this one with `--force`.",
    ),
    "GBE148": ErrorText(
        "--review asks a person before each change, but there is no terminal to ask on.",
        "Run the command in a terminal, or leave --review out. From Python, pass the `NegotiationSession` a reviewer.",
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
        "LLMConfig takes no key in `api_key`: settings are recorded, and a key must not be.",
        "Set the environment variable of the provider, such as ANTHROPIC_API_KEY, and leave `api_key` out."
        " For a server of your own, name the variable as `key_env` in [tool.graphbus.llm.providers.NAME].",
    ),
    "GBE155": ErrorText(
        "At the address {host} other machines can reach the graph, so it needs a token.",
        "Put a token of at least {length} characters into the variable {variable}, or into a file that `token_file` names.",
    ),
    "GBE156": ErrorText(
        "The token in {source} cannot be used: {reason}.",
        "Generate one with `python -c 'import secrets; print(secrets.token_urlsafe(32))'`.",
    ),
    "GBE157": ErrorText(
        "The server cannot listen on {address!r}: {reason}.", "Write PORT or HOST:PORT, e.g. `0.0.0.0:8766`."
    ),
    "GBE158": ErrorText(
        "{option} waits for a person to type, but there is no terminal.", "Run it in a terminal, or leave {option} out."
    ),
    "GBE159": ErrorText("There is no command {name!r}.{suggestion}", "Type `help` to list the commands."),
    "GBE160": ErrorText("`{command}` cannot be carried out: {reason}.", "Type it like this: `{example}`."),
    "GBE161": ErrorText(
        "The settings file {path} cannot be read: {reason}.",
        "Correct the path given with `--config` or in the variable GRAPHBUS_CONFIG. Nothing was done.",
    ),
    "GBE162": ErrorText(
        "The agents of this project are in several folders: {folders}.",
        "Choose the folder of the new agent, e.g. `--path {first}`.",
    ),
    "GBE163": ErrorText("{option} needs the package watchfiles, which is not installed.", how_to_install("watch")),
    "GBE164": ErrorText(
        "The source files cannot be watched for changes: {reason}.",
        "Leave large folders out with `exclude` in [tool.graphbus], or raise the system's limit on watched files.",
    ),
    "GBE165": ErrorText(
        "These artifacts cannot be rebuilt while they run, because a build of this project writes to {path}.",
        "Leave --watch out, or run the artifacts in {path}.",
    ),
    "GBE166": ErrorText(
        "The script of {name} has no step left for {what}: it was used {times}.",
        "Add a step, or give one value instead of a list: it is used every time.",
    ),
    "GBE167": ErrorText(
        "The script of {name} gives a value for {what} that its contract does not allow: {reason}.",
        "Correct the script, or the contract that the class declares.",
    ),
    "GBE168": ErrorText(
        "The class {name} {what}.{suggestion}",
        "Correct the script: it can stand in only for methods and handlers that the class has.",
    ),
    "GBE170": ErrorText(
        "{version!r} is not a valid version.", "Write it as in pyproject.toml, e.g. `--current 1.4.2`."
    ),
    "GBE171": ErrorText(
        "{name!r} is neither a folder here nor a git revision: {reason}.",
        "Pass a folder with agents or artifacts, or a branch, tag or commit. `rev:NAME` always means a revision.",
    ),
    "GBE172": ErrorText(
        "The version of the {which} state is unknown, so it cannot be checked.",
        "Pass the earlier version with --current. The new one is read from `version` in [project] of pyproject.toml.",
    ),
    "GBE175": ErrorText(
        "No state of {agent} is stored here.{suggestion}", "Run `graphbus state ls` to list the agents that have state."
    ),
    "GBE176": ErrorText(
        "{agent} stores nothing under the key {key!r}.{suggestion}", "Run `graphbus state ls {agent}` to list its keys."
    ),
    "GBE177": ErrorText(
        "`graphbus state {command}` asks for confirmation, but there is no terminal to ask on.",
        "Pass `--yes` to proceed without confirmation.",
    ),
    "GBE178": ErrorText("No agent was named.", "Name an agent, and a key to reset that key alone, or pass `--all`."),
    "GBE179": ErrorText("This file already exists.", "Choose another file, or overwrite this one with `--force`."),
    "GBE190": ErrorText(
        "{path} contains what a build has written, not agents.",
        "Pass the folder with your agents, e.g. `agents/`. To see what was built, run `graphbus inspect {path}`.",
    ),
    "GBE191": ErrorText(
        "{path} contains source files, not what a build has written.",
        "To check source files, run `graphbus check {path}`. To use artifacts, run `graphbus build {path}` first, then pass "
        "`.graphbus`.",
    ),
    # Source files and the graph that they describe: exit status 3
    "GBE201": ErrorText("This file has a syntax error: {reason}.", "Correct it. The other files were still read."),
    "GBE202": ErrorText(
        "This file is not valid {encoding} text: {reason}.",
        "Save it as UTF-8, or declare its encoding in the first line.",
    ),
    "GBE203": ErrorText(
        "This file has {size_bytes} bytes; GraphBus reads files of up to {limit_bytes} bytes.",
        "Split it, or leave it out with `exclude` in [tool.graphbus].",
    ),
    "GBE204": ErrorText(
        "This file cannot be read: {reason}.",
        "Check that it is a regular file and that you have permission to read it.",
    ),
    "GBE205": ErrorText(
        "This link leads in a circle or out of the project.",
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
        "Correct the name in @depends_on, or add the agent.",
    ),
    "GBE212": ErrorText(
        "The dependencies of these agents form a cycle: {cycle}.",
        "Remove one @depends_on. Events may go round in a cycle, dependencies may not.",
    ),
    "GBE213": ErrorText(
        "No agent was found in {paths}{reason}.",
        "Add a class that derives from GraphBusNode; `graphbus generate agent NAME` writes one.",
    ),
    "GBE214": ErrorText(
        "An event cannot fill the parameters of the handler {handler}.",
        "Let it take no arguments, `event`, `payload`, both, or fields of the payload by name; no *args and no "
        "positional-only parameters.",
    ),
    "GBE215": ErrorText(
        "{handler} subscribes to {topic!r}, which is not a valid topic.",
        "Write topics like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more.",
    ),
    "GBE216": ErrorText(
        "{agent} publishes to {topic!r}, which is not a valid topic.",
        "Write topics like `/Order/Created`: letters, digits, `_` and `-` in each segment, no wildcards.",
    ),
    "GBE220": ErrorText(
        "{path} does not exist: no negotiation of this project has been locked.",
        "Run `graphbus build PATHS --enable-agents` to negotiate and write the lock, then commit it.",
    ),
    "GBE221": ErrorText(
        "The lock does not cover {agent}: {what}.",
        "Run `graphbus build PATHS --enable-agents` to let the agents negotiate again, then commit the files and the lock.",
    ),
    "GBE222": ErrorText(
        "The lock cannot be read: {reason}.",
        "Restore it from version control, or negotiate again. After a merge conflict, keep the blocks of both agents and "
        "one session.",
    ),
    # Changes to source text, promotion and undo: exit status 4
    "GBE301": ErrorText(
        "{target} is not defined in this file.{suggestion}", "Use one of the names in this file: {known}."
    ),
    "GBE302": ErrorText(
        "{target} is defined {count} times in this file, on lines {lines}.",
        "Change the class or block around it as a whole, or use search_replace.",
    ),
    "GBE303": ErrorText("The code of {target} is not what this change expects.", "{nearest}"),
    "GBE304": ErrorText("The change to {target} changes nothing.", "Leave it out: the file already has this code."),
    "GBE305": ErrorText(
        "The change to {target} also changes other code, near line {line}: {nearest}.",
        "Change one symbol with each edit.",
    ),
    "GBE306": ErrorText(
        "With the change to {target}, the file is not valid Python: {reason}.", "Correct the new code near {nearest}."
    ),
    "GBE307": ErrorText("The text to replace was not found in {target}.", "{nearest}"),
    "GBE308": ErrorText(
        "The text to replace occurs {count} times in {target}, on lines {lines}.",
        "Quote more of the lines around it, so that it occurs only once.",
    ),
    "GBE309": ErrorText(
        "The new code for {target} must be {expected}, but it is {found}.",
        "Correct the new code, which begins with: {nearest}",
    ),
    "GBE310": ErrorText("{target} already exists, on line {line}.", "{nearest}"),
    "GBE311": ErrorText(
        "The new code cannot be written in the file's encoding {encoding}: {reason}.",
        "Use other characters, or convert the file to UTF-8 first.",
    ),
    "GBE312": ErrorText("This file cannot be edited: {reason}.", "Correct the file first. Nothing was changed."),
    "GBE313": ErrorText(
        "The change to {target} does not say which code it expects.", "Add `old_code` or `base_sha256` to the change."
    ),
    "GBE314": ErrorText(
        "The decorator{name} of {target} cannot be changed: {reason}.",
        "Name a decorator that occurs once. The decorators there: {nearest}",
    ),
    "GBE315": ErrorText("{target} cannot be changed on its own: {reason}.", "Change the class or block around it."),
    "GBE317": ErrorText(
        "{target} was changed in another way after this change was written.",
        "Write the change for the code as it is now: {accepted}",
    ),
    "GBE318": ErrorText(
        "Together with the changes accepted since, this change is not valid Python: {reason}.",
        "Write the change again for the file as it is now.",
    ),
    "GBE320": ErrorText(
        "This file was changed from outside during the session.",
        "Nothing was written. Build again, so that the agents read the file as it is now.",
    ),
    "GBE321": ErrorText(
        "This file cannot be written: {reason}. Nothing was changed.",
        "Check the permissions and the free disk space, then try again.",
    ),
    "GBE322": ErrorText(
        "This path is a symbolic link, or lies behind one.",
        "Replace the link with the file itself. GraphBus changes only real files of the project.",
    ),
    "GBE323": ErrorText(
        "{path} is not a file of this project.", "Give paths relative to the project root, without `..`."
    ),
    "GBE324": ErrorText(
        "Another GraphBus process is writing to this project.", "Wait until it has finished, then try again."
    ),
    "GBE325": ErrorText(
        "An interrupted change could not be completed or taken back: {reason}.",
        "{folder} holds the files from before and after the change. Restore the ones you want, then delete that folder.",
    ),
    "GBE326": ErrorText(
        "{session} cannot be undone, because these files were changed since: {paths}.",
        "Take those changes back first, then run `graphbus undo` again. Nothing was changed.",
    ),
    "GBE327": ErrorText("There is nothing to undo{of_session}.", "Sessions that can be undone: {known}."),
    "GBE328": ErrorText(
        "An interrupted change was found, but not one that your GraphBus wrote here, or it was altered since. It was left "
        "alone.",
        "Check the files that {folder} names, then delete that folder.",
    ),
    "GBE330": ErrorText(
        "This file was changed while it was being checked, so it was left alone.", "Run the command again."
    ),
    "GBE331": ErrorText(
        "The {tier} sandbox, in which changed code runs, could not be set up: {reason}.",
        "No changed code was run. `graphbus doctor` shows which sandbox this machine supports.",
    ),
    "GBE332": ErrorText(
        "This machine is too busy to judge the change: in {wall_s:.0f} s its tests got {used_s:.0f} of the {timeout_s:g} "
        "seconds of processor time that they may use.",
        "Nothing was refused or written. Try again when the machine is less busy; `--resume` continues a negotiation.",
    ),
    "GBE340": ErrorText(
        "There are no agents in this project.",
        "Change to the folder of a project with agents, or name it with `graphbus -C`.",
    ),
    "GBE341": ErrorText(
        "The patch for {path} does not apply: {reason}.", "Make the patch again from the file as it is now."
    ),
    "GBE342": ErrorText(
        "The patch cannot be read: {reason}.", "Pass a unified diff of text files, as `git diff` prints it."
    ),
    "GBE343": ErrorText("{path} cannot be read: {reason}.", "Name a file that exists, or `-` for standard input."),
    "GBE344": ErrorText(
        "This project is not in a git repository, so there is no revision to compare with.",
        "Run the command in a git repository, or use `--patch` or `--new`, which need none.",
    ),
    # Negotiations: exit status 5
    "GBE401": ErrorText(
        "arbiter_agents names {name}, which is not an agent of this graph.{suggestion}",
        "Correct `arbiter_agents` in [tool.graphbus.safety]. Agents: {known}.",
    ),
    "GBE402": ErrorText(
        "The session {session} already exists.",
        "Choose another name, or leave `session` empty to get the next free one.",
    ),
    "GBE403": ErrorText(
        "No finished negotiation was found in {folder}.",
        "Run `graphbus negotiate agents/` or `graphbus build agents/ --enable-agents`; with `--resume` they continue an "
        "interrupted session.",
    ),
    "GBE404": ErrorText("There is no session {session}.{suggestion}", "Choose one of these: {known}."),
    "GBE405": ErrorText(
        "The record of session {session} cannot be read: {reason}.",
        "Read it with the version of GraphBus that wrote it, or delete its folder. Source files and artifacts do not depend "
        "on it.",
    ),
    "GBE406": ErrorText("Session {session} has no {kind} {name}.{suggestion}", "Choose one of these: {known}."),
    "GBE407": ErrorText(
        "The session {session} cannot be recorded: {reason}. No source file was changed.",
        "Free disk space or correct the permissions, then negotiate again.",
    ),
    "GBE408": ErrorText(
        "{session!r} is not a valid name for a session.",
        "Use letters, digits, `-`, `_` and `.`, or leave the name out to get the next free one.",
    ),
    "GBE409": ErrorText(
        "The changes accepted in session {session} do not pass the gate together, so none was written: {reason}.",
        "Run `graphbus inspect-negotiation --session {session}` to see them, then negotiate again with fewer rounds.",
    ),
    "GBE410": ErrorText(
        "The changes of session {session} were written, but its record could not be updated: {reason}.",
        "Free disk space or correct the permissions. Then `graphbus build` builds with the changes, and `graphbus undo` "
        "takes them back.",
    ),
    "GBE411": ErrorText(
        "arbiter_domains names {name}, which is not an arbiter.{suggestion}",
        "Use one of the arbiters: {known}. To make a class an arbiter, set `IS_ARBITER = True` in it, or add its name to "
        "arbiter_agents.",
    ),
    "GBE420": ErrorText(
        "Another negotiation of this project is running (process {process}).",
        "Wait until it has finished, or stop it. `--dry-run` works in the meantime.",
    ),
    "GBE421": ErrorText(
        "There is no interrupted session in {folder} to continue.", "Leave `--resume` out to start a new session."
    ),
    "GBE422": ErrorText(
        "Session {session} cannot be continued, because something changed since it was interrupted: {what}.",
        "Undo that change, or leave `--resume` out to start a new session. Its answers stay in the cache.",
    ),
    "GBE423": ErrorText(
        "Session {session} cannot be replayed: {reason}.",
        "Replay another session, or negotiate again. A replay needs the session's folder or the lock, and the files as the "
        "session left them.",
    ),
    "GBE424": ErrorText(
        "The replay of session {session} differs from its record: {what}.",
        "Look for what the record does not hold: another version of GraphBus or Python, or a test that depends on chance.",
    ),
    "GBE425": ErrorText(
        "The session has finished, but the lock cannot be written: {reason}.",
        "Free disk space or correct the permissions, then negotiate again. The changes of the session are in your files.",
    ),
    "GBE426": ErrorText(
        "Session {session} ended without a result, because no agent got an answer: {reason}",
        "Test the model with `graphbus doctor --test`. Then continue with --resume, or use --model rules, which needs no "
        "model.",
    ),
    "GBE427": ErrorText(
        "{session} cannot be continued: it was not started here by your GraphBus, or its files were changed since.",
        "Leave `--resume` out to start a new session.",
    ),
    "GBE430": ErrorText("git cannot be run: {reason}.", "Install git, or leave out the option that needs it."),
    "GBE431": ErrorText(
        "`git {command}` failed: {reason}.", "Correct what git reports, then try again. GraphBus changed nothing."
    ),
    "GBE432": ErrorText(
        "There is no commit {revision!r} in this repository.",
        "Name a branch, tag or commit; `git log --oneline` lists the commits.",
    ),
    "GBE433": ErrorText("GraphBus cannot commit in this repository: {reason}.", "{advice}"),
    "GBE434": ErrorText(
        "Changes to {path} could not be committed: {reason}.",
        "Correct this first, or negotiate without --commit. No agent has been asked yet.",
    ),
    "GBE435": ErrorText(
        "The accepted changes of session {session} were written, but none of them was committed: {reason}.",
        "Commit them yourself: `git diff` shows them, `graphbus undo` takes them back, `graphbus build` builds with them.",
    ),
    "GBE436": ErrorText("{path} is not a text file of this project.{suggestion}", "Name a text file below {root}."),
    "GBE437": ErrorText(
        "{path} has no line {line}: it has {count}.", "Give the number of an existing line. Lines count from 1."
    ),
    # Models and their providers: exit status 5, as all of a negotiation
    "GBE440": ErrorText(
        "There is no key for {provider}: the environment variable {variable} is not set.",
        "Export {variable}, or choose another model with `--model`. `graphbus doctor` shows which ones are usable.",
    ),
    "GBE441": ErrorText(
        "{provider} cannot be used: the package {package} is not installed.",
        f'{how_to_install("llm")} Or choose `--model rules` or `--model "command:PROGRAM"`.',
    ),
    "GBE442": ErrorText(
        "{provider} rejected the key in {variable}: {reason}.",
        "Check the key and its permissions, then test it with `graphbus doctor --test {provider}`.",
    ),
    "GBE443": ErrorText(
        "{provider} has no model {model}: {reason}.",
        "Check the name after the colon, and the address of the provider if it is your own.",
    ),
    "GBE444": ErrorText(
        "{provider} rejected the request: {reason}.",
        "Correct what the provider names. If the prompt is too long, choose a model with a larger context.",
    ),
    "GBE445": ErrorText(
        "{provider} cannot answer now: {reason}.",
        "Try again later. To send fewer requests at a time, lower `concurrency` or `requests_per_minute` in "
        "[tool.graphbus.llm].",
    ),
    "GBE446": ErrorText(
        "{provider} cannot be reached at {address}: {reason}.",
        "Check that the server is running and that the network is up.",
    ),
    "GBE447": ErrorText(
        "{provider} did not finish its answer within {timeout_s:g} s.",
        "Raise `timeout_s` in [tool.graphbus.llm], or choose a faster model. `--resume` continues a negotiation.",
    ),
    "GBE448": ErrorText("The answer of {provider} was cut off: {reason}.", "Try again. Your request is not the cause."),
    "GBE449": ErrorText(
        "The response of {provider} is not a valid answer: {reason}.",
        "Check the address and the `wire` of the provider.",
    ),
    "GBE450": ErrorText(
        "The answer of {provider} is longer than {limit_bytes} bytes.",
        "Choose another model. No part of the answer was used.",
    ),
    "GBE451": ErrorText(
        "{provider} has no credit left for this key: {reason}.",
        "Check your account with the provider, or choose another model with `--model`.",
    ),
    "GBE452": ErrorText(
        "The program {program} cannot be started: {reason}.",
        "Check the words after `command:`, or give the program's full path.",
    ),
    "GBE453": ErrorText(
        "The program {program} failed with exit status {status}: {reason}.",
        "Run it by hand with a prompt on stdin. `pass_env` in [tool.graphbus.llm] lists the variables that GraphBus passes "
        "to it.",
    ),
    "GBE454": ErrorText(
        "The value of {variable} is not a key: it contains blanks, line breaks or characters that no key has.",
        "Export it again, with nothing but the key.",
    ),
    "GBE460": ErrorText(
        "{model} gave no usable answer in two attempts: {reason}",
        "Choose a larger model, which keeps to the format better. What was accepted before stays accepted.",
    ),
    "GBE461": ErrorText(
        "{model} refused to answer.", "Check what the source code asks of it, or choose another model."
    ),
    "GBE462": ErrorText(
        "{agent} was not asked: its prompt has about {tokens} tokens, and `max_prompt_tokens` allows {limit}.",
        "Split the class, or raise `max_prompt_tokens` in [tool.graphbus.llm] if the model accepts that many.",
    ),
    "GBE470": ErrorText(
        "The budget does not allow another request: {reason}.", "Raise that limit in [tool.graphbus.budget]."
    ),
    "GBE471": ErrorText(
        "The record of this session contains no answer of {model} to this request.",
        "Negotiate again: the source files, the settings or GraphBus itself have changed since the session.",
    ),
    "GBE472": ErrorText(
        "The answers of a model cannot be saved: {reason}.",
        "Free disk space or correct the permissions; `--resume` continues from here.",
    ),
    **RUN_REGISTER,
}
