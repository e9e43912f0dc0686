"""Code -> sentence and hint, of all families. Codes are public: never reused, never renumbered.

This half has usage, sources, edits and negotiation (GBE1xx to GBE4xx). `GraphBusError` imports the register when the first
error is made, because most commands never make one.
"""

from __future__ import annotations

from graphbus_core.errors import ErrorText
from graphbus_core.errors.run_register import RUN_REGISTER, how_to_install

REGISTER: dict[str, ErrorText] = {
    # Usage and configuration: exit status 2
    "GBE001": ErrorText("{count} problems were found.", ""),
    "GBE101": ErrorText(
        "{path} does not exist.", "Give a folder or file with your agents, e.g. `graphbus build agents/`."
    ),
    "GBE102": ErrorText("Unknown key {key!r} in {table}.{suggestion}", "Known keys: {known}."),
    "GBE103": ErrorText("{key} in {table} must be {expected}, not {got}.", "Correct the value in this file."),
    "GBE104": ErrorText("{path} is not valid TOML: {reason}.", "Correct the file; nothing was read from it."),
    "GBE105": ErrorText(
        "There is no package {name} here.",
        "Give the dotted name of a package below the working directory, its `src` or sys.path, or give a path.",
    ),
    "GBE106": ErrorText("{path} is no Python file.", "Give a folder, or a file `.py` with agents."),
    "GBE110": ErrorText("{message}", "`{command} --help` shows what it takes."),
    "GBE111": ErrorText(
        "{name!r} cannot be the name of a project: {reason}.", "Choose another folder name, e.g. `my-shop`."
    ),
    "GBE112": ErrorText(
        "There is something here already.", "Choose a new folder or empty this one; GraphBus never overwrites."
    ),
    "GBE113": ErrorText(
        "This cannot be written: {reason}.", "Check the permissions and the space on the disk; nothing was left."
    ),
    "GBE114": ErrorText(
        "{name!r} cannot be the name of a new agent: {reason}.", "Class names look like `ShippingService`."
    ),
    "GBE115": ErrorText(
        "{topic!r} is no topic.", "Topics look like `/Order/Created`; only --subscribes takes `*` and `**`."
    ),
    "GBE116": ErrorText("{one} and {other} would both give {method!r} as a method's name.", "Leave one of them out."),
    "GBE117": ErrorText("There is no agent called {name!r}.{suggestion}", "`graphbus inspect` lists the agents."),
    "GBE118": ErrorText(
        "This file exists already.", "Choose another name, or remove the file; GraphBus never overwrites."
    ),
    "GBE119": ErrorText(
        "The output cannot be written: {reason}.",
        "Give stdout another place. Files may have been written already: look before you run the command again.",
    ),
    "GBE120": ErrorText("There is no rule {name}.{suggestion}", "Codes and prefixes are known: {known}."),
    "GBE130": ErrorText("`{option} {name}` cannot be understood: {reason}.", "Example: `{option} {example}`."),
    "GBE131": ErrorText("{option} has no effect without {needed}.", "Add {needed}, or leave {option} out."),
    "GBE132": ErrorText("{option} and {other} exclude each other: {reason}.", "Leave one of them out."),
    "GBE140": ErrorText(
        "There is no provider {name!r} of models.{suggestion}",
        "Known: {known}. A table in [tool.graphbus.llm.providers] adds one.",
    ),
    "GBE141": ErrorText(
        "{spec!r} names no model: {reason}.",
        "Examples: `anthropic:claude-sonnet-5-5`, `ollama:qwen3-coder`, `command:PROGRAM ARGUMENTS`, `rules`.",
    ),
    "GBE142": ErrorText(
        "The provider {name} may not have {variable}: that key goes only to {owner}.",
        "Put the key of your server into a variable of its own and name that as `key_env`.",
    ),
    "GBE143": ErrorText(
        "{address!r} cannot be the address of the provider {name}: {reason}.",
        "Write e.g. `https://models.example.org/v1`, or `http://localhost:8000/v1` for a server on this machine.",
    ),
    "GBE144": ErrorText("{key} in {table} is missing.", "Add it to this file."),
    "GBE145": ErrorText("{got} dollars are no limit.", "Give `--max-usd` a number of at least 0; 0: no limit."),
    "GBE146": ErrorText("{name} cannot be used: {reason}.", "Correct the value where the configuration is made."),
    "GBE147": ErrorText(
        "There is a file here that is no report.", "Choose another name with `-o`, or write over it with `--force`."
    ),
    "GBE148": ErrorText(
        "--review asks a person before each change, and there is nobody to ask.",
        "Run it in a terminal, or leave --review out. From Python, give the `NegotiationSession` a reviewer.",
    ),
    "GBE149": ErrorText(
        "The report cannot be written: {reason}.", "Give another place with `-o`, or `-o -` for stdout."
    ),
    "GBE150": ErrorText(
        "{name} is no folder, and artifacts are compared folder by folder.",
        "Give two folders that `graphbus build` wrote; `graphbus contract diff` compares git revisions.",
    ),
    "GBE151": ErrorText("There is no dead letter {number}.", "`graphbus dlq ls` lists them."),
    "GBE152": ErrorText("No dead letter is named.", "Give the numbers that `graphbus dlq ls` shows, or `--all`."),
    "GBE153": ErrorText(
        "Dropping dead letters asks a person, and there is nobody to ask.",
        "Say `--yes` to drop them without a question.",
    ),
    "GBE154": Entry(
        "LLMConfig takes no key in `api_key`: settings are recorded, and a key must not be.",
        "Set the environment variable of the provider, such as ANTHROPIC_API_KEY, and leave `api_key` out."
        " For a server of your own, name the variable as `key_env` in [tool.graphbus.llm.providers.NAME].",
    ),
    "GBE155": ErrorText(
        "Whoever reaches {host} could use this graph: it needs a token.",
        "Put one of at least {length} characters into the variable {variable}, or into a file that `token_file` names.",
    ),
    "GBE156": ErrorText(
        "The token in {source} cannot be used: {reason}.",
        "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes a good one.",
    ),
    "GBE157": ErrorText(
        "{address!r} is no address to listen on: {reason}.", "Write PORT or HOST:PORT, e.g. `0.0.0.0:8766`."
    ),
    "GBE158": ErrorText(
        "{option} asks a person, and there is nobody to ask.", "Run it in a terminal, or leave {option} out."
    ),
    "GBE159": ErrorText("There is no command {name!r}.{suggestion}", "`help` lists them."),
    "GBE160": ErrorText("`{command}` cannot be understood: {reason}.", "Example: `{example}`."),
    "GBE161": ErrorText(
        "The settings in {path} cannot be read: {reason}.",
        "`--config` and the variable GRAPHBUS_CONFIG name a TOML file; nothing was done without it.",
    ),
    "GBE162": ErrorText(
        "The agents of this project are in several folders: {folders}.",
        "Say where the new one belongs, e.g. --path {first}.",
    ),
    "GBE163": ErrorText("{option} needs watchfiles, which is not installed.", how_to_install("watch")),
    "GBE164": ErrorText(
        "The project cannot be watched: {reason}.",
        "Leave large folders out with `exclude` in [tool.graphbus], or raise the limit of watches of the machine.",
    ),
    "GBE165": ErrorText(
        "These artifacts cannot follow their source files: a build writes to {path}.",
        "Leave --watch out, or run the artifacts that `graphbus build` writes.",
    ),
    "GBE166": ErrorText(
        "The script of {name} has no step left for {what}: it was used up after {times}.",
        "Add a step, or give one that is no list: it is taken every time.",
    ),
    "GBE167": ErrorText(
        "The script of {name} gives {what} something that its contract does not allow: {reason}.",
        "Correct the script, or the contract that the class declares.",
    ),
    "GBE168": ErrorText("The class {name} {what}.{suggestion}", "A script may do only what the class can do."),
    "GBE170": ErrorText("{version!r} is no version.", "Write it as in pyproject.toml, e.g. `--current 1.4.2`."),
    "GBE171": ErrorText(
        "{name!r} is neither a folder here nor a git revision: {reason}.",
        "Give a folder with agents or with artifacts, or a branch, tag or commit; `rev:NAME` is a revision in any case.",
    ),
    "GBE172": ErrorText(
        "There is no version of the {which} state to check.",
        "Give the version before with --current; that of now stands in `[project]` of pyproject.toml.",
    ),
    "GBE175": ErrorText("There is no state of {agent}.{suggestion}", "`graphbus state ls` lists what there is."),
    "GBE176": ErrorText("{agent} has no key {key!r}.{suggestion}", "`graphbus state ls {agent}` lists them."),
    "GBE177": ErrorText(
        "`state {command}` asks a person, and there is nobody to ask.", "Say `--yes` to go on without a question."
    ),
    "GBE178": ErrorText("No agent is named.", "Name one, and a key if only that shall go, or say `--all`."),
    "GBE179": ErrorText("There is a file here already.", "Choose another name, or write over it with `--force`."),
    "GBE190": ErrorText(
        "{path} holds what a build has written, not agents.",
        "Give the folder with your agents, e.g. `agents/`; `graphbus inspect {path}` shows what was built.",
    ),
    "GBE191": ErrorText(
        "{path} holds source files, not what a build has written.",
        "`graphbus check {path}` reads source files; after `graphbus build {path}` leave the folder out, or give `.graphbus`.",
    ),
    # Source files and the graph that they describe: exit status 3
    "GBE201": ErrorText("This file has a syntax error: {reason}.", "Correct it; the other files were still read."),
    "GBE202": ErrorText(
        "This file is not text in {encoding}: {reason}.",
        "Save it as UTF-8 or declare its encoding in the first line.",
    ),
    "GBE203": ErrorText(
        "This file has {size_bytes} bytes; GraphBus reads files up to {limit_bytes}.",
        "Exclude it with `exclude` in [tool.graphbus], or split it.",
    ),
    "GBE204": ErrorText("This file cannot be read: {reason}.", "Check its permissions."),
    "GBE205": ErrorText(
        "This link leads in a circle or out of the project.",
        "Remove the link or exclude it with `exclude` in [tool.graphbus].",
    ),
    "GBE206": ErrorText(
        "This file is nested too deeply to be read.",
        "Split its longest expression, or exclude the file with `exclude` in [tool.graphbus].",
    ),
    "GBE210": ErrorText(
        "Two agents are called {name}; the other one is at {other}.",
        "Agent names are unique in a graph: rename one of the classes.",
    ),
    "GBE211": ErrorText(
        "{agent} depends on {name}, which is no agent of this graph.{suggestion}",
        "Correct the name in @depends_on, or add the agent.",
    ),
    "GBE212": ErrorText(
        "The dependencies form a circle: {cycle}.",
        "Remove one @depends_on; events may go round, dependencies may not.",
    ),
    "GBE213": ErrorText(
        "There is no agent in {paths}{reason}.",
        "An agent is a class that derives from GraphBusNode; `graphbus generate agent NAME` writes one.",
    ),
    "GBE214": ErrorText(
        "{handler} cannot be called with an event.",
        "Take nothing, `event`, `payload`, both, or fields of the payload by name; no *args, none by position only.",
    ),
    "GBE215": ErrorText(
        "{handler} subscribes to {topic!r}, which is no topic.",
        "Topics look like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more.",
    ),
    "GBE216": ErrorText(
        "{agent} publishes to {topic!r}, which is no topic.",
        "Topics look like `/Order/Created`: letters, digits, `_` and `-` in each segment, and no wildcards.",
    ),
    "GBE220": ErrorText(
        "There is no {path}: no negotiation of this project has been locked.",
        "`graphbus build PATHS --enable-agents` negotiates and writes it; commit it.",
    ),
    "GBE221": ErrorText(
        "{agent}: {what}.",
        "`graphbus build PATHS --enable-agents` lets the agents settle on it; then commit the files and the lock.",
    ),
    "GBE222": ErrorText(
        "The lock cannot be read: {reason}.",
        "Restore it from version control, or negotiate again; after a merge keep both agents' blocks and one session.",
    ),
    # Changes to source text, promotion and undo: exit status 4
    "GBE301": ErrorText("There is no {target} in this file.{suggestion}", "It has: {known}."),
    "GBE302": ErrorText(
        "{target} is defined {count} times in this file, in the lines {lines}.",
        "Change the class or block around it as a whole, or use search_replace.",
    ),
    "GBE303": ErrorText("{target} is not the text that this change was written for.", "{nearest}"),
    "GBE304": ErrorText("The change to {target} changes nothing.", "The file already says this."),
    "GBE305": ErrorText(
        "The change to {target} also changes something else, near line {line}: {nearest}.",
        "Change one symbol with each edit.",
    ),
    "GBE306": ErrorText("After the change to {target} the file does not parse: {reason}.", "Near: {nearest}"),
    "GBE307": ErrorText("The text to replace is not in {target}.", "{nearest}"),
    "GBE308": ErrorText(
        "The text to replace occurs {count} times in {target}, in the lines {lines}.",
        "Quote more of the lines around it, so that it occurs once.",
    ),
    "GBE309": ErrorText("The new code for {target} must be {expected}; it is {found}.", "It begins with: {nearest}"),
    "GBE310": ErrorText("{target} is there already, in line {line}.", "{nearest}"),
    "GBE311": ErrorText(
        "The new code cannot be written in the file's encoding {encoding}: {reason}.",
        "Use other characters, or save the file as UTF-8 first.",
    ),
    "GBE312": ErrorText("This file cannot be edited: {reason}.", "Correct the file first; nothing was changed."),
    "GBE313": ErrorText(
        "The change to {target} does not say which text it was written for.",
        "Give old_code or base_sha256.",
    ),
    "GBE314": ErrorText("{target} has no single decorator {name} to change: {reason}.", "Its decorators: {nearest}"),
    "GBE315": ErrorText(
        "{target} shares its block with nothing else: {reason}.", "Change the class or block around it."
    ),
    "GBE317": ErrorText(
        "The change was written for an earlier text, and {target} was changed in another way since.",
        "It now reads: {accepted}",
    ),
    "GBE318": ErrorText(
        "Together with what was accepted since, the change does not parse: {reason}.",
        "It was written for an earlier text: write it for the present one.",
    ),
    "GBE320": ErrorText(
        "This file was changed while the session went on.",
        "Nothing was written. Build again, so that the agents see its present text.",
    ),
    "GBE321": ErrorText("{reason}; nothing was changed.", "Make room or give permission, then try again."),
    "GBE322": ErrorText("This is a link or lies behind one.", "GraphBus changes real files of the project only."),
    "GBE323": ErrorText("{path} is no file of this project.", "Give paths relative to the project root, without `..`."),
    "GBE324": ErrorText(
        "Another GraphBus process is writing to this project.", "Wait until it has ended, then try again."
    ),
    "GBE325": ErrorText(
        "An interrupted change could not be brought to its end: {reason}.",
        "The bytes before and after are in {folder}: put the files right, then remove that folder.",
    ),
    "GBE326": ErrorText(
        "{session} cannot be undone, because files were changed since: {paths}.",
        "Take those changes back first; nothing was changed.",
    ),
    "GBE327": ErrorText("There is nothing to undo{of_session}.", "Sessions that can be undone: {known}."),
    "GBE328": ErrorText(
        "What looks like an interrupted change was not written here by your GraphBus, or was changed since; it is left alone.",
        "Look whether the files that {folder} names are as you want them, then remove that folder.",
    ),
    "GBE330": ErrorText("This file was changed while it was checked; it was left alone.", "Check again."),
    "GBE331": ErrorText(
        "The {tier} jail for changed code could not be built: {reason}.",
        "Nothing has run. `graphbus doctor` says which jails there are here.",
    ),
    "GBE332": ErrorText(
        "This machine is too busy to judge the change: in {wall_s:.0f} s what was tried could use {used_s:.0f} of its"
        " {timeout_s:g} s.",
        "Nothing was refused or written. Try again when less runs here; `--resume` goes on with a negotiation.",
    ),
    "GBE340": ErrorText(
        "There is no agent in this project.",
        "Go to the folder of a project with agents, or give it with `graphbus -C`.",
    ),
    "GBE341": ErrorText(
        "The patch for {path} does not apply: {reason}.", "Make it again from the text that is there now."
    ),
    "GBE342": ErrorText(
        "The patch cannot be read: {reason}.", "Give a unified diff of text files, as `git diff` makes it."
    ),
    "GBE343": ErrorText("{path} cannot be read: {reason}.", "Give a file that is there, or `-` for standard input."),
    "GBE344": ErrorText(
        "There is no git repository here, so there is nothing to compare with.",
        "`--patch` and `--new` need no repository.",
    ),
    # Negotiations: exit status 5
    "GBE401": ErrorText(
        "arbiter_agents names {name}, which is no agent of this graph.{suggestion}",
        "Agents: {known}.",
    ),
    "GBE402": ErrorText(
        "The session {session} is there already.",
        "Ask for another name, or leave `session` empty to get the next free one.",
    ),
    "GBE403": ErrorText(
        "No negotiation has come to its end here yet: there is no session in {folder}.",
        "`graphbus negotiate agents/` or `graphbus build agents/ --enable-agents` runs one, "
        "`--resume` goes on with one that was interrupted.",
    ),
    "GBE404": ErrorText("There is no session {session}.{suggestion}", "Sessions: {known}."),
    "GBE405": ErrorText(
        "What was kept of session {session} cannot be read: {reason}.",
        "Read it with the GraphBus that wrote it, or delete its folder; sources and artifacts do not depend on it.",
    ),
    "GBE406": ErrorText("Session {session} has no {kind} {name}.{suggestion}", "It has: {known}."),
    "GBE407": ErrorText(
        "What was said in session {session} cannot be kept: {reason}; no source file was changed.",
        "Make room or give permission, then negotiate again.",
    ),
    "GBE408": ErrorText(
        "{session!r} is no name for a session.",
        "Use letters, digits, `-`, `_` and `.`, or leave the name out to get the next free one.",
    ),
    "GBE409": ErrorText(
        "The changes accepted in session {session} do not pass the gate together ({reason}), so that none was written.",
        "`graphbus inspect-negotiation --session {session}` shows them; negotiate again with fewer rounds.",
    ),
    "GBE410": ErrorText(
        "The changes of session {session} were written, but its record cannot be renewed: {reason}.",
        "Make room or give permission; `graphbus undo` takes the changes back, `graphbus build` builds with them.",
    ),
    "GBE411": ErrorText(
        "arbiter_domains names {name}, which is no arbiter.{suggestion}",
        "Arbiters: {known}. A class becomes one with `IS_ARBITER = True`, or by its name in arbiter_agents.",
    ),
    "GBE420": ErrorText(
        "Another negotiation of this project is running (process {process}).",
        "Wait for its end, or end it; a dry run is possible at any time.",
    ),
    "GBE421": ErrorText(
        "There is no session to go on with in {folder}: none was interrupted.",
        "Leave `--resume` out to begin a new one.",
    ),
    "GBE422": ErrorText(
        "Session {session} cannot go on: {what} since it was interrupted.",
        "Undo that change, or leave `--resume` out to begin a new session; its answers stay in the cache.",
    ),
    "GBE423": ErrorText(
        "Session {session} cannot be replayed: {reason}.",
        "A session can be replayed while its folder or the lock is there and the files that it read are as it left them.",
    ),
    "GBE424": ErrorText(
        "The replay of session {session} differs from its record: {what}.",
        "Something outside of the record had a say: another GraphBus, another Python, or a test that depends on chance.",
    ),
    "GBE425": ErrorText(
        "The session is done, but the lock cannot be written: {reason}.",
        "Make room or give permission, then negotiate again; the changes of the session are in your files.",
    ),
    "GBE426": ErrorText(
        "Session {session} came to nothing, because nobody could answer: {reason}",
        "`graphbus doctor --test` tries the model; --resume goes on with this session, --model rules needs none.",
    ),
    "GBE427": ErrorText(
        "{session} cannot be resumed, because it was not begun here by your GraphBus, or its files were changed since.",
        "Negotiate anew. `graphbus inspect-negotiation {session}` shows what was said.",
    ),
    "GBE430": ErrorText("git cannot be run: {reason}.", "Install git, or do without what needs it."),
    "GBE431": ErrorText(
        "`git {command}` refuses: {reason}.", "What git says of it is meant for you: GraphBus changed nothing."
    ),
    "GBE432": ErrorText(
        "There is no commit {revision!r} in this repository.", "`git log --oneline` shows what there is."
    ),
    "GBE433": ErrorText("No commit can be made here: {reason}.", "{advice}"),
    "GBE434": ErrorText(
        "Changes of {path} could not be committed: {reason}.",
        "Nothing was asked of anybody yet. Mend this, or negotiate without --commit.",
    ),
    "GBE435": ErrorText(
        "The accepted changes of session {session} are written, but none of them is committed: {reason}.",
        "Nothing is lost: `git diff` shows them, `graphbus undo` takes them back, `graphbus build` builds with them.",
    ),
    "GBE436": ErrorText(
        "{path} is no file that a decision could have written.{suggestion}", "It must be a text file below {root}."
    ),
    "GBE437": ErrorText("{path} has no line {line}: it has {count}.", "Lines count from 1."),
    # Models and their providers: exit status 5, as all of a negotiation
    "GBE440": ErrorText(
        "The key for {provider} is missing: {variable} is not in the environment.",
        "Export {variable}, or choose another model with `--model`; `graphbus doctor` tells which are usable.",
    ),
    "GBE441": ErrorText(
        "{provider} cannot be asked: {package} is not installed.",
        f'{how_to_install("llm")} Or choose `--model rules` or `--model "command:PROGRAM"`.',
    ),
    "GBE442": ErrorText(
        "{provider} does not accept the key in {variable}: {reason}.",
        "Check the key and what it may be used for; `graphbus doctor --test {provider}` tries it.",
    ),
    "GBE443": ErrorText(
        "{provider} has no model {model}: {reason}.",
        "Check the name after the colon, and the address of the provider if it is your own.",
    ),
    "GBE444": ErrorText(
        "{provider} refuses the request: {reason}.",
        "If the prompt is too long for the model, choose one with a larger context.",
    ),
    "GBE445": ErrorText(
        "{provider} cannot answer now: {reason}.",
        "Try again later; `concurrency` and `requests_per_minute` in [tool.graphbus.llm] lower the rate.",
    ),
    "GBE446": ErrorText(
        "{provider} cannot be reached at {address}: {reason}.", "Look whether the server is running and the network up."
    ),
    "GBE447": ErrorText(
        "{provider} did not finish its answer within {timeout_s:g} s.",
        "Raise `timeout_s` in [tool.graphbus.llm], or choose a faster model; `--resume` goes on with a negotiation.",
    ),
    "GBE448": ErrorText("The answer of {provider} broke off: {reason}.", "Try again; it is not your request."),
    "GBE449": ErrorText(
        "What {provider} sent is no answer: {reason}.", "Check the address and the `wire` of the provider."
    ),
    "GBE450": ErrorText(
        "The answer of {provider} is longer than {limit_bytes} bytes.", "Choose another model; nothing of it was used."
    ),
    "GBE451": ErrorText(
        "{provider} has no credit left for this key: {reason}.",
        "Look at the account of the provider, or choose another model with `--model`.",
    ),
    "GBE452": ErrorText(
        "The program {program} cannot be started: {reason}.", "Check the words after `command:`, or give a whole path."
    ),
    "GBE453": ErrorText(
        "The program {program} failed with status {status}: {reason}.",
        "Run it by hand with a prompt on stdin; `pass_env` in [tool.graphbus.llm] names the variables that it gets.",
    ),
    "GBE454": ErrorText(
        "What is in {variable} is no key: it holds blanks, line breaks or letters that no key has.",
        "Export it again, with nothing but the key.",
    ),
    "GBE460": ErrorText(
        "{model} gave no usable answer, twice: {reason}",
        "A larger model keeps to the format better; what was accepted before stays accepted.",
    ),
    "GBE461": ErrorText(
        "{model} refuses to answer.", "Look at what the source text asks of it, or choose another model."
    ),
    "GBE462": ErrorText(
        "{agent} is not asked: its prompt has about {tokens} tokens, and `max_prompt_tokens` allows {limit}.",
        "Split the class, or raise `max_prompt_tokens` in [tool.graphbus.llm] if the model takes so much.",
    ),
    "GBE470": ErrorText("The budget does not allow another request: {reason}.", "Raise the limit that is named."),
    "GBE471": ErrorText(
        "The record of this session holds no answer of {model} to what is asked now.",
        "Something that the session rests on has changed: the sources, the settings, or GraphBus itself.",
    ),
    "GBE472": ErrorText(
        "The answers of a model cannot be kept: {reason}.",
        "Make room or give permission; `--resume` goes on from here.",
    ),
    **RUN_REGISTER,
}
