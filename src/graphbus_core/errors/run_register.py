"""The second half of the register: artifacts (GBE5xx), running graphs (GBE6xx) and deployment (GBE7xx)."""

from __future__ import annotations

from graphbus_core import __version__
from graphbus_core.errors import ErrorText


def how_to_install(extra: str) -> str:
    """Return the hint for a missing extra. It must not name `graphbus` alone, which is another package on public indexes."""
    return (
        f"In a checkout of GraphBus run `pip install '.[{extra}]'`, "
        f"or beside its wheel `pip install './graphbus-{__version__}-py3-none-any.whl[{extra}]'`."
    )


RUN_REGISTER: dict[str, ErrorText] = {
    # Artifacts: exit status 6
    "GBE501": ErrorText(
        "There are no build artifacts here{missing}.", "Run `graphbus build` first, or name the folder that it wrote."
    ),
    "GBE502": ErrorText("{name} cannot be read as an artifact: {reason}.", "Run `graphbus build` to write it again."),
    "GBE503": ErrorText(
        "These artifacts have the old format {version}; this GraphBus reads format {wanted}.",
        "Run `graphbus migrate` to convert them, or `graphbus build` to write them again.",
    ),
    "GBE504": ErrorText(
        "These artifacts have format {version}; this GraphBus reads format {wanted}.",
        "Upgrade GraphBus to the version that wrote them, or run `graphbus build` again.",
    ),
    "GBE505": ErrorText("The artifact {name} is missing.", "Run `graphbus build` to write it again."),
    "GBE506": ErrorText(
        "{name} does not match the manifest: it was edited, or a build was interrupted.",
        "Run `graphbus build` to write it again. Artifacts must not be edited by hand.",
    ),
    "GBE507": ErrorText("{name} cannot be opened: {reason}.", "Check the artifact folder and its permissions."),
    "GBE508": ErrorText(
        "This file has changed since the artifacts were built.", "If you meant the change, run `graphbus build` again."
    ),
    "GBE510": ErrorText(
        "The artifacts cannot be written here: {reason}.",
        "Free disk space, correct the permissions or remove the link. The artifacts from before are intact.",
    ),
    "GBE511": ErrorText(
        "There is no agent {name} in these artifacts.{suggestion}", "Use one of these agents: {known}."
    ),
    "GBE512": ErrorText(
        "These artifacts cannot be converted to format {wanted}, because this source file has changed since they were built.",
        "Run `graphbus build` instead.",
    ),
    "GBE513": ErrorText(
        "Artifacts of format {version} cannot be converted; the oldest format that can is {oldest}.",
        "Run `graphbus build` again.",
    ),
    "GBE514": ErrorText(
        "{name} has {size_bytes:,} bytes; an artifact has at most {limit_bytes:,}.",
        "Name the folder that `graphbus build` wrote, or run `graphbus build` again.",
    ),
    "GBE515": ErrorText(
        "This bytecode file does not record the time of its source, so that Python could run outdated code.",
        "Delete the file. Python makes it again from the source.",
    ),
    "GBE516": ErrorText(
        "This file is a link that leaves the project, or lies behind one, so its content is not under the project's control.",
        "Copy the file into the project, or install the package that it belongs to.",
    ),
    # Starting, running and stopping a graph: exit status 7
    "GBE601": ErrorText(
        "The module {module} cannot be imported: {reason}.", "Correct the module. The other modules were tried as well."
    ),
    "GBE602": ErrorText(
        "The module {module} has no agent class {name}.{suggestion}",
        "Run `graphbus build` again if the class was renamed. A class that is defined conditionally must exist at run time.",
    ),
    "GBE603": ErrorText(
        "The agent {name} cannot be created: {reason}.",
        "Agents are created without arguments. Set up what the agent needs in `on_start`, or pass it with a `factory` in "
        "[tool.graphbus.runtime].",
    ),
    "GBE604": ErrorText(
        "The module {module} must be loaded from {path}, but Python finds it in {found}.",
        "Rename one of the two: another module of this name is in the way.",
    ),
    "GBE605": ErrorText(
        "`on_start` of {name} failed: {reason}.", "Correct `on_start`. The agents that had started were stopped."
    ),
    "GBE606": ErrorText("The entry point {name} cannot be called: {reason}.", "Write it as package.module:function."),
    "GBE607": ErrorText(
        "The entry point {name} failed: {reason}.", "Correct the function. The graph was shut down normally."
    ),
    "GBE608": ErrorText(
        "`on_stop` of {name} was not called, because one of its handlers or methods did not return.",
        "Resources that the agent holds were not released. Correct the handler, or raise `grace_s` in [tool.graphbus.runtime].",
    ),
    "GBE610": ErrorText(
        "{topic!r} cannot be used here: {reason}.",
        "Write topics like `/Order/Created`: letters, digits, `_` and `-` in each segment.",
    ),
    "GBE611": ErrorText(
        "An event cannot fill the parameters of the handler {handler}: {reason}.",
        "Use one of the signatures in the table in docs/writing-agents.md.",
    ),
    "GBE612": ErrorText(
        "A payload must be JSON, but {path} is {found}.", "Publish dicts, lists, strings, numbers, booleans and None."
    ),
    "GBE613": ErrorText(
        "The payload is larger than {limit} bytes.", "Publish a reference to the data instead of the data."
    ),
    "GBE614": ErrorText(
        "The payload of {topic} does not match its schema: {reason}.",
        "Correct the publisher, or the schema of the topic.",
    ),
    "GBE615": ErrorText("{topic} was published on a bus that is closed.", "Publish before the graph shuts down."),
    "GBE616": ErrorText(
        "{name} does not belong to a graph, so it cannot {what}.",
        "Connect it first: `with connect({name}) as graph: ...`.",
    ),
    "GBE617": ErrorText(
        "{handler} needs the field {field!r}, which is missing in the payload of {topic}.",
        "Send the field, or give the parameter a default.",
    ),
    "GBE618": ErrorText(
        "The call was interrupted before it finished.",
        "Call again when the graph runs: it is shutting down, or a handler ended it.",
    ),
    "GBE619": ErrorText(
        "No agent publishes or subscribes to {topic}.{suggestion}",
        "Build again if the topic is new, or list it in `external_topics` in [tool.graphbus].",
    ),
    "GBE620": ErrorText("There is no agent {agent} in this graph.{suggestion}", "Use one of its agents: {known}."),
    "GBE621": ErrorText(
        "{agent} has no method {method} that can be called.{suggestion}",
        "Call one of its methods with @schema_method: {known}.",
    ),
    "GBE622": ErrorText(
        "{agent}.{method} was called with the wrong arguments: {reason}.",
        "Correct the call, or the input_schema of the method.",
    ),
    "GBE623": ErrorText(
        "{agent}.{method} returned a wrong result: {reason}.", "Correct the method, or its output_schema."
    ),
    "GBE624": ErrorText(
        "{agent} calls {other} without declaring that it depends on it.",
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
        "A plain `def` method cannot wait for a call here: all code of its agent runs on the event loop, where results are "
        "awaited.",
        "Make the method `async def`, as other methods of the agent are, and write `await self.call(...)`.",
    ),
    "GBE630": ErrorText(
        "{count} failed. The first: {subscription} on {topic}: {error}.",
        "Read the log above: it describes each failure.",
    ),
    "GBE631": ErrorText(
        "{topic} was requested, but no handler answers it.{suggestion}",
        "Add exactly one handler that subscribes to it.",
    ),
    "GBE632": ErrorText(
        "{topic} was requested, but {count} handlers subscribe to it: {names}.",
        "Leave one of them to answer. To reach several handlers, publish the event.",
    ),
    "GBE633": ErrorText(
        "{topic} would wait for itself: {chain}.",
        "An agent cannot wait for its own answer. Call the method directly, or publish an event and do not wait.",
    ),
    "GBE634": ErrorText(
        "A handler cannot wait for the receipt of {topic}: the event is finished only after the handler returns.",
        "Subscribe to the events that follow from it instead.",
    ),
    "GBE635": ErrorText(
        "{responder} did not answer {topic} within {timeout_s:g} s.", "Raise the timeout, or let the handler do less."
    ),
    "GBE636": ErrorText(
        "{topic} was not published: {limit} events are waiting already.",
        "Publish more slowly, or raise `queue` in [tool.graphbus.runtime].",
    ),
    "GBE637": ErrorText(
        "{topic} was not requested: too many events in a row led to it.",
        "Read its dead letter or the log above for the chain of events, and break the cycle.",
    ),
    "GBE638": ErrorText(
        "The bus cannot move to this event loop, because it already has one.",
        "Enter `async with` before the first event is handled.",
    ),
    "GBE639": ErrorText(
        "{topic} cannot be awaited here: the bus does not run on this event loop.", "Enter `async with bus` first."
    ),
    "GBE640": ErrorText(
        "The options of the subscription {handler} are not valid: {reason}.", "Correct its `@subscribe(...)`."
    ),
    "GBE641": ErrorText(
        "The state of {agent} must be JSON, but {path} is {found}.",
        "Store dicts with strings as keys, lists, strings, numbers, booleans and None. The old value was kept.",
    ),
    "GBE642": ErrorText(
        "The value of the state key {key!r} of {agent} is larger than {limit} bytes.",
        "Spread it over several keys, or store it elsewhere. The old value was kept.",
    ),
    "GBE643": ErrorText(
        "{what} cannot be read: {reason}.",
        "Move the file away, and GraphBus creates a new one. Nothing was overwritten.",
    ),
    "GBE644": ErrorText(
        "{what} is locked by another process.", "Stop that process, or try again later. Nothing was changed."
    ),
    "GBE645": ErrorText(
        "{what} cannot be used: {reason}.", "Check that it is a regular file, and that it can be written."
    ),
    "GBE646": ErrorText(
        "The state key {key!r} of {agent} was changed by another process or thread during a transaction.",
        "Run the transaction again. None of it was written.",
    ),
    "GBE647": ErrorText(
        "{agent} used its state after the graph had stopped.", "Use `self.state` in `on_stop` at the latest."
    ),
    "GBE648": ErrorText(
        "A handler cannot wait until the bus is idle, because the bus is busy until the handler returns.",
        "Wait in the code that started the graph.",
    ),
    "GBE649": ErrorText(
        "This graph no longer has the handler {subscription} of {topic}.",
        "Drop the dead letter, or add the handler again. The letter was kept.",
    ),
    "GBE650": ErrorText(
        "{handler} cannot accept the payload of {topic}: {reason}.",
        "Correct the publisher, or the class that the payload is converted to.",
    ),
    "GBE651": ErrorText(
        "{who} may not {what}: that needs `{example}` in [tool.graphbus.powers].",
        "Decide whether to add it. `graphbus powers` shows which powers are declared, and which the code uses.",
    ),
    "GBE652": ErrorText(
        "A confined graph cannot run on this machine: the kernel does not enforce {gaps}.",
        "Run it on Linux 5.13 or newer with Landlock or seccomp, or without --confined.",
    ),
    "GBE653": ErrorText(
        "The powers let the graph write to {path!r}, but it cannot be used: {reason}.",
        "Create it first. If it is a folder, end the name with `/`: then it is created when the graph starts.",
    ),
    "GBE654": ErrorText(
        "{who} may not {what}, because the graph runs confined: {declared}.",
        "If it should be able to, declare more in [tool.graphbus.powers] of pyproject.toml, and start the graph again.",
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
        "Write `{example}`. To subscribe to several topics, pass each as an argument of its own.",
    ),
    "GBE665": ErrorText(
        "`self.agent` needs the class of an agent, but got {got}.",
        'Write `self.agent(Pricing).quote(...)`, or call by name: `self.call("Pricing", "quote", ...)`.',
    ),
    "GBE670": ErrorText(
        "The body of the request cannot be read: {reason}.", "Send one JSON document (RFC 8259) in UTF-8."
    ),
    "GBE671": ErrorText("{what} needs packages that are not installed: {packages}.", how_to_install("{extra}")),
    "GBE672": ErrorText(
        "The server cannot listen on {address}: {reason}.",
        "Choose another address or port, or stop the process that uses this one.",
    ),
    "GBE673": ErrorText(
        "The request does not carry the bearer token of this server.", "Send the header `Authorization: Bearer TOKEN`."
    ),
    "GBE674": ErrorText(
        "The request is addressed to the host {host!r}, which this server does not answer for.",
        "Add the host to `allowed_hosts` in [tool.graphbus.runtime.serve].",
    ),
    "GBE675": ErrorText(
        "Pages from {origin!r} may not send requests to this server.",
        "Add the origin to `allowed_origins` in [tool.graphbus.runtime.serve].",
    ),
    "GBE676": ErrorText(
        "The body of the request is larger than {limit} bytes.", "Send a reference to the data instead of the data."
    ),
    "GBE677": ErrorText(
        "The body of the request is sent as {got}, which this server does not read.",
        "Send it as `Content-Type: application/json`, not compressed.",
    ),
    "GBE678": ErrorText("The server is busy: {count} requests are waiting already.", "Try again a little later."),
    "GBE679": ErrorText(
        "There was no answer within {timeout_s:g} s, but the call may still finish.",
        "Check whether it took effect before you repeat it.",
    ),
    "GBE680": ErrorText(
        "{agent} was left out when the graph started: {reason}.",
        "Correct that and start the graph again. Because of `--partial`, the other agents run.",
    ),
    "GBE681": ErrorText(
        "{name} was skipped in the debugger.", "Replay the event if you need it: it is among the dead letters."
    ),
    "GBE682": ErrorText("There is no handler or method {name} to stop at.{suggestion}", "Use one of these: {known}."),
    "GBE683": ErrorText(
        "{what} cannot be written: {reason}.", "Check the permissions and the free disk space of `state_dir`."
    ),
    "GBE684": ErrorText("There is no trace to read: {reason}.", "Run `graphbus run --trace` to write one."),
    "GBE685": ErrorText("The trace contains no event {event_id}.", "Run `graphbus trace` to list the latest events."),
    "GBE686": ErrorText(
        "{count} events have an ID that begins with {event_id}: {known}.", "Type more characters of the ID."
    ),
    "GBE687": ErrorText(
        "There is no profile to read: {reason}.", "Run `graphbus run --profile`, which writes one when it ends."
    ),
    "GBE688": ErrorText(
        "{count} of {total} lines were refused.",
        "Read the messages above for the reasons. The other lines were carried out.",
    ),
    "GBE689": ErrorText("{name} failed: {reason}.", "Correct the code, then try again. The graph is still running."),
    "GBE695": ErrorText(
        "The graph has no agent {name} to run on its own.{suggestion}", "Use one of its agents: {known}."
    ),
    "GBE696": ErrorText(
        "{agent} does not run in this process, which was started with {asked}.",
        "Run the agents together, without --only: a bus does not reach into another process.",
    ),
    "GBE697": ErrorText(
        "This is not an export of states: {reason}.",
        "Use a file that `graphbus state export` wrote. Nothing was changed.",
    ),
    "GBE699": ErrorText(
        "The export cannot be written: {reason}.", "Free disk space, or choose another place. Nothing was changed."
    ),
    # Deployment: exit status 8
    "GBE701": ErrorText(
        "{count} would be overwritten with different content: {names}.",
        "Use --diff to compare, or --force to overwrite, which shows what changes.",
    ),
    "GBE702": ErrorText(
        "{path} cannot be written: {reason}.", "Correct the cause, then run the command again. No file was written."
    ),
    "GBE703": ErrorText("{value} is not a valid {kind}: {reason}.", "Write, for example, {example}."),
    "GBE704": ErrorText("{program} was not found.", "Install it, or {otherwise}."),
    "GBE705": ErrorText("`{command}` failed with exit status {status}.", "Read its output above for the cause."),
    "GBE706": ErrorText(
        "{count} would differ from what GraphBus generates now: {names}.",
        "Run the same command with --force instead of --check.",
    ),
    "GBE710": ErrorText(
        "The agents import packages that are not pinned to a version: {modules}.",
        "Pin them with their hashes, e.g. `uv pip compile --generate-hashes deps.in -o requirements.txt`, and pass the "
        "file: --requirements requirements.txt. Name packages that the agents can do without with --optional.",
    ),
    "GBE711": ErrorText(
        "{path} does not pin every requirement: {reason}.",
        "Generate it with hashes, e.g. with `uv pip compile --generate-hashes` or `pip-compile --generate-hashes`.",
    ),
    "GBE712": ErrorText(
        "The base image {image} has no digest, so it may be another image tomorrow.",
        "Write NAME:TAG@sha256:..., or allow it with --allow-unpinned.",
    ),
    "GBE713": ErrorText(
        "There is no pinned base image for Python {version}.",
        "Use one of {known}, or another image with `graphbus docker build --base`.",
    ),
    "GBE714": ErrorText("{path} cannot be put into the image: {reason}.", "Use files inside the project folder."),
    "GBE715": ErrorText(
        "{program} is installed, but its engine does not answer: {reason}.", "Start the engine, or {otherwise}."
    ),
    "GBE716": ErrorText(
        "The image has no name, because the project has no {missing}.",
        "Set it in [project] of pyproject.toml, or pass {option} {example}.",
    ),
    "GBE720": ErrorText(
        "The image {image} may be another one tomorrow: it has no digest, and no tag but `latest`.",
        "Use a digest or a tag that is never moved, e.g. --image {example}.",
    ),
    "GBE722": ErrorText(
        "The agents cannot run in separate pods, because a bus does not reach into another process; {count} would be cut: "
        "{edges}.",
        "Keep the agents together with --topology single.",
    ),
    "GBE723": ErrorText(
        "{first} and {second} would have the same name in the cluster: {label}.",
        "Rename one of the agents, or keep them together with --topology single.",
    ),
    "GBE724": ErrorText(
        "The cluster has no name for {agent}: it contains none of the characters a-z and 0-9.",
        "Rename the agent, or keep the agents together with --topology single.",
    ),
    "GBE728": ErrorText(
        "{name} would have {replicas} replicas, each with a bus of its own.",
        "Remove `replicas` from the overlay: an event reaches only the process that published it.",
    ),
    "GBE729": ErrorText(
        "The manifests must be for the namespace {namespace}, but name {found}.",
        "Generate them with another --namespace, or name the folder with the right ones.",
    ),
    "GBE730": ErrorText(
        "There is no {file} in this folder.",
        "Run `graphbus k8s generate` to write one, or name the folder that has it.",
    ),
    "GBE731": ErrorText(
        "kubectl knows no cluster to deploy to: {reason}.",
        "Choose a cluster with `kubectl config use-context`, or for this command with --context.",
    ),
    "GBE732": ErrorText(
        "Deploying to {target} needs confirmation, but there is no terminal to ask on.",
        "Pass --yes to deploy without confirmation, or --dry-run to see what would happen.",
    ),
    "GBE733": ErrorText("kustomize cannot render this folder: {reason}.", "Correct the file that kustomize names."),
    "GBE734": ErrorText(
        "--image needs manifests with exactly one image, but these name {names}.",
        "Use an overlay with `images:` instead.",
    ),
    "GBE736": ErrorText(
        "{path} does not exist, so the jobs have nothing to install GraphBus from.",
        "Write `graphbus @ https://...` into it, with the address and the hash of a wheel, or build one from a checkout: "
        "`python -m pip wheel --no-deps --wheel-dir wheels FOLDER && printf '%s\\n' ./{wheel} pytest > {file}`; then add "
        "what the agents import. Or name another file with --requirements.",
    ),
    "GBE737": ErrorText(
        "{value} cannot be used in a pipeline as a {kind}.",
        "Use one line without control characters and without `${{{{`. A path must lie inside the project, without "
        "`*?[]{{}}$\\`, and must not begin with one of `-#!~`.",
    ),
    "GBE738": ErrorText(
        "The project does not allow Python {wanted}: it requires {requires}.",
        "Pass another version with --python, or leave the option out to get one that fits.",
    ),
    "GBE739": ErrorText(
        "This line would install another package: on public indexes, `graphbus` belongs to someone else.",
        "Pin GraphBus with its hash, or by the address of its wheel: `graphbus @ https://...`.",
    ),
    "GBE745": ErrorText(
        "The contracts of {state} cannot be read: {reason}.",
        "Correct that first. `graphbus check` shows what is wrong with source files.",
    ),
    "GBE746": ErrorText(
        "There are neither agents nor artifacts in {path}.",
        "Name the folder with the agents; `graphbus build` writes artifacts.",
    ),
}
