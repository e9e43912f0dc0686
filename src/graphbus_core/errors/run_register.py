"""The second half of the register: artifacts (GBE5xx), running graphs (GBE6xx) and deployment (GBE7xx)."""

from __future__ import annotations

from graphbus_core import __version__
from graphbus_core.errors import Entry


def how_to_install(extra: str) -> str:
    """Give the hint for an extra of GraphBus. Its name alone must not be in it: on public indexes that is another package."""
    return (
        f"In a checkout of GraphBus run `pip install '.[{extra}]'`, "
        f"or beside its wheel `pip install './graphbus-{__version__}-py3-none-any.whl[{extra}]'`."
    )


RUN_REGISTER: dict[str, Entry] = {
    # Artifacts: exit status 6
    "GBE501": Entry(
        "There are no artifacts here{missing}.", "Run `graphbus build` first, or give the folder that it wrote."
    ),
    "GBE502": Entry("{name} cannot be read as an artifact: {reason}.", "Run `graphbus build` again."),
    "GBE503": Entry(
        "These artifacts have the old format {version}; this GraphBus reads format {wanted}.",
        "`graphbus migrate` brings them to the new one; `graphbus build` makes them again.",
    ),
    "GBE504": Entry(
        "These artifacts have format {version}; this GraphBus reads format {wanted}.",
        "Upgrade GraphBus to the version that wrote them, or run `graphbus build` again.",
    ),
    "GBE505": Entry("The artifact {name} is missing.", "Run `graphbus build` again."),
    "GBE506": Entry(
        "{name} is not what the manifest says: it was edited, or a build was interrupted.",
        "Run `graphbus build` again; artifacts are not edited by hand.",
    ),
    "GBE507": Entry("{name} cannot be opened: {reason}.", "Check the permissions of the artifact folder."),
    "GBE508": Entry(
        "This file is not what it was when the artifacts were built.",
        "Run `graphbus build` again if you know the change.",
    ),
    "GBE510": Entry(
        "The artifacts cannot be written here: {reason}.",
        "Free some space, correct the permissions or remove the link; the artifacts from before are still whole.",
    ),
    "GBE511": Entry("There is no agent {name} in these artifacts.{suggestion}", "Agents: {known}."),
    "GBE512": Entry(
        "What agents import is read from the sources for format {wanted}, and this file is not what the artifacts describe.",
        "Run `graphbus build`: the artifacts are out of date in any case.",
    ),
    "GBE513": Entry(
        "There is no way from format {version} to that of today; the oldest format that can be brought here is {oldest}.",
        "Run `graphbus build` again.",
    ),
    "GBE514": Entry(
        "{name} has {size_bytes:,} bytes, and no artifact is larger than {limit_bytes:,}.",
        "Give the folder that `graphbus build` wrote, or run `graphbus build` again.",
    ),
    "GBE515": Entry(
        "This bytecode names no time of its source, so that Python could run it whatever the source says.",
        "Remove the file; Python makes it again from the source.",
    ),
    "GBE516": Entry(
        "This file is, or lies behind, a link that leaves the project: nobody can say what it will be.",
        "Put the file itself into the project, or install what it belongs to.",
    ),
    # Starting, running and stopping a graph: exit status 7
    "GBE601": Entry(
        "The module {module} cannot be imported: {reason}.", "Correct the module; the other ones were tried, too."
    ),
    "GBE602": Entry(
        "The module {module} has no agent class {name}.{suggestion}",
        "Run `graphbus build` again if it was renamed; a class that is made conditionally must exist at run time.",
    ),
    "GBE603": Entry(
        "The agent {name} cannot be made: {reason}.",
        "Agents are made without arguments: what one needs it sets up in `on_start`, "
        "or a `factory` of [tool.graphbus.runtime] passes it on.",
    ),
    "GBE604": Entry(
        "The module {module} should come from {path}, but comes from {found}.",
        "Another module of this name is in the way: rename one of them.",
    ),
    "GBE605": Entry("`on_start` of {name} failed: {reason}.", "Nothing was left running."),
    "GBE606": Entry("There is no entry point {name}: {reason}.", "Write it as package.module:function."),
    "GBE607": Entry("The entry point {name} failed: {reason}.", "The graph was stopped in good order."),
    "GBE608": Entry(
        "`on_stop` of {name} was not called: a handler or method of it does not come to its end.",
        "What the agent holds was not put away. Correct the handler, or raise `grace_s` in [tool.graphbus.runtime].",
    ),
    "GBE610": Entry(
        "{topic!r} cannot be used here: {reason}.", "A topic is `/Segment/Segment`, with letters, digits, `_`, `-`."
    ),
    "GBE611": Entry(
        "The handler {handler} has a signature that cannot be served: {reason}.",
        "See the table of handler signatures in docs/writing-agents.md.",
    ),
    "GBE612": Entry(
        "A payload must be JSON; {path} is {found}.", "Publish dicts, lists, text, numbers, booleans and None."
    ),
    "GBE613": Entry("The payload has more than {limit} bytes.", "Publish a reference to the data instead of the data."),
    "GBE614": Entry(
        "The payload of {topic} does not fit: {reason}.", "Correct the publisher, or the schema of the topic."
    ),
    "GBE615": Entry("{topic} was published to a bus that is closed.", "Publish before the shutdown begins."),
    "GBE616": Entry("{name} is in no graph and so cannot {what}.", "Connect it: `with connect({name}) as graph: ...`."),
    "GBE617": Entry(
        "{handler} needs the field {field!r}, which the payload of {topic} does not have.",
        "Send the field, or give the parameter a default.",
    ),
    "GBE618": Entry(
        "The call was interrupted before it was done.", "The graph is shutting down, or a handler has ended it."
    ),
    "GBE619": Entry(
        "No agent publishes or hears {topic}.{suggestion}",
        "Build again if it is new, or name it in `external_topics` of [tool.graphbus].",
    ),
    "GBE620": Entry("There is no agent {agent} in this graph.{suggestion}", "Agents: {known}."),
    "GBE621": Entry(
        "{agent} has no method {method} that can be called.{suggestion}",
        "Methods with @schema_method: {known}.",
    ),
    "GBE622": Entry(
        "{agent}.{method} was called with wrong arguments: {reason}.", "Correct the call, or the input_schema."
    ),
    "GBE623": Entry("{agent}.{method} gave a wrong result: {reason}.", "Correct the method, or its output_schema."),
    "GBE624": Entry(
        "{agent} calls {other}, but does not say that it depends on it.",
        'Write @depends_on("{other}") above the class {agent}.',
    ),
    "GBE625": Entry("{agent}.{method} failed: {reason}.", "The graph was stopped in good order; the log says more."),
    "GBE626": Entry("`on_stop` of {name} failed: {reason}.", "The other agents were still stopped."),
    "GBE627": Entry(
        "The graph was told to stop inside one of its handlers.",
        "Let the code that started it stop it; a handler may raise SystemExit.",
    ),
    "GBE628": Entry(
        "A plain `def` cannot wait for a call: everything of its agent runs on the event loop, where results are awaited.",
        "Make the method `async def` and write `await self.call(...)`: the agent has other `async def` methods.",
    ),
    "GBE630": Entry(
        "{count} failed; the first: {subscription} on {topic}: {error}.",
        "The log above says more about each.",
    ),
    "GBE631": Entry(
        "{topic} was requested, but no handler answers it.{suggestion}", "Exactly one handler must subscribe to it."
    ),
    "GBE632": Entry(
        "{topic} was requested, but {count} handlers hear it: {names}.",
        "Exactly one may answer; publish what several shall hear.",
    ),
    "GBE633": Entry(
        "{topic} would wait for itself: {chain}.",
        "An agent cannot wait for its own answer; call the method itself, or publish and go on.",
    ),
    "GBE634": Entry(
        "A handler waits for the receipt of {topic}, and so for itself.",
        "Subscribe to what comes of the event instead.",
    ),
    "GBE635": Entry(
        "{responder} did not answer {topic} within {timeout_s:g} s.", "Give it more time, or ask it to do less."
    ),
    "GBE636": Entry(
        "{topic} was refused: {limit} events wait already.",
        "Publish more slowly, or raise `queue` in [tool.graphbus.runtime].",
    ),
    "GBE637": Entry(
        "{topic} was not requested: too many events led to it.", "Its dead letter says which; see also the log above."
    ),
    "GBE638": Entry(
        "The bus cannot move to this event loop: it has one already.", "Enter `async with` before anything is handled."
    ),
    "GBE639": Entry(
        "{topic} cannot be awaited here: the bus does not live on this event loop.", "Enter `async with bus` first."
    ),
    "GBE640": Entry(
        "The options of the subscription {handler} cannot be kept: {reason}.", "Correct its `@subscribe(...)`."
    ),
    "GBE641": Entry(
        "The state of {agent} must be JSON; {path} is {found}.",
        "Keep dicts with text as keys, lists, text, numbers, booleans and None. The old value is still there.",
    ),
    "GBE642": Entry(
        "The state {key!r} of {agent} has more than {limit} bytes.",
        "Spread it over several keys, or keep it elsewhere. The old value is still there.",
    ),
    "GBE643": Entry(
        "{what} cannot be read: {reason}.", "Nothing was written over. Move the file away, and a new one is made."
    ),
    "GBE644": Entry(
        "{what} is held by another process.", "Nothing was changed. End the process that holds it, or try again."
    ),
    "GBE645": Entry("{what} cannot be used: {reason}.", "Check the permissions and the space on the disk."),
    "GBE646": Entry(
        "The state {key!r} of {agent} was changed by another while a transaction was going on.",
        "Nothing of the transaction was written; do it again.",
    ),
    "GBE647": Entry("{agent} has used its state after the graph had stopped.", "`on_stop` is the last chance."),
    "GBE648": Entry(
        "A handler waits until all is quiet, and so for itself.", "Wait in the code that started the graph."
    ),
    "GBE649": Entry(
        "There is no handler {subscription} of {topic} in this graph any more.",
        "The letter is kept. Drop it, or bring the handler back.",
    ),
    "GBE650": Entry(
        "{handler} cannot take the payload of {topic}: {reason}.",
        "Correct the publisher, or the class that it is made into.",
    ),
    "GBE651": Entry(
        "{who} may not {what}: that takes `{example}` in [tool.graphbus.powers].",
        "A person decides. `graphbus powers` shows what is declared, and what the code uses.",
    ),
    "GBE652": Entry(
        "A confined graph cannot run here: the kernel does not enforce {gaps}.",
        "Run it on Linux 5.13 or newer with Landlock or seccomp, or without --confined.",
    ),
    "GBE653": Entry(
        "The powers declare {path!r} for writing, which cannot be used: {reason}.",
        "Make it first, or end the name with `/` to have a folder made when the graph starts.",
    ),
    "GBE654": Entry(
        "{who} may not {what}, and the graph runs confined: {declared}.",
        "If that is too little, write more in [tool.graphbus.powers] of pyproject.toml, and start the graph again.",
    ),
    "GBE655": Entry(
        "The factory {name} cannot be used: {reason}.",
        'Name a function of the project in [tool.graphbus.runtime]: factory = "package.module:name".',
    ),
    "GBE656": Entry(
        "The factory {factory} cannot make {name}: {reason}.",
        "It is called with the class, and must give an object of it.",
    ),
    "GBE657": Entry(
        "The factory {factory} gave {got} where {name} was wanted.",
        "It must give an object of the class that it is called with, and nothing else.",
    ),
    "GBE660": Entry(
        "The middleware {middleware} makes no generator, but {found}.", "Write a function with exactly one `yield`."
    ),
    "GBE661": Entry(
        "The middleware {middleware} ended before its `yield`.",
        "Yield once; to refuse what is to run, raise an exception.",
    ),
    "GBE662": Entry(
        "The middleware {middleware} yielded a second time.",
        "Yield once: the handler or method runs there, and only once.",
    ),
    "GBE663": Entry(
        "The middleware {name} cannot be used: {reason}.",
        'Name a function or class of the project in [tool.graphbus.runtime]: middleware = ["package.module:name"].',
    ),
    "GBE664": Entry(
        "`@subscribe` needs topics, not {got}.", "Write `{example}`; several topics stand beside each other."
    ),
    "GBE665": Entry(
        "`self.agent` needs the class of an agent, not {got}.",
        'Write `self.agent(Pricing).quote(...)`, or with names `self.call("Pricing", "quote", ...)`.',
    ),
    "GBE670": Entry("The body cannot be read: {reason}.", "Send one JSON document (RFC 8259) in UTF-8."),
    "GBE671": Entry("{what} needs packages that are not installed: {packages}.", how_to_install("{extra}")),
    "GBE672": Entry(
        "Nothing can listen on {address}: {reason}.", "Choose another port, or end the process that listens there."
    ),
    "GBE673": Entry("This needs the bearer token of the server.", "Send `Authorization: Bearer TOKEN`."),
    "GBE674": Entry(
        "The request is for the host {host!r}, which is not this server.",
        "Name it in `allowed_hosts` of [tool.graphbus.runtime.serve].",
    ),
    "GBE675": Entry(
        "Pages of {origin!r} may not send requests here.",
        "Name it in `allowed_origins` of [tool.graphbus.runtime.serve].",
    ),
    "GBE676": Entry("The body has more than {limit} bytes.", "Send a reference to the data instead of the data."),
    "GBE677": Entry("The body is sent as {got}.", "Send it as `Content-Type: application/json`, not compressed."),
    "GBE678": Entry("{count} requests wait already.", "Try again a little later."),
    "GBE679": Entry(
        "There was no answer within {timeout_s:g} s; it may still come to its end.", "Look before you repeat it."
    ),
    "GBE680": Entry(
        "{agent} was left out when the graph started: {reason}.",
        "Correct it and start again; `--partial` has let the others run.",
    ),
    "GBE681": Entry("{name} was skipped in the debugger.", "The event is among the dead letters."),
    "GBE682": Entry("There is no handler or method {name} to stop at.{suggestion}", "Known: {known}."),
    "GBE683": Entry("{what} cannot be written: {reason}.", "Check the permissions and the space of `state_dir`."),
    "GBE684": Entry("There is no trace to read: {reason}.", "`graphbus run --trace` writes one."),
    "GBE685": Entry("The trace knows no event {event_id}.", "`graphbus trace` lists the last ones."),
    "GBE686": Entry("{count} events have an id that begins with {event_id}: {known}.", "Give more of the id."),
    "GBE687": Entry("There is no profile to read: {reason}.", "`graphbus run --profile` writes one at its end."),
    "GBE688": Entry("{count} of {total} lines were refused.", "The messages above say why; the others were done."),
    "GBE689": Entry("{name} failed: {reason}.", "The graph runs on."),
    "GBE695": Entry("The graph has no agent {name} to run alone.{suggestion}", "Its agents are: {known}."),
    "GBE696": Entry(
        "{agent} does not run in this process, which was started with {asked}.",
        "Run them together, without --only: a bus does not reach into another process.",
    ),
    "GBE697": Entry(
        "This is no export of states: {reason}.", "Nothing was changed. `graphbus state export` writes one."
    ),
    "GBE699": Entry(
        "The export cannot be written: {reason}.", "Nothing was changed. Make room, or give another place."
    ),
    # Deployment: exit status 8
    "GBE701": Entry(
        "{count} would be overwritten, with other content: {names}.",
        "Compare with --diff; write with --force, which shows what changes.",
    ),
    "GBE702": Entry(
        "{path} cannot be written: {reason}.", "Nothing was written. Correct that and run the command again."
    ),
    "GBE703": Entry(
        "{value} is no {kind}: {reason}.",
        "For example: {example}.",
    ),
    "GBE704": Entry("{program} was not found.", "Install it, or {otherwise}."),
    "GBE705": Entry("{command} has ended with status {status}.", "What it says stands above."),
    "GBE706": Entry(
        "{count} would differ from what is generated: {names}.", "Run the same command without --check, with --force."
    ),
    "GBE710": Entry(
        "The agents import what Python does not bring along, and no version of it is pinned: {modules}.",
        "Pin them with their hashes, e.g. `uv pip compile --generate-hashes deps.in -o requirements.txt`, "
        "and give the file: --requirements requirements.txt. What they can do without is named with --optional.",
    ),
    "GBE711": Entry(
        "{path} does not pin everything: {reason}.",
        "Write it with hashes, e.g. with `uv pip compile --generate-hashes` or `pip-compile --generate-hashes`.",
    ),
    "GBE712": Entry(
        "The base {image} may be another image tomorrow: it has no digest.",
        "Write NAME:TAG@sha256:..., or let it float with --allow-unpinned.",
    ),
    "GBE713": Entry(
        "There is no pinned base image for Python {version}.",
        "There is one for {known}. `graphbus docker build --base` takes another image.",
    ),
    "GBE714": Entry(
        "{path} cannot go into the image: {reason}.",
        "An image is made of files below the folder of the project.",
    ),
    "GBE715": Entry(
        "{program} is installed, but its engine does not answer: {reason}.",
        "Start it, or {otherwise}.",
    ),
    "GBE716": Entry(
        "The image has no name: the project has no {missing}.",
        "Set it in [project] of pyproject.toml, or give {option} {example}.",
    ),
    "GBE720": Entry(
        "The image {image} may be another one tomorrow: it has no tag but `latest`, and no digest.",
        "Give a tag that is not moved, or a digest: --image {example}.",
    ),
    "GBE722": Entry(
        "The agents cannot run in pods of their own, because a bus ends where its process ends; {count} would be cut: {edges}.",
        "Keep them together with --topology single.",
    ),
    "GBE723": Entry(
        "{first} and {second} would both be called {label} in the cluster.",
        "Rename one of them, or keep them together with --topology single.",
    ),
    "GBE724": Entry(
        "{agent} has no name that a cluster could use: nothing of it is a-z or 0-9.",
        "Rename it, or keep the agents together with --topology single.",
    ),
    "GBE728": Entry(
        "{name} would have {replicas} replicas, and each of them a bus of its own.",
        "Take `replicas` out of the overlay: an event is heard only in the process that published it.",
    ),
    "GBE729": Entry(
        "The manifests are not for the namespace {namespace}, but for {found}.",
        "Generate them with another --namespace, or name the folder of the right ones.",
    ),
    "GBE730": Entry("There is no {file} here.", "`graphbus k8s generate` writes one; or name its folder."),
    "GBE731": Entry(
        "kubectl knows no cluster to deploy to: {reason}.",
        "Choose one with `kubectl config use-context`, or for this command with --context.",
    ),
    "GBE732": Entry(
        "Nobody is at a terminal to say yes to {target}.",
        "Say it before, with --yes, or look at what would happen, with --dry-run.",
    ),
    "GBE733": Entry("kustomize cannot make manifests of this folder: {reason}.", "Correct the folder."),
    "GBE734": Entry(
        "It is not clear which image --image replaces: the manifests name {names}.",
        "Use an overlay with `images:` instead.",
    ),
    "GBE736": Entry(
        "{path} does not exist, so that the jobs would have nothing to install GraphBus from.",
        "Write `graphbus @ https://...` with the address and the hash of its wheel, or make one from a checkout: "
        "`python -m pip wheel --no-deps --wheel-dir wheels FOLDER && printf '%s\\n' ./{wheel} pytest > {file}`; "
        "then add what the agents import. Or name another file with --requirements.",
    ),
    "GBE737": Entry(
        "{value} cannot stand in a pipeline as a {kind}.",
        "It is one line without control characters and without `${{{{`; a path is one of this project, "
        "without signs that forges give a meaning: `*?[]{{}}$\\`, or `-#!~` at its begin.",
    ),
    "GBE738": Entry(
        "The project does not allow Python {wanted}: it requires {requires}.",
        "Give another --python, or leave it out; then a fitting one is taken.",
    ),
    "GBE739": Entry(
        "The package that public indexes call `graphbus` is somebody else's, and this line would install it.",
        "Pin GraphBus with its hash, or by the address of its wheel: `graphbus @ https://...`.",
    ),
    "GBE745": Entry(
        "The contracts of {state} cannot be read: {reason}.",
        "What cannot be read cannot be compared. `graphbus check` says what is wrong with sources.",
    ),
    "GBE746": Entry(
        "There are neither agents nor artifacts in {path}.",
        "Name the folder with the agents; `graphbus build` writes artifacts.",
    ),
}
