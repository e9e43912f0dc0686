"""Every setting, with its default and what it means. The configuration reference in docs/ is generated from these classes.

`[tool.graphbus]` of pyproject.toml fills `Settings`; its sub-tables `safety`, `llm`, `budget`, `gate` and `runtime` fill the
others. The order is: command line, then pyproject.toml, then the defaults here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from graphbus_core.errors import UsageError
from graphbus_core.model.powers import Powers

Instrument = Callable[[Any], Iterator[None]]  # what `middleware.Middleware` is, as far as this floor can say it
Electorate = Literal["affected", "all"]
Arbitration = Literal["first", "domain", "vote"]
Isolation = Literal["jail", "process"]
Validation = Literal["strict", "warn", "off"]
Wire = Literal["anthropic", "openai"]


class SafetyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a negotiation. Source: seed 002, 6.1.

    Attributes:
        max_negotiation_rounds: Rounds after which it stops.
        convergence_threshold: Rounds without a new proposal after which it stops.
        max_proposals_per_agent: What one agent may propose in all rounds together, counters included.
        max_proposals_per_round: What one agent may propose in one round.
        max_back_and_forth: How deep a chain of counter-proposals may go.
        require_arbiter_on_conflict: Ask the arbiter after a tie or a vote that is close by one.
        arbiter_agents: Names of the arbiters; empty: the classes with `IS_ARBITER = True`, in activation order.
        arbitration: Which of several arbiters decides: the `first`, the one whose `domain` it is (else the first), or all of
            them by `vote`.
        arbiter_domains: Arbiter -> globs over intents, rule codes, file paths and contract elements that are its domain.
        max_file_changes_per_commit: Files that one accepted proposal may change.
        max_total_file_changes: Distinct files that a session may change.
        allow_external_dependencies: Allow changes to import packages that the project does not use yet.
        protected_files: Globs that no change may touch, on the relative path or the file name.
        electorate: Who votes: `affected` neighbours, or `all` agents (seed 001).
        max_votes_per_proposal: At most so many evaluators with the electorate `affected`.
        max_repairs: How often a proposer may mend a proposal that the gate refused.
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
        base_url: Where it is, e.g. `"http://localhost:8000/v1"`.
        wire: The protocol that it speaks: Anthropic Messages, or OpenAI Chat Completions.
        key_env: The environment variable with its key; empty: it needs none. The key of a well-known provider is refused unless
            `base_url` is at that provider.
        default_model: What `model = "NAME"` stands for.
        input_usd: Price of a million input tokens. Both prices 0: free on this machine, elsewhere not known, so that only
            tokens can be limited.
        output_usd: Price of a million output tokens.
    """

    base_url: str
    wire: Wire = "openai"
    key_env: str = ""
    default_model: str = ""
    input_usd: float = 0.0
    output_usd: float = 0.0


class LLMConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model negotiates, and how it is asked.

    Attributes:
        model: `"provider:name"`, or `"claude-…"` alone; `"rules"`: no model is asked; empty: the default model of the provider
            whose key is in the environment, else the rules.
        api_key: Seed 001 prints this field. It is always empty: the key belongs in the environment variable of the provider.
        proposer: Another model for analyses, proposals and repairs; empty: `model`.
        evaluator: Another model for votes; empty: `model`.
        arbiter: Another model for arbitration; empty: `model`.
        providers: Servers by name, beside the well-known ones.
        pass_env: Environment variables that a `command:` provider gets beside PATH, HOME and the locale.
        max_prompt_tokens: The longest prompt, at four bytes a token: an agent that would need a longer one is not asked. Set it
            below the context of a small model, which may cut prompts off without a word. 0: no limit.
        max_output_tokens: The longest answer; a longer one is cut off and counts as unusable.
        timeout_s: Wall time of one call.
        max_attempts: How often a call is tried when the provider is overloaded, limits the rate or cannot be reached.
        concurrency: Calls at the same time.
        requests_per_minute: 0: no limit.
        use_cache: Answer a request that was answered before from `.graphbus/cache/`.
    """

    model: str = ""
    api_key: str = ""
    proposer: str = ""
    evaluator: str = ""
    arbiter: str = ""
    providers: dict[str, ProviderConfig] = {}
    pass_env: tuple[str, ...] = ()
    max_prompt_tokens: int = 150_000
    max_output_tokens: int = 8192
    timeout_s: float = 180.0
    max_attempts: int = 5
    concurrency: int = 16
    requests_per_minute: int = 0
    use_cache: bool = True

    def __post_init__(self) -> None:
        if self.api_key:
            raise UsageError("GBE154")


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session may cost; reached: it stops with the reason `budget` and keeps what was accepted.

    Attributes:
        max_usd: Dollars, where the model's price is known; 0: no limit.
        max_tokens: Input and output tokens; 0: no limit.
        max_calls: Questions put to agents (analyse, propose, evaluate, arbitrate), over all agents.
        max_seconds: Wall time of the negotiation loop; 0: no limit.
    """

    max_usd: float = 5.0
    max_tokens: int = 0
    max_calls: int = 10_000
    max_seconds: float = 0.0


class GateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a change must pass before anybody votes on it.

    Attributes:
        test_command: The project's tests; empty: `pytest` when there is a test file or a `testpaths` anywhere, else none.
        timeout_s: What one child process of the gate may use: processor time of it and all that it starts, together with the
            time in which all of them sleep. While other programs keep the machine busy, it may take twenty times as long.
        memory_mb: Address space of one child process of the gate, and memory of all that it starts together.
        max_file_size_bytes: A changed file may not grow beyond this.
        max_changed_lines: A proposal may not change more lines than this.
        allow_unverified: Let changes pass that cannot be tried: the project cannot be copied, its tests cannot be run without
            the change either, or a changed module does not import without it. The report says which.
        checks: Further commands that must find nothing new, e.g. `[["ruff", "check"], ["mypy", "agents"]]`.
        isolation: Where changed code runs: in a `jail` without network, files of yours or other processes; where there is none,
            nothing runs. `process`: in a plain child process with limits, which could read your files and use the network.
        target_python: The Python that changed files must compile for, `"3.11"`; empty: `requires-python` of the project.
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
    """`[tool.graphbus.runtime.serve]`: HTTP, only with `graphbus run --serve`.

    Attributes:
        host: The address to listen on.
        port: 0: any that is free.
        token_env: The environment variable with the token that requests must bear.
        token_file: Or the file with it, absolute or relative to the project root.
        allowed_hosts: Names of this server beside `localhost` and addresses, e.g. `["shop.example.org"]`.
        allowed_origins: Web pages that may send requests, e.g. `["https://shop.example.org"]`.
        max_body_bytes: The longest body of a request.
        max_connections: Requests on as many connections at the same time; one more is answered with 503.
        concurrency: Calls and events that are worked on at the same time.
        backlog: Calls and events that may wait for that; one more is answered with 503.
        call_timeout_s: How long a call may take before it is answered with 504, and the longest `?wait=` of an event.
        stuck_after_s: How long a handler may run before `/livez` says that the graph is stuck; 0: as long as it wants.
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


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus.runtime]`.

    Attributes:
        validation: What happens to a payload or argument that does not fit its schema: refused, logged, or not looked at.
        grace_s: Seconds that a shutdown waits for what is under way.
        history: How many events the bus remembers; 0: none.
        queue: How many events may wait before a publisher from outside is refused.
        mailbox: How many events may wait for one agent with async handlers.
        max_hops: How long a chain of events may become.
        max_tree: How many events may come of one.
        dead_letters: How many dead letters are kept in memory.
        keep_dead_letters: Keep them in `state_dir` as well, for `graphbus dlq`. `"auto"`: where agents keep state, from the first
            use of `self.state` on.
        state_dir: Where a running graph writes: its agents' state, dead letters, traces and profiles. Absolute, or relative to
            the project root.
        middleware: What goes around every handler and call, outermost first: `"package.module:name"`.
        factory: What makes the agents: `"package.module:name"`, called with each class. Empty: they are made without arguments.
        tracing: A span of OpenTelemetry for every handler and call; the program that starts the graph sets up where they go.
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
    serve: ServeConfig = ServeConfig()


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus]`.

    Attributes:
        exclude: Globs of files and folders that are not read, on the path relative to the project root.
        external_topics: Topics (patterns allowed) that are published or heard outside of the graph.
        select: Rule codes or prefixes that `graphbus check` reports; empty: all that are on by default.
        ignore: Rule codes or prefixes that it leaves out.
        max_source_bytes: A larger source file is an error.
        refactoring_goals: What the agents shall work towards, e.g. `["align_schemas", "add_validation"]`.
        intent: What a person wants of this negotiation, in words.
        artifacts: The artifact folder, relative to the project root.
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


class ResolvedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """What a build works with: `BuildConfig` and the settings of the project, resolved. Source: seed 001, LOAD_BUILD_CONFIG.

    Attributes:
        root: The project root, absolute: the nearest folder upwards with a pyproject.toml.
        paths: What is built, absolute.
        session: The name of the negotiation session, `"S001"`; empty without one.
        locked: In a frozen build, how many agents the lock covers.
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
        """The dotted names of the modules that settings of a run name: those of its middleware and its factory."""
        runtime = self.settings.runtime
        return tuple(name.partition(":")[0] for name in (*runtime.middleware, runtime.factory) if name)

    @property
    def safety_config(self) -> SafetyConfig:
        """The limits of the negotiation (seed 001)."""
        return self.settings.safety

    @property
    def llm_config(self) -> LLMConfig:
        """Who negotiates (seed 001)."""
        return self.settings.llm

    @property
    def refactoring_goals(self) -> tuple[str, ...]:
        """What the agents work towards (seed 001)."""
        return self.settings.refactoring_goals

    @property
    def artifacts_dir(self) -> str:
        """Where artifacts go, absolute."""
        return f"{self.root}/{self.settings.artifacts}"


class ResolvedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run works with: `RuntimeConfig` and the settings of the project, resolved.

    Attributes:
        artifacts_dir: Absolute.
        state_dir: Absolute.
        external_topics: Topics (patterns allowed) that are published or heard outside of the graph.
        instruments: See `RuntimeConfig`.
        is_partial: See `RuntimeConfig`.
        only: See `RuntimeConfig`.
        is_confined: See `RuntimeConfig`.
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
    is_confined: bool = False
    powers: Powers = Powers()
    settings: RuntimeSettings = RuntimeSettings()


class BuildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks of Build Mode, before any file is read. Source: seed 001, LOAD_BUILD_CONFIG.

    Attributes:
        paths: Files or folders with agents, absolute or relative to the working directory.
        root_package: A dotted package name instead of paths, found from the working directory, its `src` or sys.path (seed 001).
        enable_agents: Negotiate and change source files.
        dry_run: Negotiate, but write neither source files nor artifacts.
        force: Build although nothing has changed.
        rounds: Overrides `safety.max_negotiation_rounds`.
        unsafe_verify: Overrides `gate.allow_unverified`.
        emit_artifacts: False for `graphbus negotiate` without a build.
        model: Overrides `llm.model`, and the models of single roles.
        max_usd: Overrides `budget.max_usd`.
        use_cache: False: every request goes to the provider.
        is_frozen: Ask no model: the committed lock must say that every agent has settled on its present inputs.
        is_reviewed: A person says yes or no to each change before it is committed.
        is_resumed: Go on with the last session that was interrupted.
        makes_commits: One git commit for each accepted proposal.
        llm_config: Replaces `[tool.graphbus.llm]`, for callers from Python (seed 001).
        safety_config: Replaces `[tool.graphbus.safety]`, likewise.
        refactoring_goals: Replaces those of `[tool.graphbus]`, likewise.
        settings: Replaces all that pyproject.toml says, likewise.
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
    """What a caller asks of Runtime Mode. Source: seed 001, LOAD_RUNTIME_CONFIG.

    Attributes:
        artifacts: The artifact folder.
        entrypoint: `"package.module:function"`, called with no argument, or with the running graph if it takes one.
        allow_drift: Start although source files differ from what was built.
        is_serving: The graph stays up: a thread of its own delivers, and publishers do not wait.
        instruments: Middleware around that of the project, outermost first: what measures, traces or stops at handlers.
        is_partial: Leave out the agents that cannot start, instead of starting nothing.
        only: The names of the agents that run in this process; empty: all.
        is_confined: Bind this process to the declared powers, for good, before anything of the project is imported.
        validation: Overrides `[tool.graphbus.runtime]`.
    """

    artifacts: str = ".graphbus"
    entrypoint: str = ""
    allow_drift: bool = False
    is_serving: bool = False
    instruments: tuple[Instrument, ...] = ()
    is_partial: bool = False
    only: tuple[str, ...] = ()
    is_confined: bool = False
    validation: Validation | None = None
