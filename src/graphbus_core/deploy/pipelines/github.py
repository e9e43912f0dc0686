"""GitHub Actions: `.github/workflows/graphbus.yml`, and beside it the negotiation in a file of its own.

The file that pull requests run has no secret in it but the registry's token, in a job that only main starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphbus_core.deploy.facts import Files
from graphbus_core.deploy.pipelines.pins import RUNNER, action
from graphbus_core.deploy.pipelines.plan import Negotiation, Plan
from graphbus_core.deploy.pipelines.steps import (
    BUNDLE,
    IMAGE,
    REPORT,
    SWITCH,
    Job,
    Step,
    deploying,
    install,
    lines,
    negotiating,
    preparing,
    unpacking,
    verifying,
)
from graphbus_core.deploy.yaml import Node, Noted, render

_FOLDER = ".github/workflows"
_SHELL = "bash --noprofile --norc -euo pipefail {0}"
_ENVIRONMENT = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
_READ: Mapping[str, Node] = {"contents": Noted("read", "to check the sources out")}
_ALONE = "HEAD^1"


def generate(plan: Plan) -> Files:
    """Give the workflow, and with a negotiation in the plan its workflow, too."""
    files = {f"{_FOLDER}/{plan.prefix}.yml": render(_workflow(plan), head=_head(plan))}
    if plan.negotiation:
        files[f"{_FOLDER}/{plan.prefix}-negotiate.yml"] = render(_negotiation(plan, plan.negotiation), head=_head(plan))
    return files


def _head(plan: Plan) -> str:
    return f"Written by `{plan.command}`, which writes it again;\nwith --check it tells whether anything differs."


def _workflow(plan: Plan) -> Node:
    jobs = {job.key: _verifying(plan, job) for job in verifying(plan, "github")}
    if plan.has_image:
        jobs["image"] = _image(plan)
    if plan.has_deploy:
        jobs["deploy"] = _deploy(plan)
    return {
        "name": f"GraphBus {plan.name}".rstrip(),
        "on": {
            "pull_request": Noted({}, "never pull_request_target: a fork's code must not meet a secret"),
            "merge_group": Noted({}, "a merge queue waits for the same jobs; `contract` has been asked before"),
            "push": {"branches": [plan.branch]},
        },
        "permissions": Noted({}, "each job says what it needs"),
        "concurrency": {
            "group": f"{plan.prefix}-${{{{ github.event.pull_request.number || github.sha }}}}",
            "cancel-in-progress": Noted(
                "${{ github.event_name == 'pull_request' }}", "a commit on main is never left half done"
            ),
        },
        **_defaults(plan),
        "jobs": jobs,
    }


def _defaults(plan: Plan) -> dict[str, Node]:
    run: dict[str, Node] = {"shell": _SHELL}
    if plan.folder:
        run["working-directory"] = plan.folder
    return {"defaults": {"run": run}, "env": _ENVIRONMENT}


def _verifying(plan: Plan, job: Job) -> Node:
    is_comparison = "GRAPHBUS_BASE" in job.steps[0].needs
    only: dict[str, Node] = {"if": "github.event_name == 'pull_request'"} if is_comparison else {}
    depth = Noted(2, "the merge and the target branch before it") if is_comparison else 0
    given = {"GRAPHBUS_BASE": Noted(_ALONE, "the target branch: the first parent of the merge that was checked out")}
    return Noted(
        {
            "name": _titled(plan, job.name),
            **only,
            **_machine(job.minutes, _READ),
            "steps": [
                _checkout(depth),
                _python(
                    plan, is_cached="release" not in plan.branch
                ),  # what is released is made from nothing that was kept
                _step(install(plan), {}),
                *(_step(step, given) for step in job.steps),
            ],
        },
        job.note,
    )


def _titled(plan: Plan, name: str) -> str:
    """As branch protection calls a job: each project of a repository has names of its own."""
    return f"{name} ({plan.name})" if plan.name else name


def _machine(minutes: int, permissions: Node) -> dict[str, Node]:
    return {"runs-on": RUNNER, "timeout-minutes": minutes, "permissions": permissions}


def _checkout(depth: Node = 0) -> Node:
    options: dict[str, Node] = {"persist-credentials": False}
    if depth:
        options["fetch-depth"] = depth
    return {"name": "Check out", "uses": action("actions/checkout"), "with": options}


def _python(plan: Plan, *, is_cached: bool) -> Node:
    options: dict[str, Node] = {"python-version": plan.python}
    if is_cached:
        paths = [f"{plan.folder}/{name}" if plan.folder else name for name in plan.requirements]
        options["cache"] = Noted("pip", "by the hash of the files below")
        options["cache-dependency-path"] = paths[0] if len(paths) == 1 else lines(*paths)
    return {"name": "Set up Python", "uses": action("actions/setup-python"), "with": options}


def _step(step: Step, given: Mapping[str, Node]) -> Node:
    values = {name: given[name] for name in step.needs}
    key: dict[str, Node] = {"id": step.key} if step.key else {}
    environment: dict[str, Node] = {"env": values} if values else {}
    return Noted({"name": step.name, **key, **environment, "run": step.run}, step.note)


def _image(plan: Plan) -> Node:
    name = f'image="ghcr.io/${{GITHUB_REPOSITORY,,}}{f"/{plan.name}" if plan.name else ""}"'
    build = Step(
        "Build the image",
        lines(
            name,
            'docker build --tag "$image:$GITHUB_SHA" \\',
            '  --label "org.opencontainers.image.revision=$GITHUB_SHA" \\',
            '  --label "org.opencontainers.image.source=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" .',
        ),
    )
    push = Step(
        "Push the image",
        lines(
            name,
            'printf "%s" "$REGISTRY_TOKEN" | docker login ghcr.io --username "$GITHUB_ACTOR" --password-stdin',
            'docker push "$image:$GITHUB_SHA"',
            'pushed="$(docker inspect --format "{{ index .RepoDigests 0 }}" "$image:$GITHUB_SHA")"',
            'echo "image=$pushed" >> "$GITHUB_OUTPUT"',
        ),
        ("REGISTRY_TOKEN",),
        key="push",
    )
    given: dict[str, Node] = {
        "REGISTRY_TOKEN": Noted("${{ secrets.GITHUB_TOKEN }}", "of this job: it ends with it, and pushes packages only")
    }
    permissions: Node = {**_READ, "packages": Noted("write", "to push the image")}
    job: dict[str, Node] = {
        "name": _titled(plan, "Image"),
        "needs": ["check", "build", "frozen", "test"],
        "if": f"github.event_name == 'push' && github.ref == 'refs/heads/{plan.branch}'",
        **_machine(30, permissions),
        "outputs": {"image": Noted("${{ steps.push.outputs.image }}", "with the digest")},
        "steps": [
            _checkout(),
            _python(plan, is_cached=False),
            _step(install(plan), {}),
            _step(preparing(plan), {}),
            _step(build, {}),
            _step(push, given),
        ],
    }
    return Noted(job, "No cache here: nothing that another run has left behind gets into the image.")


def _deploy(plan: Plan) -> Node:
    script = lines(
        "umask 077",
        'export KUBECONFIG="$RUNNER_TEMP/kubeconfig"',
        'printf "%s\\n" "$CLUSTER" > "$KUBECONFIG"',
        deploying(),
    )
    given: dict[str, Node] = {
        "CLUSTER": Noted("${{ secrets.KUBECONFIG }}", "of the environment"),
        IMAGE: "${{ needs.image.outputs.image }}",
    }
    job: dict[str, Node] = {
        "name": _titled(plan, "Deploy"),
        "needs": "image",
        "if": Noted(f"vars.{SWITCH} == 'true'", "until somebody says so, there is nowhere to deploy to"),
        "environment": Noted(plan.environment, "whose reviewers approve each deployment"),
        "concurrency": {
            "group": f"{plan.prefix}-deploy-{plan.environment}",
            "cancel-in-progress": False,
        },
        **_machine(15, _READ),
        "steps": [
            _checkout(),
            _python(plan, is_cached=False),
            _step(install(plan), {}),
            _step(Step("Deploy", script, ("CLUSTER", IMAGE)), given),
        ],
    }
    return Noted(job, "The image that was just pushed, by its digest, one deployment at a time.")


def _negotiation(plan: Plan, negotiation: Negotiation) -> Node:
    return {
        "name": f"GraphBus {plan.name} negotiation".replace("  ", " "),
        "on": {"schedule": [{"cron": Noted(negotiation.cron, "UTC")}], "workflow_dispatch": {}},
        "permissions": Noted({}, "each job says what it needs"),
        "concurrency": {"group": f"{plan.prefix}-negotiation", "cancel-in-progress": False},
        **_defaults(plan),
        "jobs": {"negotiate": _negotiate(plan, negotiation), "propose": _propose(plan)},
    }


def _negotiate(plan: Plan, negotiation: Negotiation) -> Node:
    given: dict[str, Node] = {
        "GRAPHBUS_BASE": "${{ github.sha }}",
        "COMMITTER_NAME": "github-actions[bot]",
        "COMMITTER_EMAIL": "41898282+github-actions[bot]@users.noreply.github.com",
        **{name: Noted(f"${{{{ secrets.{name} }}}}", "of the environment") for name in negotiation.keys},
    }
    jail = Step(
        "Install the jail",
        lines(
            "sudo apt-get update --quiet",
            "sudo apt-get install --yes --quiet --no-install-recommends bubblewrap",
            "sudo sysctl --quiet --write kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        note="Changed code is tried in it, without network and without the key. Ubuntu forbids such jails unless it is told.",
    )
    result = [f"{plan.folder}/{name}" if plan.folder else name for name in (BUNDLE, REPORT)]
    told = 'echo "has_result=true" >> "$GITHUB_OUTPUT"'
    job: dict[str, Node] = {
        "name": "Negotiate",
        "if": f"github.ref == 'refs/heads/{plan.branch}'",
        "environment": Noted("negotiation", f"holds the key; let only {plan.branch} use it"),
        **_machine(60, _READ),
        "outputs": {"has_result": "${{ steps.pack.outputs.has_result }}"},
        "steps": [
            _checkout(),
            _python(plan, is_cached=False),
            _step(install(plan), given),
            _step(jail, given),
            *(_step(step, given) for step in negotiating(plan, negotiation, told)),
            {
                "name": "Keep the result",
                "if": "steps.pack.outputs.has_result == 'true'",
                "uses": action("actions/upload-artifact"),
                "with": {"name": "negotiation", "path": lines(*result), "if-no-files-found": "error"},
            },
        ],
    }
    return Noted(job, "Has the key of the model, and no right to write to the repository.")


def _propose(plan: Plan) -> Node:
    script = unpacking((":/.github",)) + lines(
        f'branch="{plan.prefix}/negotiation-$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT"',
        "gh auth setup-git",
        'git push --quiet origin "FETCH_HEAD:refs/heads/$branch"',
        "{",
        f'  echo "The agents agreed on this. How and why: {REPORT}, in the last commit."',
        "  echo",
        '  git log --reverse --format="- %s" HEAD..FETCH_HEAD',
        f'}} | gh pr create --base {plan.branch} --head "$branch" --title "Negotiation of the agents" --body-file -',
    )
    given: dict[str, Node] = {"GH_TOKEN": Noted("${{ secrets.GITHUB_TOKEN }}", "for this one step")}
    permissions: Node = {
        "contents": Noted("write", "to push the branch"),
        "pull-requests": Noted("write", "to open the pull request"),
    }
    job: dict[str, Node] = {
        "name": "Propose",
        "needs": "negotiate",
        "if": "needs.negotiate.outputs.has_result == 'true'",
        **_machine(10, permissions),
        "steps": [
            _checkout(),
            {
                "name": "Fetch the result",
                "uses": action("actions/download-artifact"),
                "with": {"name": "negotiation", **({"path": plan.folder} if plan.folder else {})},
            },
            _step(Step("Open a pull request", script, ("GH_TOKEN",)), given),
        ],
    }
    return Noted(job, "May write to the repository, has no key, and runs nothing of what the model wrote.")
