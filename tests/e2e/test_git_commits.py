"""`--commit` over real repositories: one commit for each decision, and nothing else of the repository is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.editing import commits
from graphbus_core.errors import GraphBusError, NegotiationError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation.apply import load_commits, plan_commits, prepare_commits
from tests.fakes.landed_sessions import FILES, LOG, ORDER, PRICE, REBATE, Agreed
from tests.project_files import write_project
from tests.unit.editing.git_project import commit_files, git, make_repository

AGENTS = ("agents/order.py", "agents/stock.py")


@pytest.fixture(autouse=True)
def own_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = tmp_path_factory.mktemp("home") / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return config


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "shop", FILES)


def subjects(folder: Path) -> list[str]:
    return git(folder, "log", "--reverse", "--format=%s").splitlines()


def state(folder: Path, *without: str) -> dict[str, object]:
    """All of a repository that must stay: refs, stash, remotes, settings, the index entries and other files."""
    entries = git(folder, "ls-files", "--stage", "--debug", "-v").split("\n")
    kept, is_kept = [], True
    for line in entries:
        if not line.startswith("  "):
            is_kept = not any(line.endswith(f"\t{path}") for path in without)
        if is_kept:
            kept.append(line)
    refs = git(folder, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {
        "refs": [line for line in refs if not line.startswith("refs/heads/main ")],
        "head": git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "stash": git(folder, "stash", "list"),
        "remotes": git(folder, "remote", "-v"),
        "config": (folder / ".git" / "config").read_bytes() if (folder / ".git").is_dir() else b"",
        "index": kept,
        "status": [line for line in git(folder, "status", "--porcelain", "-z").split("\0") if line[3:] not in without],
    }


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(GraphBusError) as refused:
        action()
    return str(refused.value)


def prepare(root: Path) -> Callable[[], object]:
    return lambda: prepare_commits(ResolvedBuild(root=str(root), paths=(), makes_commits=True), AGENTS)


def test_each_accepted_proposal_is_one_commit_with_its_own_state(shop: Path) -> None:
    before = git(shop, "rev-parse", "HEAD").strip()
    session = Agreed(shop)
    session.accept(PRICE).accept(LOG, REBATE, title="Log what was sold")
    session.land()
    assert subjects(shop) == ["begin", "fix(Order): refuse negative prices", "fix(Order): log what was sold"]
    assert git(shop, "status", "--porcelain") == ""
    assert git(shop, "diff", "--name-only", "HEAD~2", "HEAD~1").split() == ["agents/order.py"]
    assert git(shop, "diff", "--name-only", "HEAD~1", "HEAD").split() == ["agents/order.py", "agents/stock.py"]
    assert git(shop, "show", "HEAD~1:agents/order.py") == ORDER.replace(PRICE[1], PRICE[2])
    made = load_commits(session.config.artifacts_dir, "S001")
    assert made is not None
    assert (made.branch, made.before) == ("refs/heads/main", before)
    ids = git(shop, "log", "--reverse", "--format=%H").split()
    assert list(made.commits.items()) == [("P001", ids[1]), ("P002", ids[2])]
    assert git(shop, "log", "-1", "--format=%an %ae %cn").strip() == "A Person person@example.com A Person"
    assert git(shop, "fsck", "--strict") == ""


def test_a_revert_takes_back_one_decision(shop: Path) -> None:
    Agreed(shop).accept(PRICE).accept(LOG, title="Log what was sold").land()
    git(shop, "revert", "--no-edit", "HEAD~1")
    assert (shop / "agents/order.py").read_text() == ORDER
    assert "sold" in (shop / "agents/stock.py").read_text()


def test_a_dirty_tree_and_staged_files_stay_as_they_are(shop: Path) -> None:
    commit_files(shop, {"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
    git(shop, "stash", "list")
    (shop / "a.txt").write_text("stashed\n")
    git(shop, "stash")
    git(shop, "tag", "old")
    git(shop, "branch", "other")
    git(shop, "remote", "add", "origin", "/nowhere")
    write_project(shop, {"a.txt": "staged\n", "b.txt": "not staged\n", "new.txt": "staged and new\n", "wild.txt": ""})
    git(shop, "add", "a.txt", "new.txt")
    git(shop, "rm", "-q", "--cached", "c.txt")
    before = state(shop, "agents/order.py")
    Agreed(shop).accept(PRICE).land()
    assert state(shop, "agents/order.py") == before
    assert git(shop, "show", "--name-only", "--format=", "HEAD").split() == ["agents/order.py"]
    assert git(shop, "diff", "HEAD", "--name-only", "--", "agents") == ""
    assert git(shop, "diff", "--cached", "--name-only", "--", "agents") == ""


def test_an_index_entry_that_a_person_has_staged_is_kept(shop: Path) -> None:
    write_project(shop, {"agents/order.py": ORDER + "# staged\n"})
    git(shop, "add", "agents/order.py")
    write_project(shop, {"agents/order.py": ORDER})
    staged = git(shop, "ls-files", "--stage", "agents/order.py")
    Agreed(shop).accept(PRICE).land()
    assert git(shop, "ls-files", "--stage", "agents/order.py") == staged
    assert len(subjects(shop)) == 2


def test_a_file_with_changes_of_its_own_is_written_and_not_committed(shop: Path) -> None:
    write_project(shop, {"agents/order.py": f"# mine\n{ORDER}"})
    session = Agreed(shop).accept(LOG, title="Log what was sold").accept(PRICE)
    said = refusal(session.land)
    assert "GBE435" in said
    assert "agents/order.py had changes that were not committed before the session" in said
    assert "max(price, 0)" in (shop / "agents/order.py").read_text()
    assert "sold" in (shop / "agents/stock.py").read_text()
    assert subjects(shop) == ["begin"]
    assert load_commits(session.config.artifacts_dir, "S001") is None
    assert git(shop, "diff", "--cached", "--name-only") == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (AGENTS[:0], ""),
        (AGENTS[:1], "agents/order.py has changes that are not committed. If an accepted proposal changes it, all"),
        (
            AGENTS,
            "agents/order.py, agents/stock.py have changes that are not committed. If an accepted proposal changes one of",
        ),
        (("notes.txt",), ""),
    ],
)
def test_files_with_changes_of_their_own_are_named_at_the_start(
    shop: Path, changed: tuple[str, ...], said: str
) -> None:
    for path in changed:
        (shop / path).write_text(f"# mine\n{(shop / path).read_text()}")
    warning = prepare(shop)()
    assert isinstance(warning, str)
    assert warning.startswith(said)
    assert bool(warning) == bool(said)


def test_it_works_in_a_subfolder_of_a_monorepo(tmp_path: Path) -> None:
    inner = {f"services/shöp 1/{name}": text for name, text in FILES.items()}
    top = make_repository(tmp_path, {**inner, "other/agents/order.py": "other\n"})
    root = top / "services/shöp 1"
    Agreed(root).accept(PRICE).accept(LOG, title="Log what was sold").land()
    assert git(top, "status", "--porcelain") == ""
    assert git(top, "show", "HEAD~1:services/shöp 1/agents/order.py") == ORDER.replace(PRICE[1], PRICE[2])
    assert len(subjects(top)) == 3


def test_it_works_in_a_worktree_and_leaves_the_other_one_alone(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", FILES)
    git(main, "worktree", "add", "-q", "-b", "topic", str(tmp_path / "tree"))
    before = state(main)
    Agreed(tmp_path / "tree").accept(PRICE).land()
    after = state(main)
    assert {key: value for key, value in after.items() if key != "refs"} == {
        key: value for key, value in before.items() if key != "refs"
    }
    assert git(main, "log", "-1", "--format=%s", "main").strip() == "begin"
    assert git(main, "log", "-1", "--format=%s", "topic").strip() == "fix(Order): refuse negative prices"
    assert git(tmp_path / "tree", "status", "--porcelain") == ""


def test_odd_names_are_committed_like_others(tmp_path: Path) -> None:
    names = ("agents/with space.py", "agents/äöü.py", "agents/[a].py", "agents/:(top)x.py")
    shop = make_repository(
        tmp_path, {**FILES, **{name: ORDER.replace("Order(", f"Odd{at}(") for at, name in enumerate(names)}}
    )
    session = Agreed(shop)
    for name in names:
        session.accept((name, PRICE[1], PRICE[2]))
    session.land()
    assert git(shop, "status", "--porcelain") == ""
    assert len(subjects(shop)) == 5


def test_no_hook_and_no_program_of_the_repository_is_run(shop: Path, tmp_path: Path) -> None:
    trap = f"#!/bin/sh\necho $0 >> {tmp_path}/ran\nexit 1\n"
    for name in (
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-commit",
        "reference-transaction",
        "post-index-change",
    ):
        hook = shop / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(trap)
        hook.chmod(0o755)
    for key in ("core.fsmonitor", "core.editor", "core.pager", "diff.external", "gpg.program"):
        git(shop, "config", key, str(shop / ".git/hooks/pre-commit"))
    (tmp_path / "ran").unlink(missing_ok=True)
    Agreed(shop).accept(PRICE).land()
    assert not (tmp_path / "ran").exists()
    git(shop, "config", "--unset", "core.fsmonitor")
    assert len(subjects(shop)) == 2


@pytest.mark.parametrize(("setting", "ends"), [("true", "\n"), ("input", "\r\n"), ("false", "\r\n")])
def test_line_ends_in_a_commit_are_those_that_git_add_makes(shop: Path, setting: str, ends: str) -> None:
    text = f"# Orders\n{ORDER}".replace("\n", ends)
    commit_files(shop, {"agents/order.py": text.encode()})  # with CRLF in the repository, if any
    git(shop, "config", "core.autocrlf", setting)
    if setting == "true":
        (shop / "agents/order.py").write_bytes(text.replace("\r\n", "\n").replace("\n", "\r\n").encode())
    found = (shop / "agents/order.py").read_bytes().count(b"\r\n") > 0
    new = (PRICE[0], PRICE[1].strip(), PRICE[2].strip())
    Agreed(shop).accept(new).land()
    assert git(shop, "show", "--numstat", "--format=", "HEAD").split() == ["1", "1", "agents/order.py"]
    assert (b"\r\n" in (shop / "agents/order.py").read_bytes()) == found
    git(shop, "add", "agents/order.py")
    assert git(shop, "diff", "--cached", "--name-only") == ""


def test_attributes_decide_the_line_ends_too(tmp_path: Path) -> None:
    shop = make_repository(tmp_path, {**FILES, "agents/.gitattributes": "*.py text eol=crlf\n"})
    (shop / "agents/order.py").write_bytes(ORDER.replace("\n", "\r\n").encode())
    Agreed(shop).accept((PRICE[0], PRICE[1].strip(), PRICE[2].strip())).land()
    assert git(shop, "show", "--numstat", "--format=", "HEAD").split() == ["1", "1", "agents/order.py"]
    assert "\r" not in git(shop, "show", "HEAD:agents/order.py")


def test_signed_commits_are_signed_by_the_program_of_the_person(
    shop: Path, tmp_path: Path, own_configuration: Path
) -> None:
    signer = tmp_path / "sign.sh"
    signer.write_text(
        "#!/bin/sh\ncat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\n"
        "printf -- '-----BEGIN PGP SIGNATURE-----\\nx\\n-----END PGP SIGNATURE-----\\n'\n"
    )
    signer.chmod(0o755)
    own_configuration.write_text(f"[commit]\n gpgsign = true\n[gpg]\n program = {signer}\n")
    prepare(shop)()
    Agreed(shop).accept(PRICE).land()
    assert "BEGIN PGP SIGNATURE" in git(shop, "cat-file", "commit", "HEAD")


def test_a_commit_that_cannot_be_signed_is_not_made(shop: Path, own_configuration: Path) -> None:
    own_configuration.write_text("[commit]\n gpgsign = true\n[gpg]\n program = /bin/false\n")
    session = Agreed(shop).accept(PRICE)
    assert "GBE435" in refusal(session.land)
    assert subjects(shop) == ["begin"]
    assert load_commits(session.config.artifacts_dir, "S001") is None


# --- what is refused before anybody is asked ---------------------------------------------------


def test_without_a_history_nothing_begins(tmp_path: Path) -> None:
    assert "there is no git repository" in refusal(prepare(write_project(tmp_path, FILES)))
    assert "there is no commit yet" in refusal(prepare(make_repository(tmp_path)))


@pytest.mark.parametrize("missing", ["user.name", "user.email"])
def test_without_a_name_nothing_begins(shop: Path, missing: str) -> None:
    git(shop, "config", "--unset", missing)
    assert "git has no name or e-mail address for the author" in refusal(prepare(shop))


def test_in_the_middle_of_something_nothing_begins(shop: Path) -> None:
    for mark, what in {"MERGE_HEAD": "a merge", "rebase-merge": "a rebase", "BISECT_LOG": "a bisection"}.items():
        (shop / ".git" / mark).write_text(git(shop, "rev-parse", "HEAD"))
        assert f"{what} is under way" in refusal(prepare(shop))
        (shop / ".git" / mark).unlink()


@pytest.mark.parametrize("key", ["gpg.program", "include.path"])
def test_a_program_that_signs_for_the_repository_alone_is_not_run(shop: Path, key: str) -> None:
    git(shop, "config", "commit.gpgsign", "true")
    (shop / "more.cfg").write_text("[gpg]\n program = /bin/evil\n")
    git(shop, "config", key, "/bin/evil" if key == "gpg.program" else "../more.cfg")
    assert "gpg.program is set by the repository itself" in refusal(prepare(shop))


def test_a_repository_with_long_ids_is_as_good(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "shop")
    shop = make_repository(tmp_path / "shop", FILES)
    Agreed(shop).accept(PRICE).land()
    assert len(git(shop, "rev-parse", "HEAD").strip()) == 64
    assert len(subjects(shop)) == 2
    assert git(shop, "status", "--porcelain") == ""


def _ignore(shop: Path) -> None:
    git(shop, "rm", "-q", "--cached", "agents/order.py")
    (shop / ".gitignore").write_text("agents/order.py\n")


def _filter(shop: Path) -> None:
    (shop / ".gitattributes").write_text("*.py filter=crypt\n")
    git(shop, "config", "filter.crypt.clean", "tr a-z n-za-m")


def _conflict(shop: Path) -> None:
    blob = git(shop, "rev-parse", "HEAD:agents/order.py").strip()
    lines = "".join(f"100644 {blob} {stage}\tagents/order.py\n" for stage in (1, 2, 3))
    (shop / "lines").write_text(f"0 {'0' * 40}\tagents/order.py\n{lines}")
    git(shop, "-c", f"alias.load=!git update-index --index-info < {shop}/lines", "load")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_ignore, "git ignores it"),
        (_filter, "git would run the program of filter.crypt"),
        (_conflict, "it has an unresolved merge conflict"),
        (
            lambda shop: git(shop, "update-index", "--assume-unchanged", "agents/order.py"),
            "git is set to ignore its changes",
        ),
        (
            lambda shop: git(shop, "update-index", "--skip-worktree", "agents/order.py"),
            "git is set to ignore its changes",
        ),
    ],
)
def test_files_that_could_not_be_committed_are_named_before_anybody_is_asked(
    shop: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(shop)
    assert reason in refusal(prepare(shop))
    assert "GBE434" in refusal(prepare(shop))
    assert reason in refusal(Agreed(shop).accept(PRICE).land)


def test_agents_in_a_submodule_are_not_committed_from_outside(tmp_path: Path) -> None:
    make_repository(tmp_path / "top" / "agents", {"order.py": ORDER})
    top = make_repository(tmp_path / "top", {"pyproject.toml": "[tool.graphbus]\n"})
    assert "it lies in a submodule" in refusal(
        lambda: prepare_commits(ResolvedBuild(root=str(top), paths=(), makes_commits=True), ("agents/order.py",))
    )


# --- what goes wrong in between ----------------------------------------------------------------


def test_a_head_that_was_moved_meanwhile_is_not_moved_again(shop: Path) -> None:
    session = Agreed(shop).accept(PRICE)
    session.config = ResolvedBuild(root=str(shop), paths=(), makes_commits=True)
    session.save()
    plan = plan_commits(session.config, "S001", session.workspace)
    assert plan.repository is not None
    steps = tuple(plan.steps.values())

    def somebody_commits(_: object) -> None:
        commit_files(shop, {"notes.txt": "more\n"}, "somebody else")

    with pytest.raises(NegotiationError, match="HEAD was moved in the meantime"):
        commits.make_commits(plan.repository, steps, somebody_commits)
    assert subjects(shop) == ["begin", "somebody else"]
    assert not (shop / ".git" / "index.lock").exists()


def test_an_index_in_use_stops_the_commits_before_head_moves(shop: Path) -> None:
    session = Agreed(shop).accept(PRICE)
    (shop / ".git" / "index.lock").touch()
    assert "another git process has locked the index" in refusal(session.land)
    assert (shop / ".git" / "index.lock").exists()
    assert subjects(shop) == ["begin"]
    assert "max(price, 0)" in (shop / "agents/order.py").read_text()
    assert load_commits(session.config.artifacts_dir, "S001") is None


def test_an_interruption_before_head_moves_leaves_the_repository_as_it_was(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Agreed(shop).accept(PRICE).accept(LOG, title="Log what was sold")
    before = state(shop)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commits, "_write_new_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.land()
    after = state(shop, *AGENTS)
    assert subjects(shop) == ["begin"]
    assert after["refs"] == before["refs"]
    assert not (shop / ".git" / "index.lock").exists()
