"""The last part of the register: artifacts (GBE5xx), running graphs (GBE6xx), deployment (GBE7xx)."""

from __future__ import annotations

from graphbus_core.errors import ErrorText
from graphbus_core.errors.model_register import how_to_install

RUN_REGISTER: dict[str, ErrorText] = {
    # Artifacts: exit status 6
    "GBE501": ErrorText(
        "There are no build artifacts here{missing}.", "Run `graphbus build` first, or pass the folder that it wrote."
    ),
    "GBE502": ErrorText("This file is not a valid artifact: {reason}.", "Run `graphbus build` to write it again."),
    "GBE503": ErrorText(
        "These artifacts have the old format {version}; this version of GraphBus reads format {wanted}.",
        "Run `graphbus migrate` to convert them, or `graphbus build` to write them again.",
    ),
    "GBE504": ErrorText(
        "These artifacts have format {version}; this version of GraphBus reads format {wanted}.",
        "Upgrade GraphBus to the version that wrote them, or run `graphbus build` again.",
    ),
    "GBE505": ErrorText("The artifact {name} is missing.", "Run `graphbus build` to write it again."),
    "GBE506": ErrorText(
        "{name} does not match the manifest: it was edited, or a build was interrupted.",
        "Run `graphbus build` to write it again. Artifacts must not be edited by hand.",
    ),
    "GBE507": ErrorText(
        "This artifact cannot be opened: {reason}.",
        "{advice} Or run `graphbus build` to write it again.",
    ),
    "GBE508": ErrorText(
        "This file has changed since the artifacts were built.",
        "If the change is intended, run `graphbus build` again; if not, restore the file.",
    ),
    "GBE510": ErrorText(
        "The artifacts cannot be written here: {reason}.",
        "{advice} The earlier artifacts are intact.",
    ),
    "GBE511": ErrorText(
        "There is no agent {name} in these artifacts.{suggestion}", "Use one of these agents: {known}."
    ),
    "GBE512": ErrorText(
        "These artifacts cannot be converted to format {wanted}, because this source file has changed since they were built.",
        "Run `graphbus build` instead.",
    ),
    "GBE513": ErrorText(
        "Artifacts of format {version} cannot be converted; the oldest format that can be converted is {oldest}.",
        "Run `graphbus build` again.",
    ),
    "GBE514": ErrorText(
        "{name} is too large: it has {size_bytes:,} bytes, and an artifact has at most {limit_bytes:,}.",
        "Pass the folder that `graphbus build` wrote, or run `graphbus build` again.",
    ),
    "GBE515": ErrorText(
        "This bytecode file does not record when its source was modified, so Python might run outdated code.",
        "Delete the file. Python recreates it from the source.",
    ),
    "GBE516": ErrorText(
        "This path is a symbolic link that points outside the project, or passes through one, so the project does "
        "not control the file's content.",
        "Copy the file into the project, or install the package that it belongs to.",
    ),
    # Starting, running and stopping a graph: exit status 7
    "GBE601": ErrorText(
        "The module {module} cannot be imported: {reason}.",
        "{advice} All other modules were tried as well, and each failure is reported.",
    ),
    "GBE602": ErrorText(
        "The module {module} has no agent class {name}.{suggestion}",
        "Run `graphbus build` again if the class was renamed. A class that is defined conditionally must exist at run time.",
    ),
    "GBE603": ErrorText(
        "The agent {name} cannot be created: {reason}.",
        "Correct its `__init__`, which is called without arguments. Set up what the agent needs in `on_start`, or pass it "
        "with a `factory` in [tool.graphbus.runtime].",
    ),
    "GBE604": ErrorText("The module {module} must be loaded from {path}, but {problem}.", "{advice}"),
    "GBE605": ErrorText(
        "`on_start` of {name} failed: {reason}.",
        "Correct `on_start`. The agents that had already started were stopped.",
    ),
    "GBE606": ErrorText(
        "The entry point {name} cannot be called: {reason}.",
        "{advice}",
    ),
    "GBE607": ErrorText(
        "The entry point {name} failed: {reason}.", "Correct the function. The graph was shut down normally."
    ),
    "GBE608": ErrorText(
        "`on_stop` of {name} was not called, because a handler or method of it had not returned when the grace period ended.",
        "Its resources were not released. Make the handler or method return sooner, or raise `grace_s` in "
        "[tool.graphbus.runtime].",
    ),
    "GBE609": ErrorText(
        "No process runs {agent}, which is asked for {what}; none came within {waited_s:g} s.",
        "Start one: `graphbus run --only {agent}`. If starting one again takes longer, raise `missing_agent_s` in"
        " [tool.graphbus.runtime].",
    ),
    "GBE610": ErrorText(
        "{topic!r} cannot be used here: {reason}.",
        "Write topics like `/Order/Created`: letters, digits, `_` and `-` in each segment.",
    ),
    "GBE611": ErrorText("{handler} cannot handle events: {reason}.", "{advice}"),
    "GBE612": ErrorText(
        "A payload must be JSON, but {path} is {found}.",
        "Publish only dicts with strings as keys, lists, strings, finite numbers, booleans and None.",
    ),
    "GBE613": ErrorText(
        "The payload is larger than {limit} bytes.", "Publish a reference to the data instead of the data."
    ),
    "GBE614": ErrorText(
        "The payload of {topic} does not match its schema: {reason}.",
        "Correct the publisher, or the schema of the topic.",
    ),
    "GBE615": ErrorText(
        "The event {topic} was not published, because the bus is already closed.",
        "Publish it before the graph shuts down.",
    ),
    "GBE616": ErrorText(
        "{name} does not belong to a graph, so it cannot {what}.",
        "Connect it first: `with connect({name}) as graph: ...`.",
    ),
    "GBE617": ErrorText(
        "{handler} needs the field {field!r}, which is missing from the payload of {topic}.",
        "Add the field to the payload, or give the parameter a default value.",
    ),
    "GBE618": ErrorText(
        "The call ended without a result, because the graph is shutting down or the called method was interrupted.",
        "Repeat the call when the graph is running again. The method may already have run in part.",
    ),
    "GBE619": ErrorText(
        "No agent publishes or subscribes to {topic}.{suggestion}",
        "If the topic is new, run `graphbus build`. If other programs use it, list it in `external_topics` in [tool.graphbus].",
    ),
    "GBE620": ErrorText("There is no agent {agent} in this graph.{suggestion}", "Use one of its agents: {known}."),
    "GBE621": ErrorText("{agent} has no method {method} that can be called.{suggestion}", "{advice}"),
    "GBE622": ErrorText(
        "{agent}.{method} was called with the wrong arguments: {reason}.",
        "Correct the call, or the `input_schema` of the method.",
    ),
    "GBE623": ErrorText(
        "{agent}.{method} returned a wrong result: {reason}.", "Correct the method, or its `output_schema`."
    ),
    "GBE624": ErrorText(
        "{agent} calls {other} without declaring this dependency.",
        'Write @depends_on("{other}") above the class {agent}.',
    ),
    "GBE625": ErrorText("{agent}.{method} failed: {reason}.", "Correct the method; the log has the traceback."),
    "GBE626": ErrorText(
        "`on_stop` of {name} failed: {reason}.", "Correct `on_stop`. The other agents were still stopped."
    ),
    "GBE627": ErrorText(
        "A handler cannot stop the graph that it runs in.",
        "Stop the graph in the code that started it, or raise SystemExit in the handler.",
    ),
    "GBE628": ErrorText(
        "{handler} is a plain `def` method, so it cannot wait for the result of a call: it would block the event loop on "
        "which all code of the agent runs.",
        "Declare the method as `async def`, and write `await self.call(...)`.",
    ),
    "GBE629": ErrorText("There is no ledger yet.", "Start the graph with `graphbus run --ledger sqlite` first."),
    "GBE630": ErrorText(
        "{count} failed. First failure: {subscription} on {topic}: {error}.",
        "Correct the code that failed; the log above describes each failure.",
    ),
    "GBE631": ErrorText("{topic} was requested, but no handler answers it.{suggestion}", "{advice}"),
    "GBE632": ErrorText(
        "A request for {topic} needs exactly one handler, but {count} handlers subscribe to it: {names}.",
        "Remove all of these subscriptions but one. To reach several handlers, publish the event instead of "
        "requesting an answer.",
    ),
    "GBE633": ErrorText(
        "{what} would never return: {chain}.",
        "Break the cycle: publish an event instead of waiting for an answer. Within one agent, call the method directly: "
        "`self.name(...)`.",
    ),
    "GBE634": ErrorText(
        "A handler cannot wait for the receipt of {topic}: the event is finished only after the handler returns.",
        "Instead, subscribe to the events that the handlers of this event publish.",
    ),
    "GBE635": ErrorText(
        "{responder} did not answer {topic} within {timeout_s:g} s.",
        "Pass a longer `timeout_s`, or make the handler faster. If another process runs {responder}, look whether it is up.",
    ),
    "GBE636": ErrorText(
        "{topic} was not published, because the queue is full: {limit} events are waiting.",
        "Publish more slowly, or raise `queue` in [tool.graphbus.runtime].",
    ),
    "GBE637": ErrorText(
        "The request {topic} was refused, because the chain of events that led to it is too long. It is probably "
        "a cycle.",
        "Find the chain of events in the log above or in the dead letter, and break the cycle.",
    ),
    "GBE638": ErrorText(
        "The bus cannot run on this event loop, because it already uses another one.",
        "Enter `async with bus` before the bus handles its first event.",
    ),
    "GBE639": ErrorText(
        "{topic} cannot be awaited here, because the bus does not run on this event loop.",
        "Publish inside `async with bus` on this event loop.",
    ),
    "GBE640": ErrorText(
        "The options of the subscription {handler} are not valid: {reason}.",
        "Correct the arguments of its `@subscribe(...)`.",
    ),
    "GBE641": ErrorText(
        "The state of {agent} must be JSON, but {path} is {found}.",
        "The old value was kept. Store only dicts with string keys, lists, strings, finite numbers, booleans and None.",
    ),
    "GBE642": ErrorText(
        "The value of the state key {key!r} of {agent} is larger than {limit} bytes.",
        "Split it over several keys, or store it elsewhere. The old value was kept.",
    ),
    "GBE643": ErrorText(
        "{what} cannot be read: {reason}.",
        "{advice} Nothing was overwritten.",
    ),
    "GBE644": ErrorText(
        "{what} is locked by another process.", "Stop that process, or try again later. Nothing was changed."
    ),
    "GBE645": ErrorText(
        "{what} cannot be used: {reason}.",
        "{advice}",
    ),
    "GBE646": ErrorText(
        "The state key {key!r} of {agent} was changed by another process or thread during a transaction.",
        "Run the transaction again. None of its changes was written.",
    ),
    "GBE647": ErrorText(
        "{agent} used its state after the graph had stopped.",
        "Use `self.state` before the graph has stopped: `on_stop` is the last method that may use it.",
    ),
    "GBE648": ErrorText(
        "A handler cannot wait until the bus is idle, because the bus is busy until the handler returns.",
        "Wait in the code that started the graph.",
    ),
    "GBE649": ErrorText(
        "This graph no longer has the handler {subscription} of {topic}.",
        "Add the handler again, or drop the dead letter with `graphbus dlq drop`. The dead letter was kept.",
    ),
    "GBE650": ErrorText(
        "{handler} cannot accept the payload of {topic}: {reason}.",
        "Correct the publisher, or the class that the payload is converted to.",
    ),
    "GBE651": ErrorText(
        "{who} may not {what}: that needs `{example}` in [tool.graphbus.powers].",
        "To allow this, add the power to pyproject.toml. `graphbus powers` shows which powers are declared, and "
        "which the code uses.",
    ),
    "GBE652": ErrorText(
        "A confined graph cannot run on this machine, because the kernel cannot restrict {gaps}.",
        "Run it on Linux 5.13 or newer with Landlock and seccomp, or without --confined.",
    ),
    "GBE653": ErrorText(
        "The powers allow the graph to write to {path!r}, but this path cannot be used: {reason}.",
        "{advice}",
    ),
    "GBE654": ErrorText(
        "The operating system refused {what} ({reason}), because the graph runs confined: {declared}.",
        "`graphbus powers` shows which powers are declared, and which the code uses. Add the missing one to "
        "[tool.graphbus.powers] in pyproject.toml, then start the graph again.",
    ),
    "GBE655": ErrorText(
        "The factory {name} cannot be used: {reason}.",
        'Name a function of the project in [tool.graphbus.runtime]: factory = "package.module:name".',
    ),
    "GBE656": ErrorText(
        "The factory {factory} failed to create {name}: {reason}.",
        "Correct the factory. It is called with the class, and must return an instance of it.",
    ),
    "GBE657": ErrorText(
        "The factory {factory} returned {got} instead of an instance of {name}.",
        "Correct the factory: it must return an instance of the class that it is called with.",
    ),
    "GBE658": ErrorText(
        "There is no ledger {ledger!r}.",
        "Set `ledger` to `sqlite` or `nats://host:4222/app`, or leave it out to keep events in memory.",
    ),
    "GBE659": ErrorText("The NATS server{place} cannot be used: {reason}.", "{advice}"),
    "GBE660": ErrorText(
        "The middleware {middleware} is not a generator function: it returned a value of type {found}.",
        "Write a function with exactly one `yield`.",
    ),
    "GBE661": ErrorText(
        "The middleware {middleware} ended before its `yield`.",
        "Yield exactly once. To refuse an event or a call, raise an exception.",
    ),
    "GBE662": ErrorText(
        "The middleware {middleware} yielded a second time.",
        "Yield exactly once: the handler or method runs at that point.",
    ),
    "GBE663": ErrorText(
        "The middleware {name} cannot be used: {reason}.",
        'Name a function or class of the project in [tool.graphbus.runtime]: middleware = ["package.module:name"].',
    ),
    "GBE664": ErrorText(
        "`@subscribe` needs topics, but got {got}.",
        "Write `{example}`. To subscribe to several topics, pass each as a separate argument.",
    ),
    "GBE665": ErrorText(
        "`self.agent` needs the class of an agent, but got {got}.",
        'Write `self.agent(Pricing).quote(...)`, or call by name: `self.call("Pricing", "quote", ...)`.',
    ),
    "GBE666": ErrorText("The simulation has no usable events: {reason}.", "{advice}"),
    "GBE667": ErrorText(
        "This graph cannot be simulated: {reason}.",
        "A simulation repeats a run exactly, so handlers may wait, store and publish, but not use threads, sockets or other "
        "processes. Replace what does so with a factory in [tool.graphbus.runtime].",
    ),
    "GBE668": ErrorText(
        "An invariant does not hold under seed {seed}: {invariant} {what}.",
        "Correct the handler, then repeat this run: `{command}`.",
    ),
    "GBE669": ErrorText(
        "{what} failed in another process: {reason}.", "Correct it there; the log of that process says more."
    ),
    "GBE670": ErrorText("The body of the request cannot be read: {reason}.", "{advice}"),
    "GBE671": ErrorText("{what} needs packages that are not installed: {packages}.", how_to_install("{extra}")),
    "GBE672": ErrorText(
        "The server cannot listen on {address}: {reason}.",
        "{advice}",
    ),
    "GBE673": ErrorText(
        "The request does not carry the bearer token of this server.", "Send the header `Authorization: Bearer TOKEN`."
    ),
    "GBE674": ErrorText(
        "The request is addressed to the host {host!r}, which is not one of the hosts that this server accepts.",
        "Add the host to `allowed_hosts` in [tool.graphbus.runtime.serve].",
    ),
    "GBE675": ErrorText(
        "Pages from {origin!r} may not send requests to this server.",
        "Add the origin to `allowed_origins` in [tool.graphbus.runtime.serve].",
    ),
    "GBE676": ErrorText(
        "The body of the request is larger than {limit} bytes.",
        "Send less data, or raise `max_body_bytes` in [tool.graphbus.runtime.serve].",
    ),
    "GBE677": ErrorText(
        "The body of the request was sent {got}, but this server accepts only uncompressed JSON.",
        "{advice}",
    ),
    "GBE678": ErrorText("The server is busy (running and waiting requests: {count}).", "Try again in a moment."),
    "GBE679": ErrorText(
        "There was no answer within {timeout_s:g} s, but the call may still finish.",
        "Check whether the call took effect before you repeat it.",
    ),
    "GBE680": ErrorText(
        "{agent} was left out when the graph started: {reason}.",
        "Correct this error, then start the graph again. The other agents are running, because of `--partial`.",
    ),
    "GBE681": ErrorText(
        "{name} was skipped in the debugger, so the event is a dead letter.",
        "To run the handler after all, replay the event with `graphbus dlq replay`.",
    ),
    "GBE682": ErrorText(
        "No breakpoint can be set at {name}, which is not a handler or method of this graph.{suggestion}",
        "Use one of these: {known}.",
    ),
    "GBE683": ErrorText(
        "{what} cannot be written: {reason}.",
        "{advice}",
    ),
    "GBE684": ErrorText("There is no trace in {folder} yet.", "Run `graphbus run --trace` to write one."),
    "GBE685": ErrorText("The trace contains no event {event_id}.", "Run `graphbus trace` to list the latest events."),
    "GBE686": ErrorText(
        "{count} events have an ID that begins with {event_id}: {known}.", "Type more characters of the ID."
    ),
    "GBE687": ErrorText(
        "No profile can be shown: {reason}.", "Run `graphbus run --profile`: it writes a new profile when it ends."
    ),
    "GBE688": ErrorText(
        "GraphBus refused {count} of {total} input lines.",
        "Correct these lines, as the messages above say, and enter them again. The other lines were carried out.",
    ),
    "GBE689": ErrorText("{name} failed: {reason}.", "Correct the code and restart the graph, which is still running."),
    "GBE690": ErrorText(
        "The tool has no answer, because `graphbus {command}` was ended: {reason}.",
        "Run `graphbus {command}` in a terminal, which shows what it prints besides its answer.",
    ),
    "GBE691": ErrorText(
        "This process cannot handle partition {partition}: {reason}.",
        "Give the agents partitions in [tool.graphbus.runtime.nats.partitions], or leave --partition out.",
    ),
    "GBE692": ErrorText(
        "Another process ({process}) handles the events of {agent}, with a state file of its own.",
        "Run it once. [tool.graphbus.runtime.nats] can divide the events of an agent by key (`partitions`), or let processes"
        " share them where neither order nor state matters (`shared`). To publish and ask only, use `--only outside`.",
    ),
    "GBE693": ErrorText(
        "The settings divide the events of {agent}, but none of its subscriptions has a key to divide them by.",
        "Declare one with `@subscribe(topic, key=...)`, or remove {agent} from [tool.graphbus.runtime.nats.partitions].",
    ),
    "GBE694": ErrorText("The view cannot show or do this: {reason}.", "{advice}"),
    "GBE695": ErrorText(
        "There is no agent {name} in this graph, so it cannot be run on its own.{suggestion}",
        "Use one of its agents: {known}.",
    ),
    "GBE696": ErrorText(
        "{agent} does not run in this process, which was started with {asked}.",
        "Give all processes one ledger, which carries calls and requests between them: `--ledger sqlite`. Or run the agents"
        " together, without --only.",
    ),
    "GBE697": ErrorText(
        "This file cannot be used as an export of agent states: {reason}.", "{advice} Nothing was changed."
    ),
    "GBE698": ErrorText(
        "This ledger cannot hand out events again that are done: {reason}.",
        "Publish them again, for instance `graphbus run --publish TOPIC PAYLOAD`. The ledger `sqlite` keeps them for a day.",
    ),
    "GBE699": ErrorText(
        "The export cannot be written: {reason}.",
        "{advice} No state was changed.",
    ),
    # Deployment: exit status 8
    "GBE701": ErrorText(
        "{count} would be overwritten with different content: {names}.",
        "Compare them with --diff, or overwrite them with --force, which shows what changes.",
    ),
    "GBE702": ErrorText(
        "This file cannot be written: {reason}.",
        "{advice} No file was written.",
    ),
    "GBE703": ErrorText("{value} is not a valid {kind}: {reason}.", "Use, for example, `{example}`."),
    "GBE704": ErrorText("{program} was not found on PATH.", "Install {program}, or {otherwise}."),
    "GBE705": ErrorText("`{command}` failed with exit status {status}.", "{advice}"),
    "GBE706": ErrorText(
        "GraphBus would now generate different content for {count}: {names}.",
        "To update them, run the same command with --force instead of --check.",
    ),
    "GBE710": ErrorText(
        "The agents import packages that are not pinned to a version: {modules}.",
        "Pin them with their hashes, e.g. `uv pip compile --generate-hashes deps.in -o requirements.txt`, and pass the "
        "file: --requirements requirements.txt. Pass packages that the agents can do without to --optional.",
    ),
    "GBE711": ErrorText(
        "This file does not pin every requirement: {reason}.",
        "Generate it with hashes, e.g. with `uv pip compile --generate-hashes` or `pip-compile --generate-hashes`.",
    ),
    "GBE712": ErrorText(
        "The base image {image} is not pinned: without a digest, its tag may later refer to a different image.",
        "Write NAME:TAG@sha256:..., or pass --allow-unpinned.",
    ),
    "GBE713": ErrorText(
        "There is no pinned base image for Python {version}.",
        "Pass one of these versions with --python: {known}. Or pass another image with `graphbus docker build --base`.",
    ),
    "GBE714": ErrorText(
        "{path} cannot be added to the image: {reason}.",
        "{advice}",
    ),
    "GBE715": ErrorText(
        "{program} is installed, but its engine does not answer: {reason}.", "Start the engine, or {otherwise}."
    ),
    "GBE716": ErrorText(
        "The image has no name, because the project has no {missing}.",
        "Set it in [project] of pyproject.toml, or pass {option} {example}.",
    ),
    "GBE720": ErrorText(
        "The image {image} is not pinned: without a digest or a tag other than `latest`, its name may later refer "
        "to a different image.",
        "Use a digest or a tag that never moves, e.g. --image {example}.",
    ),
    "GBE722": ErrorText(
        "The agents cannot run in separate pods, because without a ledger on NATS a bus connects only agents of one "
        "process; {count} would be lost: {edges}.",
        "Connect them with --ledger nats://HOST:PORT/APP, or keep them together with --topology single.",
    ),
    "GBE723": ErrorText(
        "{first} and {second} would have the same name in the cluster, {label}.",
        "Rename one of the agents, or keep them together with --topology single.",
    ),
    "GBE724": ErrorText(
        "No name in the cluster can be derived from the agent {agent}: its name contains none of the characters "
        "a-z and 0-9.",
        "Rename the agent, or keep the agents together with --topology single.",
    ),
    "GBE728": ErrorText(
        "{name} would have {replicas} replicas, each with a bus of its own.",
        "Leave it at one replica: without a ledger on NATS, an event reaches only agents in the process that "
        "published it.",
    ),
    "GBE729": ErrorText(
        "The manifests must be for the namespace {namespace}, but they use: {found}.",
        "Generate them again with --namespace {namespace}, or pass the folder that contains the right manifests.",
    ),
    "GBE730": ErrorText(
        "There is no {file} in this folder.",
        "Run `graphbus k8s generate` to write one, or pass the folder that contains it.",
    ),
    "GBE731": ErrorText(
        "kubectl has no cluster to deploy to: {reason}.",
        "Choose a cluster with `kubectl config use-context`, or pass --context for this command only.",
    ),
    "GBE732": ErrorText(
        "Deploying to {target} needs confirmation, but there is no terminal to ask on.",
        "Pass --yes to deploy without confirmation, or --dry-run to see what would happen.",
    ),
    "GBE733": ErrorText(
        "kustomize cannot render this folder: {reason}.",
        "Create or correct the file that the message names, or remove it from `kustomization.yaml` in this folder.",
    ),
    "GBE734": ErrorText(
        "--image needs manifests with exactly one image, but these name {names}.",
        "Leave --image out. To set several images, use a kustomize overlay with `images:`.",
    ),
    "GBE736": ErrorText(
        "{path} does not exist, so the jobs cannot install GraphBus.",
        "Create it with the line `graphbus @ https://...`: the address and the hash of a wheel. Or build a wheel "
        "from a checkout of GraphBus in FOLDER: `python -m pip wheel --no-deps --wheel-dir wheels FOLDER && "
        "printf '%s\\n' ./{wheel} pytest > {file}`. Then add the packages that the agents import. To use another "
        "file, pass --requirements.",
    ),
    "GBE737": ErrorText(
        "{value} cannot be used in a pipeline as a {kind}.",
        "{advice}",
    ),
    "GBE738": ErrorText(
        "The project does not allow Python {wanted}: it requires {requires}.",
        "Pass another version with --python, or leave the option out to get one that fits.",
    ),
    "GBE739": ErrorText(
        "This line would install a different package: on public indexes, the name `graphbus` belongs to another "
        "project.",
        "Pin GraphBus with its hash, or by the address of its wheel: `graphbus @ https://...`.",
    ),
    "GBE740": ErrorText(
        "This ledger cannot be used in manifests: {reason}.",
        "Pass `sqlite`, or an address without user and password, e.g. {example}. Credentials belong in a secret.",
    ),
    "GBE741": ErrorText(
        "{name} would have {replicas} pods, each with a state file of its own.",
        "Divide its events by key with [tool.graphbus.runtime.nats.partitions]; or, if neither order nor state matters, list it"
        " under `shared` in [tool.graphbus.runtime.nats].",
    ),
    "GBE745": ErrorText(
        "The contracts of {state} cannot be read: {reason}.",
        "Compare with another revision, in which this file can be read.",
    ),
    "GBE746": ErrorText(
        "There are neither agents nor artifacts in {path}.",
        "Pass the folder that contains the agents, or write artifacts with `graphbus build` first.",
    ),
    "GBE747": ErrorText(
        "What runs in an environment is recorded in git, and this project is in no git repository.",
        "Run the command in a clone of the project, or make a repository with `git init`.",
    ),
    "GBE748": ErrorText(
        "The record of {component} in the environment {environment} is damaged: {reason}.",
        "Remove it with `graphbus deployed rm {environment} --component {component}`, and record again what runs there.",
    ),
    "GBE749": ErrorText(
        "A newer GraphBus has recorded {component} in the environment {environment}: its format is {version}, not {known}.",
        "Use that version of GraphBus here.",
    ),
}
