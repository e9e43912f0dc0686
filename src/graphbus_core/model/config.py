"""Every setting with its meaning and its default. The configuration reference in docs/ is generated from these classes.

`[tool.graphbus]` in pyproject.toml fills `Settings`, and its sub-tables such as `safety` and `llm` fill the other classes. The
command line overrides pyproject.toml, which overrides the defaults here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from graphbus_core.errors import UsageError
from graphbus_core.model.powers import Powers

Instrument = Callable[[Any], Iterator[None]]  # the type of a `middleware.Middleware`, which cannot be imported here
Electorate = Literal["affected", "all"]
Arbitration = Literal["first", "domain", "vote"]
Isolation = Literal["jail", "process"]
Validation = Literal["strict", "warn", "off"]
Wire = Literal["anthropic", "openai"]
AnswerForm = Literal["auto", "json", "text"]
Auto = Literal["auto"]


class SafetyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a negotiation. Source: seed 002, 6.1.

    Attributes:
        max_negotiation_rounds: The negotiation stops after this number of rounds.
        convergence_threshold: It stops after this number of rounds in a row without a new proposal.
        max_proposals_per_agent: Proposals of one agent in all rounds together, counter-proposals included.
        max_proposals_per_round: Proposals of one agent in one round.
        max_back_and_forth: The longest chain of counter-proposals.
        require_arbiter_on_conflict: Ask an arbiter after a tie, or if accepts and rejects differ by one.
        arbiter_agents: Names of the arbiters; empty: the classes with `IS_ARBITER = True`, in activation order.
        arbitration: Which of several arbiters decides: the `first`, the first to whose `domain` the proposal belongs (else the
            first), or all of them by `vote`.
        arbiter_domains: Arbiter -> its domain: globs for intents, rule codes, file paths and contract elements.
        max_file_changes_per_commit: Files that one accepted proposal may change.
        max_total_file_changes: Distinct files that a session may change.
        allow_external_dependencies: Allow changes to import packages that the project does not use yet.
        protected_files: Globs for relative paths, folders or file names that no change may touch.
        electorate: The agents that vote: those `affected` by the change, or `all`.
        max_votes_per_proposal: The largest number of evaluators with the electorate `affected`.
        max_repairs: How often the author may repair a proposal that the gate refused.
    """

    max_negotiation_rounds: int = 10
    convergence_threshold: int = 2
    max_proposals_per_agent: int = 3
    max_proposals_per_round: int = 1
    max_back_and_forth: int = 3
    require_arbiter_on_conflict: bool = True
    arbiter_agents: tuple[str, ...] = ()
    arbitration: Arbitration = "first"
    arbiter_domains: dict[str, tuple[str, ...]] = {}
    max_file_changes_per_commit: int = 1
    max_total_file_changes: int = 10
    allow_external_dependencies: bool = False
    protected_files: tuple[str, ...] = ()
    electorate: Electorate = "affected"
    max_votes_per_proposal: int = 3
    max_repairs: int = 2


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus.llm.providers.NAME]`: a server that speaks a known protocol, for `model = "NAME:model"`.

    Attributes:
        base_url: Its address, e.g. `"http://localhost:8000/v1"`.
        wire: The protocol that it speaks: Anthropic Messages, or OpenAI Chat Completions.
        key_env: The environment variable with its key; empty: it needs none. The key of a built-in provider is refused unless
            `base_url` is an address of that provider.
        default_model: The model that `model = "NAME"` means.
        input_usd: Price of a million input tokens in dollars. If both prices are 0, a server on this machine is free, and the
            price of any other is not known, so that only its tokens can be limited.
        output_usd: Price of a million output tokens in dollars.
    """

    base_url: str
    wire: Wire = "openai"
    key_env: str = ""
    default_model: str = ""
    input_usd: float = 0.0
    output_usd: float = 0.0


class AgentProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus.agents.NAME]`: a program that represents the class NAME in negotiations. docs/protocol/ specifies
    how it is asked.

    Attributes:
        command: The program and its arguments, e.g. `["node", "printer_agent.mjs"]`; no shell is used.
        files: Files and folders of the project that it may read, besides those that the command names.
        network: It may use the network; without this the sandbox has none.
        pass_env: Environment variables that it gets, besides PATH and the locale.
        timeout_s: The seconds that an answer may take. The agent then loses its turn.
    """

    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    network: bool = False
    pass_env: tuple[str, ...] = ()
    timeout_s: float = 30.0


class LLMConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model is used in a negotiation, and how it is asked.

    Attributes:
        model: `"provider:name"`, or `"claude-…"` alone; `"rules"`: no model is asked; empty: the default model of the provider
            whose key is in the environment, else the rules.
        api_key: Must be empty: keys belong in the environment variable of the provider.
        proposer: Another model for analyses, proposals and repairs, or `"rules"`; empty: `model`.
        evaluator: Another model for votes, or `"rules"`, which compute them; empty: `model`.
        arbiter: Another model for arbitration, or `"rules"`; empty: `model`.
        providers: Servers by name, besides the built-in ones.
        pass_env: Environment variables that a `command:` program gets, besides PATH, HOME, TMPDIR and the locale.
        answers: `"json"`: the server forces a JSON schema on the answers; `"text"`: it does not; `"auto"`: JSON where the server
            takes a schema, else text.
        max_prompt_tokens: The longest prompt, estimated at four bytes a token; an agent that needs a longer one is not asked.
            0: no limit. `"auto"`: 150000, or for a local server the size of its context less `max_output_tokens`. A local
            server is one on this machine, or one of the providers `ollama`, `vllm`, `llamacpp` and `lmstudio`. Some cut off
            prompts that are too long without an error, and not all of them report the size of their context.
        max_output_tokens: The longest answer; a longer one is cut off and cannot be used. `"auto"`: 8192, or for a local server
            a quarter of its context, at most 8192; 2048 if it does not report the size of its context.
        temperature: How much chance there is in an answer. `"auto"`: 0 for a local server, else what the provider uses.
        timeout_s: The seconds that an answer may take from its first token on. `"auto"`: 180, or 1200 for a local server.
        first_token_timeout_s: The seconds to wait for the first token of an answer. Some servers let requests wait until others
            are answered, and that counts here only. `"auto"`: 600, or 1800 for a local server.
        max_attempts: How often a call is tried if the provider is overloaded, limits the rate or cannot be reached.
        concurrency: The largest number of calls at the same time. `"auto"`: 16, or for a local server as many as it says that it
            answers at the same time, else 1.
        requests_per_minute: The largest number of requests in a minute; 0: no limit.
        use_cache: Take the answer to a request that was made before from `.graphbus/cache/`.
    """

    model: str = ""
    api_key: str = ""
    proposer: str = ""
    evaluator: str = ""
    arbiter: str = ""
    providers: dict[str, ProviderConfig] = {}
    pass_env: tuple[str, ...] = ()
    answers: AnswerForm = "auto"
    max_prompt_tokens: int | Auto = "auto"
    max_output_tokens: int | Auto = "auto"
    temperature: float | Auto = "auto"
    timeout_s: float | Auto = "auto"
    first_token_timeout_s: float | Auto = "auto"  # noqa: S105 - no secret
    max_attempts: int = 5
    concurrency: int | Auto = "auto"
    requests_per_minute: int = 0
    use_cache: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError (GBE154) if the settings contain a key."""
        if self.api_key:
            raise UsageError("GBE154")


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that a session may cost. At a limit it stops with the reason `budget`, and keeps the accepted changes.

    Attributes:
        max_usd: Dollars, for models whose price is known; 0: no limit.
        max_tokens: Input and output tokens; 0: no limit.
        max_calls: Questions to all agents together, to analyze, propose, repair, evaluate or arbitrate.
        max_seconds: Seconds from the beginning of the first round; 0: no limit.
    """

    max_usd: float = 5.0
    max_tokens: int = 0
    max_calls: int = 10_000
    max_seconds: float = 0.0


class GateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gate: the checks that a change must pass before agents vote on it.

    Attributes:
        test_command: The command that runs the project's tests; empty: `pytest` if there is a test file or a `testpaths` setting,
            else none.
        timeout_s: Seconds that one child process of the gate may use: processor time of the process and all that it starts, plus
            the time in which all of them sleep. On a busy machine it may take up to twenty times as long.
        memory_mb: Address space of one child process of the gate, and memory of all the processes that it starts together.
        max_file_size_bytes: The largest size of a changed file.
        max_changed_lines: The largest number of lines that a proposal may change.
        allow_unverified: Let changes pass that cannot be tested: the project cannot be copied, or its tests or a changed module
            fail without the change too. The report says which.
        checks: Further commands that must report nothing new, e.g. `[["ruff", "check"], ["mypy", "agents"]]`.
        isolation: Where changed code runs. `jail`: in a sandbox without network and without access to your files and processes;
            on a system without sandboxes no code runs. `process`: in a plain child process with limits, which could read your
            files and use the network.
        target_python: The Python for which changed files must compile, `"3.11"`; empty: `requires-python` of the project.
    """

    test_command: tuple[str, ...] = ()
    timeout_s: float = 60.0
    memory_mb: int = 2048
    max_file_size_bytes: int = 100_000
    max_changed_lines: int = 400
    allow_unverified: bool = False
    checks: tuple[tuple[str, ...], ...] = ()
    isolation: Isolation = "jail"
    target_python: str = ""


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True):  # locks of older versions have further fields
    """`[tool.graphbus.runtime.serve]`: the HTTP server of `graphbus run --serve`.

    Attributes:
        host: The address to listen on.
        port: The port to listen on; 0: any free port.
        token_env: The environment variable with the token that requests must contain.
        token_file: A file with the token instead, absolute or relative to the project root.
        allowed_hosts: Names of this server besides `localhost` and IP addresses, e.g. `["shop.example.org"]`.
        allowed_origins: Origins of web pages that may send requests, e.g. `["https://shop.example.org"]`.
        max_body_bytes: The largest body of a request.
        max_connections: The largest number of open connections with a request; further ones are answered with 503.
        concurrency: The largest number of calls and events that are handled at the same time.
        backlog: The largest number of calls and events that wait for that; further ones are answered with 503.
        call_timeout_s: Seconds after which a call is answered with 504; also the longest `?wait=` of an event.
        stuck_after_s: Seconds after which `/livez` reports a handler that still runs as stuck; 0: never.
        redact: Parts of the names of payload keys whose values the live view never shows, and traces have only in payloads.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token_env: str = "GRAPHBUS_TOKEN"  # noqa: S105 - the name of a variable
    token_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 1_048_576
    max_connections: int = 512
    concurrency: int = 16
    backlog: int = 256
    call_timeout_s: float = 30.0
    stuck_after_s: float = 60.0
    redact: tuple[str, ...] = ("password", "secret", "token", "authorization", "api_key", "card", "iban", "ssn")


OUTSIDE = "outside"
"""In place of an agent: a process that also, or only, publishes and asks as programs outside of the graph do."""


class NatsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus.runtime.nats]`: how a graph uses a ledger on NATS. `graphbus nats deploy` applies changes to the server.

    Attributes:
        replicas: The number of servers of a cluster that keep each event. 0: as the stream has it; of a new one, 1.
        max_bytes: The size of the stream; when it is full, publishers wait. 0: as the stream has it; of a new one, 1 GiB.
        partitions: Agent -> into how many partitions its events are divided, by the keys of its subscriptions. Each of its
            processes handles one of them, `--partition`, with a state file of its own.
        shared: The agents whose events any of several processes may handle, each with a state file of its own, in no order.
    """

    replicas: int = 0
    max_bytes: int = 0
    partitions: dict[str, int] = {}
    shared: tuple[str, ...] = ()


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus.runtime]`: how a graph runs.

    Attributes:
        validation: What happens if a payload or argument does not fit its schema. `strict`: it is refused; `warn`: it is logged;
            `off`: it is not checked.
        grace_s: Seconds that a shutdown waits for running handlers and calls.
        history: The number of latest events that the bus keeps in memory; 0: none.
        queue: The number of events that may wait before a publisher from outside of the graph is refused.
        mailbox: The number of events that may wait for one agent with async handlers.
        max_hops: The longest chain of events that cause each other.
        max_tree: The largest number of events that one event may cause, directly or indirectly.
        dead_letters: The number of dead letters that are kept in memory.
        keep_dead_letters: Keep dead letters in `state_dir` as well, for `graphbus dlq`. `"auto"`: only if an agent uses
            `self.state`, from its first use on.
        state_dir: The folder in which a running graph writes its agents' state, dead letters, traces and profiles. Absolute, or
            relative to the project root.
        middleware: Functions that wrap every handler and call, outermost first, as `"package.module:name"`.
        factory: A function that creates the agents, as `"package.module:name"`; it is called with each class. Empty: the classes
            are called without arguments.
        tracing: Create an OpenTelemetry span for every handler and call. The program that starts the graph configures the export.
        ledger: What keeps the events until they are handled. Empty: the memory of the process; `"sqlite"`: a file in
            `state_dir`, which several processes on one host may use and which survives their end;
            `"nats://host:4222/app"`: a NATS server with JetStream, for processes on several hosts.
        partitions: With a ledger: into how many partitions the events of a subscription with a `key` are divided. The settings
            for NATS may give an agent another number.
        missing_agent_s: With a ledger: how many seconds a request or call waits for a process that runs its agent. Longer than it
            takes to start one again; 0: it fails as soon as it is known that there is none.
    """

    validation: Validation = "strict"
    grace_s: float = 10.0
    history: int = 1000
    queue: int = 100_000
    mailbox: int = 1024
    max_hops: int = 64
    max_tree: int = 10_000
    dead_letters: int = 1000
    keep_dead_letters: bool | Literal["auto"] = "auto"
    state_dir: str = ".graphbus/state"
    middleware: tuple[str, ...] = ()
    factory: str = ""
    tracing: bool = False
    ledger: str = ""
    partitions: int = 1
    missing_agent_s: float = 5.0
    serve: ServeConfig = ServeConfig()
    nats: NatsConfig = NatsConfig()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus]`: all settings of a project.

    Attributes:
        exclude: Globs for files and folders that are not read, relative to the project root.
        external_topics: Topics or patterns that programs outside of the graph publish or handle.
        select: Rule codes or prefixes that `graphbus check` reports; empty: all that are on by default.
        ignore: Rule codes or prefixes that it does not report.
        max_source_bytes: The largest size of a source file; a larger one is an error.
        refactoring_goals: The goals of negotiations, e.g. `["align_schemas", "add_validation"]`.
        intent: What the user wants from this negotiation, in free text.
        artifacts: The artifact folder, relative to the project root.
        agents: Class -> the program that represents it in negotiations, instead of the rules or a model.
    """

    exclude: tuple[str, ...] = ()
    external_topics: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    max_source_bytes: int = 4_000_000
    refactoring_goals: tuple[str, ...] = ()
    intent: str = ""
    artifacts: str = ".graphbus"
    safety: SafetyConfig = SafetyConfig()
    llm: LLMConfig = LLMConfig()
    budget: Budget = Budget()
    gate: GateConfig = GateConfig()
    powers: Powers = Powers()
    runtime: RuntimeSettings = RuntimeSettings()
    agents: dict[str, AgentProgram] = {}


class ResolvedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a build: a `BuildConfig`, combined with the settings of the project. Source: seed 001, LOAD_BUILD_CONFIG.

    Attributes without a description are described in `BuildConfig`.

    Attributes:
        root: The absolute path of the project root: the nearest parent folder with a pyproject.toml.
        paths: The absolute paths of the files and folders to build.
        session: The requested name of the negotiation session, such as `"S001"`; empty for the next number.
        locked: In a frozen build, the number of agents that the lock covers.
    """

    root: str
    paths: tuple[str, ...]
    settings: Settings = Settings()
    enable_agents: bool = False
    dry_run: bool = False
    force: bool = False
    emit_artifacts: bool = True
    session: str = ""
    is_frozen: bool = False
    is_reviewed: bool = False
    is_resumed: bool = False
    makes_commits: bool = False
    locked: int = 0

    @property
    def named_modules(self) -> tuple[str, ...]:
        """The dotted names of the modules in the settings `middleware` and `factory`."""
        runtime = self.settings.runtime
        return tuple(name.partition(":")[0] for name in (*runtime.middleware, runtime.factory) if name)

    @property
    def safety_config(self) -> SafetyConfig:
        """The limits of the negotiation. Source: seed 001."""
        return self.settings.safety

    @property
    def llm_config(self) -> LLMConfig:
        """The models of the negotiation. Source: seed 001."""
        return self.settings.llm

    @property
    def refactoring_goals(self) -> tuple[str, ...]:
        """The goals of the negotiation. Source: seed 001."""
        return self.settings.refactoring_goals

    @property
    def artifacts_dir(self) -> str:
        """The absolute path of the artifact folder."""
        return f"{self.root}/{self.settings.artifacts}"


class ResolvedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a run: a `RuntimeConfig`, combined with the settings of the project.

    Attributes without a description are described in `RuntimeConfig`.

    Attributes:
        artifacts_dir: The absolute path of the artifact folder.
        state_dir: The absolute path of the folder in which the graph writes.
        external_topics: Topics or patterns that programs outside of the graph publish or handle.
        powers: What agents may do if the run is confined.
    """

    artifacts_dir: str
    state_dir: str = ""
    entrypoint: str = ""
    allow_drift: bool = False
    is_serving: bool = False
    external_topics: tuple[str, ...] = ()
    instruments: tuple[Instrument, ...] = ()
    is_partial: bool = False
    only: tuple[str, ...] = ()
    partition: int | None = None
    is_confined: bool = False
    powers: Powers = Powers()
    settings: RuntimeSettings = RuntimeSettings()


class BuildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a build, before any file is read. Source: seed 001, LOAD_BUILD_CONFIG.

    Attributes:
        paths: Files or folders with agents, absolute or relative to the working directory.
        root_package: A dotted package name instead of paths, searched for in the working directory, its `src` and sys.path.
        enable_agents: Negotiate, and change source files.
        dry_run: Negotiate, but write neither source files nor artifacts.
        force: Build although nothing has changed.
        rounds: Overrides `safety.max_negotiation_rounds`.
        unsafe_verify: True sets `gate.allow_unverified`.
        intent: Overrides `intent`.
        emit_artifacts: False for `graphbus negotiate` without a build.
        model: Overrides `llm.model`, and the models of single roles.
        voters: Overrides `llm.evaluator` and `llm.arbiter`.
        max_usd: Overrides `budget.max_usd`.
        use_cache: False: every request is sent to the provider.
        is_frozen: Ask no model, and fail unless the committed lock says that every agent has settled on its present inputs.
        is_reviewed: Ask a person to decide on each change before it is committed.
        is_resumed: Continue the last session, which was interrupted.
        makes_commits: Make one git commit for each accepted proposal.
        llm_config: Replaces `[tool.graphbus.llm]`, for callers from Python.
        safety_config: Replaces `[tool.graphbus.safety]`, for callers from Python.
        refactoring_goals: Replaces those of `[tool.graphbus]`, for callers from Python.
        settings: Replaces all settings in pyproject.toml, for callers from Python.
    """

    paths: tuple[str, ...] = ()
    root_package: str = ""
    enable_agents: bool = False
    dry_run: bool = False
    force: bool = False
    rounds: int | None = None
    unsafe_verify: bool = False
    intent: str = ""
    emit_artifacts: bool = True
    session: str = ""
    model: str = ""
    voters: str = ""
    max_usd: float | None = None
    use_cache: bool = True
    is_frozen: bool = False
    is_reviewed: bool = False
    is_resumed: bool = False
    makes_commits: bool = False
    llm_config: LLMConfig | None = None
    safety_config: SafetyConfig | None = None
    refactoring_goals: tuple[str, ...] | None = None
    settings: Settings | None = None


class RuntimeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a run. Source: seed 001, LOAD_RUNTIME_CONFIG.

    Attributes:
        artifacts: The artifact folder.
        entrypoint: `"package.module:function"`, called with no argument, or with the running graph if it takes one.
        allow_drift: Start even if source files have changed since the build.
        is_serving: Keep the graph running: a separate thread delivers events, and publishers do not wait.
        instruments: Middleware around that of the project, outermost first, which measures, traces or pauses handlers.
        is_partial: If some agents cannot start, run the others instead of failing.
        only: The names of the agents that run in this process; empty: all.
        partition: With a ledger on NATS, the partition of these agents that this process handles; None: all.
        is_confined: Limit this process to the declared powers, permanently, before code of the project is imported.
        validation: Overrides `validation` in `[tool.graphbus.runtime]`.
        ledger: Overrides `ledger` in `[tool.graphbus.runtime]`.
    """

    artifacts: str = ".graphbus"
    entrypoint: str = ""
    allow_drift: bool = False
    is_serving: bool = False
    instruments: tuple[Instrument, ...] = ()
    is_partial: bool = False
    only: tuple[str, ...] = ()
    partition: int | None = None
    is_confined: bool = False
    validation: Validation | None = None
    ledger: str | None = None
