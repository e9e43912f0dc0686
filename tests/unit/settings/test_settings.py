"""`[tool.graphbus]` and requests: defaults, the order of precedence, and everything that is wrong at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphbus_core.errors import GraphBusError, SeveralErrors, UsageError
from graphbus_core.model.config import BuildConfig, ProviderConfig, RuntimeConfig, Settings
from graphbus_core.model.powers import Powers
from graphbus_core.settings import find_root, load, resolve_build, resolve_run
from tests.conftest import Project
from tests.project_files import write_project


def _load(root: Path, text: str) -> Settings:
    return load(write_project(root, {"pyproject.toml": text}))


def _refused(root: Path, text: str) -> list[tuple[str, str, str]]:
    """Code, line and sentence of each error."""
    with pytest.raises(GraphBusError) as caught:
        _load(root, text)
    errors = caught.value.errors if isinstance(caught.value, SeveralErrors) else (caught.value,)
    assert all(isinstance(error, UsageError) for error in errors)
    assert all(error.where and error.where.path == str(root / "pyproject.toml") for error in errors)
    return [(error.code, str(error.where.line if error.where else 0), error.sentence) for error in errors]


@pytest.mark.parametrize("text", ["", "[tool]\n", "[tool.graphbus]\n", "[project]\nname = 'x'\n"])
def test_without_settings_the_defaults_hold(tmp_path: Path, text: str) -> None:
    assert _load(tmp_path, text) == Settings()


def test_without_a_project_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings()


def test_every_kind_of_value_is_read(tmp_path: Path) -> None:
    found = _load(
        tmp_path,
        """
        [tool.graphbus]
        exclude = ["old/*"]
        intent = "faster"
        gate.timeout_s = 5
        [tool.graphbus.safety]
        electorate = "all"
        require_arbiter_on_conflict = false
        max_votes_per_proposal = 5
        [tool.graphbus.llm]
        model = "rules"
        [tool.graphbus.llm.providers.office]
        base_url = "https://models.example.org/v1"
        key_env = "OFFICE_KEY"
        input_usd = 2
        [tool.graphbus.safety.arbiter_domains]
        Referee = ["add_*"]
        """,
    )
    assert found.exclude == ("old/*",)
    assert found.intent == "faster"
    assert found.gate.timeout_s == 5.0
    assert found.safety.electorate == "all"
    assert found.safety.require_arbiter_on_conflict is False
    assert found.safety.max_votes_per_proposal == 5
    assert found.llm.providers == {
        "office": ProviderConfig(base_url="https://models.example.org/v1", key_env="OFFICE_KEY", input_usd=2.0)
    }
    assert found.safety.arbiter_domains == {"Referee": ("add_*",)}


@pytest.mark.parametrize(
    ("text", "code", "line", "sentence"),
    [
        (
            "[tool.graphbus]\nexlude = []",
            "GBE102",
            "2",
            "Unknown key 'exlude' in [tool.graphbus]. Did you mean 'exclude'?",
        ),
        ("[tool.graphbus]\n\nzzz = 1", "GBE102", "3", "Unknown key 'zzz' in [tool.graphbus]."),
        (
            "[tool.graphbus.saftey]\nx = 1",
            "GBE102",
            "1",
            "Unknown key 'saftey' in [tool.graphbus]. Did you mean 'safety'?",
        ),
        ("[tool.graphbus.safety]\nmax_round = 1", "GBE102", "2", "Unknown key 'max_round' in [tool.graphbus.safety]."),
        ("[tool.graphbus]\nsafety.x = 1", "GBE102", "2", "Unknown key 'x' in [tool.graphbus.safety]."),
        ("[tool.graphbus]\nsafety = { x = 1 }", "GBE102", "2", "Unknown key 'x' in [tool.graphbus.safety]."),
        (
            "[tool.graphbus]\n'exlude' = []",
            "GBE102",
            "2",
            "Unknown key 'exlude' in [tool.graphbus]. Did you mean 'exclude'?",
        ),
        (
            "[tool.graphbus.llm.providers.office]\nbaseurl = 'x'\nbase_url = 'y'",
            "GBE102",
            "2",
            "Unknown key 'baseurl' in [tool.graphbus.llm.providers.office]. Did you mean 'base_url'?",
        ),
        (
            "[tool.graphbus.llm]\nmodel = 'x'\n[tool.graphbus.llm.providers.office]\nwire = 'openai'",
            "GBE144",
            "3",
            "The required key `base_url` is missing in [tool.graphbus.llm.providers.office].",
        ),
        (
            "[tool.graphbus.llm.providers]\noffice = 'x'",
            "GBE103",
            "2",
            "office in [tool.graphbus.llm.providers] must be a table, not 'x'.",
        ),
        (
            "[tool.graphbus.llm]\nproviders = 'x'",
            "GBE103",
            "2",
            "providers in [tool.graphbus.llm] must be a table of tables, not 'x'.",
        ),
        (
            "[tool.graphbus.llm.providers.office]\nbase_url = 'y'\nwire = 'http'",
            "GBE103",
            "3",
            'wire in [tool.graphbus.llm.providers.office] must be "anthropic" or "openai", not \'http\'.',
        ),
        (
            "[tool.graphbus.safety]\narbiter_domains = ['x']",
            "GBE103",
            "2",
            "arbiter_domains in [tool.graphbus.safety] must be a table of lists of strings, not ['x'].",
        ),
        (
            "[tool.graphbus.gate]\nchecks = ['ruff']",
            "GBE103",
            "2",
            "checks in [tool.graphbus.gate] must be a list of lists of strings, not ['ruff'].",
        ),
        ("[tool.graphbus]\nintent = 3", "GBE103", "2", "intent in [tool.graphbus] must be a string, not 3."),
        (
            "[tool.graphbus]\nexclude = 'a'",
            "GBE103",
            "2",
            "exclude in [tool.graphbus] must be a list of strings, not 'a'.",
        ),
        (
            "[tool.graphbus]\nexclude = [1]",
            "GBE103",
            "2",
            "exclude in [tool.graphbus] must be a list of strings, not [1].",
        ),
        (
            "[tool.graphbus]\nmax_source_bytes = '1'",
            "GBE103",
            "2",
            "max_source_bytes in [tool.graphbus] must be a whole number, not '1'.",
        ),
        (
            "[tool.graphbus]\nmax_source_bytes = -1",
            "GBE103",
            "2",
            "max_source_bytes in [tool.graphbus] must be a whole number of at least 0, not -1.",
        ),
        *(
            (
                f"[tool.graphbus.budget]\nmax_usd = {number}",
                "GBE103",
                "2",
                f"max_usd in [tool.graphbus.budget] must be a finite number, not {number}.",
            )
            for number in ("nan", "inf")
        ),
        (
            "[tool.graphbus]\nmax_source_bytes = true",
            "GBE103",
            "2",
            "max_source_bytes in [tool.graphbus] must be a whole number, not True.",
        ),
        (
            "[tool.graphbus.gate]\ntimeout_s = 'a'",
            "GBE103",
            "2",
            "timeout_s in [tool.graphbus.gate] must be a number, not 'a'.",
        ),
        (
            "[tool.graphbus.safety]\nelectorate = 'some'",
            "GBE103",
            "2",
            'electorate in [tool.graphbus.safety] must be "affected" or "all", not \'some\'.',
        ),
        (
            "[tool.graphbus.safety]\nrequire_arbiter_on_conflict = 1",
            "GBE103",
            "2",
            "require_arbiter_on_conflict in [tool.graphbus.safety] must be true or false, not 1.",
        ),
        ("[tool.graphbus]\nsafety = 1", "GBE103", "2", "safety in [tool.graphbus] must be a table, not 1."),
        ("[tool]\ngraphbus = 1", "GBE103", "2", "graphbus in [tool] must be a table, not 1."),
        (
            "[tool.graphbus]\nartifacts = '../out'",
            "GBE103",
            "2",
            "artifacts in [tool.graphbus] must be a folder inside the project, not '../out'.",
        ),
        (
            "[tool.graphbus]\nartifacts = '/out'",
            "GBE103",
            "2",
            "artifacts in [tool.graphbus] must be a folder inside the project, not '/out'.",
        ),
        (
            "[tool.graphbus]\nartifacts = '.'",
            "GBE103",
            "2",
            "artifacts in [tool.graphbus] must be a folder inside the project, not '.'.",
        ),
        (
            "[tool.graphbus]\nartifacts = ''",
            "GBE103",
            "2",
            "artifacts in [tool.graphbus] must be a folder inside the project, not ''.",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_line(
    tmp_path: Path, text: str, code: str, line: str, sentence: str
) -> None:
    assert _refused(tmp_path, text) == [(code, line, sentence)]


HOSTS = 'false or a list of hosts: names, "*.name", addresses, or ["*"] for every host'
PATHS = "a list of files and folders, without `..` and patterns"
VARIABLES = 'a list of names like "DATABASE_URL" or "SHOP_*"'


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        *(("network", value, HOSTS) for value in ("true", "1", "''", "[]", "[1]", "['']", "['a b']", "['http://a']")),
        *(
            ("network", value, HOSTS)
            for value in ("['a:443']", "['a*']", "['*.']", "['300.1.1.1']", "['-a-.b']", "['a/8']")
        ),
        *(
            ("write", value, PATHS)
            for value in ("['']", "['../a']", "['a/../../b']", "['a/*']", "['~/a']", "['$HOME']")
        ),
        *(("read", value, PATHS) for value in ("[' ']", "['..']", "['/etc/*']")),
        *(("environment", value, VARIABLES) for value in ("['']", "['1A']", "['A=B']", "['*']", "['A*B']", "['A B']")),
    ],
)
def test_a_wrong_power_is_refused(tmp_path: Path, key: str, value: str, expected: str) -> None:
    ((code, line, sentence),) = _refused(tmp_path, f"[tool.graphbus.powers]\n{key} = {value}\n")
    assert (code, line) == ("GBE103", "2")
    assert sentence.startswith(f"{key} in [tool.graphbus.powers] must be {expected}, not ")


def test_powers_are_read(tmp_path: Path) -> None:
    found = _load(
        tmp_path,
        """
        [tool.graphbus.powers]
        network = ["api.bank.example", "*.shop.example", "10.0.0.1", "fd00::1", "localhost", "*"]
        write = ["reports/", "log.txt", "/srv/a..b"]
        read = ["/etc/hosts"]
        processes = true
        environment = ["A", "B_*"]
        """,
    ).powers
    assert found.network
    assert (len(found.network), found.processes, found.environment) == (6, True, ("A", "B_*"))
    assert _load(tmp_path, "[tool.graphbus.powers]\nnetwork = false\n").powers == Powers()


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path) -> None:
    text = "[tool.graphbus]\none = 1\nintent = 2\n[tool.graphbus.gate]\ntwo = 2\n"
    assert [(code, line) for code, line, _ in _refused(tmp_path, text)] == [
        ("GBE102", "2"),
        ("GBE103", "3"),
        ("GBE102", "5"),
    ]


@pytest.mark.parametrize("text", ["[tool.graphbus\n", "x = \n", b"x = '\xff'"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: str | bytes) -> None:
    write_project(tmp_path, {"pyproject.toml": text})
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert caught.value.code == "GBE104"


# --- the project root ---------------------------------------------------------------------------


def test_the_root_is_the_nearest_folder_with_a_project_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, {"pyproject.toml": "", "a/pyproject.toml": "", "a/b/c/x.py": ""})
    monkeypatch.chdir(tmp_path)
    assert find_root([tmp_path / "a/b/c/x.py"]) == tmp_path / "a"
    assert find_root([Path("a/b/c")]) == tmp_path / "a"
    assert find_root([Path("a")]) == tmp_path / "a"
    assert find_root([Path("a/b"), tmp_path]) == tmp_path
    assert find_root([]) == tmp_path


def test_without_a_project_file_it_is_the_working_directory_or_what_holds_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, {"here/agents/x.py": "", "there/agents/x.py": ""})
    monkeypatch.chdir(tmp_path / "here")
    assert find_root([Path("agents")]) == tmp_path / "here"
    assert find_root([Path()]) == tmp_path / "here"
    assert find_root([tmp_path / "there/agents"]) == tmp_path / "there"
    assert find_root([tmp_path / "there/agents/x.py"]) == tmp_path / "there/agents"


# --- requests -----------------------------------------------------------------------------------


def test_a_build_request_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, {"pyproject.toml": "[tool.graphbus]\nintent = 'file'\n", "agents/a.py": ""})
    monkeypatch.chdir(tmp_path)
    config = resolve_build(BuildConfig(paths=("agents", "./agents"), enable_agents=True, dry_run=True, session="S1"))
    assert (config.root, config.paths) == (str(tmp_path), (str(tmp_path / "agents"),))
    assert (config.enable_agents, config.dry_run, config.force, config.session) == (True, True, False, "S1")
    assert config.settings.intent == "file"
    assert config.artifacts_dir == f"{tmp_path}/.graphbus"


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    write_project(
        tmp_path, {"pyproject.toml": "[tool.graphbus]\nintent = 'file'\nsafety.max_proposals_per_agent = 9\n"}
    )
    request = BuildConfig(paths=(str(tmp_path),), rounds=2, intent="command line", unsafe_verify=True)
    config = resolve_build(request)
    assert config.settings.gate.allow_unverified
    assert not resolve_build(BuildConfig(paths=(str(tmp_path),))).settings.gate.allow_unverified
    assert config.settings.intent == "command line"
    assert config.safety_config.max_negotiation_rounds == 2
    assert config.safety_config.max_proposals_per_agent == 9


def test_settings_from_python_replace_the_file(tmp_path: Path) -> None:
    write_project(tmp_path, {"pyproject.toml": "[tool.graphbus]\nnonsense = 1\n"})
    assert resolve_build(BuildConfig(paths=(str(tmp_path),), settings=Settings(intent="x"))).settings.intent == "x"


def test_without_a_path_the_working_directory_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_build(BuildConfig()).paths == (str(tmp_path),)


def test_every_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(SeveralErrors) as caught:
        resolve_build(BuildConfig(paths=(str(tmp_path / "a"), str(tmp_path), str(tmp_path / "b"))))
    assert [(error.code, error.data["path"]) for error in caught.value.errors] == [
        ("GBE101", str(tmp_path / "a")),
        ("GBE101", str(tmp_path / "b")),
    ]


@pytest.mark.parametrize(
    ("place", "name", "found"),
    [
        ("shop/agents/a.py", "shop.agents", "shop/agents"),
        ("src/shop/agents/a.py", "shop.agents", "src/shop/agents"),
        ("shop/agents.py", "shop.agents", "shop/agents.py"),
        ("lib/shop/agents/a.py", "shop.agents", "lib/shop/agents"),
    ],
)
def test_a_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str, found: str
) -> None:
    write_project(tmp_path, {"pyproject.toml": "", place: "raise SystemExit"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    assert resolve_build(BuildConfig(root_package=name)).paths == (str(tmp_path / found),)


def test_a_package_that_is_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        resolve_build(BuildConfig(root_package="no.such.package"))
    assert caught.value.code == "GBE105"


def test_a_run_request_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, {"pyproject.toml": "[tool.graphbus.runtime]\nvalidation = 'warn'\nhistory = 5\n"})
    monkeypatch.chdir(tmp_path)
    config = resolve_run(RuntimeConfig(entrypoint="a:b", allow_drift=True))
    assert (config.artifacts_dir, config.entrypoint) == (str(tmp_path / ".graphbus"), "a:b")
    assert (config.allow_drift, config.settings.validation, config.settings.history) == (True, "warn", 5)
    assert resolve_run(RuntimeConfig(validation="off")).settings.validation == "off"


def test_a_run_does_not_read_the_settings_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_project(tmp_path, {"pyproject.toml": "[tool.others]\nx = \n"}))
    assert resolve_run(RuntimeConfig()).settings == Settings().runtime
    write_project(tmp_path, {"pyproject.toml": "[tool.graphbus]\nx = \n"})
    with pytest.raises(UsageError, match="GBE104"):
        resolve_run(RuntimeConfig())


def test_a_project_file_that_cannot_be_read_is_refused_in_a_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_project(tmp_path, {"pyproject.toml": ""}) / "pyproject.toml"
    open_truly = open

    def refuse(path: object, *arguments: Any) -> Any:
        if path == str(file):
            raise PermissionError(13, "Permission denied")
        return open_truly(path, *arguments)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(UsageError, match="GBE161"):
        resolve_run(RuntimeConfig())


def test_a_model_of_the_command_line_answers_in_every_role(tmp_path: Path) -> None:
    root = write_project(
        tmp_path, {"pyproject.toml": '[tool.graphbus.llm]\nproposer = "openai"\narbiter = "command:judge"\n'}
    )
    llm = resolve_build(BuildConfig(paths=(str(root),), model="rules")).settings.llm
    assert (llm.model, llm.proposer, llm.evaluator, llm.arbiter) == ("rules", "", "", "")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        *((f"{name} = 0", "of at least 1") for name in ("max_connections", "concurrency")),
        *((f"{name} = 0", "a number above 0") for name in ("call_timeout_s",)),
        ("port = 65536", "a whole number up to 65535"),
        *(
            (f'allowed_origins = ["{origin}"]', 'a list of origins like "https://shop.example.org:8443"')
            for origin in ("*", "shop.example.org", "https://shop.example.org/", "https://Shop.example.org", "null", "")
        ),
        *(
            (f'allowed_hosts = ["{host}"]', 'a list of names like "shop.example.org", without a port')
            for host in ("*", "shop.example.org:80", "https://shop.example.org", "")
        ),
    ],
)
def test_a_server_that_could_answer_nobody_or_anybody_is_refused(project: Project, setting: str, expected: str) -> None:
    root = project({"pyproject.toml": f"[tool.graphbus.runtime.serve]\n{setting}"})
    with pytest.raises(UsageError, match="GBE103") as refused:
        load(root)
    assert expected in refused.value.sentence


def test_no_partitions_would_leave_events_without_a_place_and_are_refused(project: Project) -> None:
    with pytest.raises(UsageError, match="GBE103") as refused:
        load(project({"pyproject.toml": "[tool.graphbus.runtime]\npartitions = 0"}))
    assert "a whole number of at least 1" in refused.value.sentence


@pytest.mark.parametrize(
    ("line", "code", "expected"),
    [
        ("replicas = 6", "GBE103", "a whole number up to 5"),
        ("replicas = -1", "GBE103", "at least 0"),
        ("max_bytes = '1GiB'", "GBE103", "a whole number"),
        ("max_age = 1", "GBE102", "max_age"),
    ],
)
def test_settings_of_a_stream_are_checked(line: str, code: str, expected: str, project: Project) -> None:
    with pytest.raises(UsageError, match=code) as refused:
        load(project({"pyproject.toml": f"[tool.graphbus.runtime.nats]\n{line}"}))
    assert expected in refused.value.sentence
    assert refused.value.where is not None
    assert refused.value.where.line == 2


def test_origins_and_names_as_browsers_send_them_are_taken(project: Project) -> None:
    text = 'allowed_origins = ["https://a.example:8443", "http://[::1]:3000", "app://x"]\nallowed_hosts = ["A.example"]'
    serve = load(project({"pyproject.toml": f"[tool.graphbus.runtime.serve]\n{text}"})).runtime.serve
    assert len(serve.allowed_origins) == 3
    assert serve.allowed_hosts == ("A.example",)
