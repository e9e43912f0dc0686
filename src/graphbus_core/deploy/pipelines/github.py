"""GitHub Actions: `.github/workflows/graphbus.yml`, and beside it the negotiation in a file of its own.

The file that pull requests run has no secret in it but the registry's token, in a job that only main starts.
"""

from __future__ import annotations

from graphbus_core.deploy.facts import Files
from graphbus_core.deploy.pins import RUNNER, action
from graphbus_core.deploy.pipelines.plan import Negotiation, Plan
from graphbus_core.deploy.pipelines.steps import (
    BUNDLE,
    IMAGE,
    REPORT,
    SWITCH,
    Job,
    Step,
    deploying,
    head,
    install,
    lines,
    negotiating,
    preparing,
    unpacking,
    verifying,
)
from graphbus_core.deploy.yaml import Node, Noted, Object, render

_FOLDER = ".github/workflows"
_READ: Object = {"contents": Noted("read", "to check the sources out")}


def generate(plan: Plan) -> Files:
    """Return the workflow, and the one of the negotiation if there is to be one."""
    files = {f"{_FOLDER}/{plan.prefix}.yml": render(_workflow(plan), head=head(plan))}
    if plan.negotiation:
        files[f"{_FOLDER}/{plan.prefix}-negotiate.yml"] = render(_negotiation(plan, plan.negotiation), head=head(plan))
    return files


def _workflow(plan: Plan) -> Object:
    jobs: Object = {job.key: _verify(plan, job) for job in verifying(plan, "github")}
    if plan.has_image:
        jobs["image"] = _image(plan)
    if plan.has_deploy:
        jobs["deploy"] = _deploy(plan)
    is_request = Noted("${{ github.event_name == 'pull_request' }}", "a commit on main is never left half done")
    return {
        "name": f"GraphBus {plan.name}".rstrip(),
        "on": {
            "pull_request": Noted({}, "never pull_request_target: a fork's code must not meet a secret"),
            "merge_group": Noted({}, "a merge queue waits for the same jobs; `contract` has been asked before"),
            "push": {"branches": [plan.branch]},
        },
        **_preamble(f"{plan.prefix}-${{{{ github.event.pull_request.number || github.sha }}}}", is_request, plan),
        "jobs": jobs,
    }


def _preamble(group: str, cancel: Node, plan: Plan) -> Object:
    """What both workflows say before their jobs."""
    folder: Object = {"working-directory": plan.folder} if plan.folder else {}
    return {
        "permissions": Noted({}, "each job says what it needs"),
        "concurrency": {"group": group, "cancel-in-progress": cancel},
        "defaults": {"run": {"shell": "bash --noprofile --norc -euo pipefail {0}", **folder}},
        "env": {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"},
    }


def _verify(plan: Plan, job: Job) -> Node:
    is_comparison = "GRAPHBUS_BASE" in job.steps[0].needs
    only: Object = {"if": "github.event_name == 'pull_request'"} if is_comparison else {}
    depth = Noted(2, "the merge and the target branch before it") if is_comparison else None
    base = Noted("HEAD^1", "the target branch: the first parent of the merge that was checked out")
    steps = [
        _check_out(depth),
        _set_up_python(plan, is_cached="release" not in plan.branch),  # a release is made from nothing that was kept
        _step(install(plan)),
        *(_step(step, {"GRAPHBUS_BASE": base}) for step in job.steps),
    ]
    return Noted({**_job(plan, job.name), **only, **_machine(job.minutes, _READ), "steps": steps}, job.note)


def _job(plan: Plan, name: str) -> Object:
    """The name by which branch protection knows a job: each project of a repository has its own."""
    return {"name": f"{name} ({plan.name})" if plan.name else name}


def _machine(minutes: int, permissions: Node) -> Object:
    return {"runs-on": RUNNER, "timeout-minutes": minutes, "permissions": permissions}


def _begin(plan: Plan) -> list[Node]:
    """The steps that jobs beyond the verification begin with. They take nothing that another run has cached."""
    return [_check_out(), _set_up_python(plan, is_cached=False), _step(install(plan))]


def _check_out(depth: Noted | None = None) -> Object:
    options: Object = {"persist-credentials": False, **({"fetch-depth": depth} if depth else {})}
    return {"name": "Check out", "uses": action("actions/checkout"), "with": options}


def _set_up_python(plan: Plan, *, is_cached: bool) -> Object:
    options: Object = {"python-version": plan.python}
    if is_cached:
        paths = _inside(plan, *plan.requirements)
        options["cache"] = Noted("pip", "by the hash of the files below")
        options["cache-dependency-path"] = paths[0] if len(paths) == 1 else lines(*paths)
    return {"name": "Set up Python", "uses": action("actions/setup-python"), "with": options}


def _inside(plan: Plan, *names: str) -> list[str]:
    return [f"{plan.folder}/{name}" if plan.folder else name for name in names]


def _step(step: Step, given: Object | None = None) -> Node:
    """A step of ours; `given` says where variables come from that it may need."""
    key: Object = {"id": step.key} if step.key else {}
    environment: Object = {"env": {name: (given or {})[name] for name in step.needs}} if step.needs else {}
    return Noted({"name": step.name, **key, **environment, "run": step.run}, step.note)


def _image(plan: Plan) -> Node:
    name = f'image="ghcr.io/${{GITHUB_REPOSITORY,,}}{f"/{plan.name}" if plan.name else ""}"'
    build = lines(
        name,
        'docker build --tag "$image:$GITHUB_SHA" \\',
        '  --label "org.opencontainers.image.revision=$GITHUB_SHA" \\',
        '  --label "org.opencontainers.image.source=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" .',
    )
    push = lines(
        name,
        'printf "%s" "$REGISTRY_TOKEN" | docker login ghcr.io --username "$GITHUB_ACTOR" --password-stdin',
        'docker push "$image:$GITHUB_SHA"',
        'pushed="$(docker inspect --format "{{ index .RepoDigests 0 }}" "$image:$GITHUB_SHA")"',
        'echo "image=$pushed" >> "$GITHUB_OUTPUT"',
    )
    token = Noted("${{ secrets.GITHUB_TOKEN }}", "of this job: it ends with it, and pushes packages only")
    job: Object = {
        **_job(plan, "Image"),
        "needs": ["check", "build", "frozen", "test"],
        "if": f"github.event_name == 'push' && github.ref == 'refs/heads/{plan.branch}'",
        **_machine(30, {**_READ, "packages": Noted("write", "to push the image")}),
        "outputs": {"image": Noted("${{ steps.push.outputs.image }}", "with the digest")},
        "steps": [
            *_begin(plan),
            _step(preparing(plan)),
            _step(Step("Build the image", build)),
            _step(Step("Push the image", push, ("REGISTRY_TOKEN",), key="push"), {"REGISTRY_TOKEN": token}),
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
    given: Object = {
        "CLUSTER": Noted("${{ secrets.KUBECONFIG }}", "of the environment"),
        IMAGE: "${{ needs.image.outputs.image }}",
    }
    job: Object = {
        **_job(plan, "Deploy"),
        "needs": "image",
        "if": Noted(f"vars.{SWITCH} == 'true'", "until somebody says so, there is nowhere to deploy to"),
        "environment": Noted(plan.environment, "whose reviewers approve each deployment"),
        "concurrency": {"group": f"{plan.prefix}-deploy-{plan.environment}", "cancel-in-progress": False},
        **_machine(15, _READ),
        "steps": [*_begin(plan), _step(Step("Deploy", script, ("CLUSTER", IMAGE)), given)],
    }
    return Noted(job, "The image that was just pushed, by its digest, one deployment at a time.")


def _negotiation(plan: Plan, negotiation: Negotiation) -> Object:
    return {
        "name": f"GraphBus {plan.name} negotiation".replace("  ", " "),
        "on": {"schedule": [{"cron": Noted(negotiation.cron, "UTC")}], "workflow_dispatch": {}},
        **_preamble(f"{plan.prefix}-negotiation", False, plan),
        "jobs": {"negotiate": _negotiate(plan, negotiation), "propose": _propose(plan)},
    }


def _negotiate(plan: Plan, negotiation: Negotiation) -> Node:
    given: Object = {
        "GRAPHBUS_BASE": "${{ github.sha }}",
        "COMMITTER_NAME": "github-actions[bot]",
        "COMMITTER_EMAIL": "41898282+github-actions[bot]@users.noreply.github.com",
        **{name: Noted(f"${{{{ secrets.{name} }}}}", "of the environment") for name in negotiation.keys},
    }
    jail = lines(
        "sudo apt-get update --quiet",
        "sudo apt-get install --yes --quiet --no-install-recommends bubblewrap",
        "sudo sysctl --quiet --write kernel.apparmor_restrict_unprivileged_userns=0",
    )
    why = (
        "Changed code is tried in it, without network and without the key. Ubuntu forbids such jails unless it is told."
    )
    keep: Object = {
        "name": "Keep the result",
        "if": "steps.pack.outputs.has_result == 'true'",
        "uses": action("actions/upload-artifact"),
        "with": {
            "name": "negotiation",
            "path": lines(*_inside(plan, BUNDLE, REPORT)),
            "if-no-files-found": "error",
        },
    }
    steps = negotiating(plan, negotiation, 'echo "has_result=true" >> "$GITHUB_OUTPUT"')
    job: Object = {
        "name": "Negotiate",
        "if": f"github.ref == 'refs/heads/{plan.branch}'",
        "environment": Noted("negotiation", f"holds the key; let only {plan.branch} use it"),
        **_machine(60, _READ),
        "outputs": {"has_result": "${{ steps.pack.outputs.has_result }}"},
        "steps": [
            *_begin(plan),
            _step(Step("Install the jail", jail, note=why)),
            *(_step(step, given) for step in steps),
            keep,
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
    token = Noted("${{ secrets.GITHUB_TOKEN }}", "for this one step")
    permissions: Object = {
        "contents": Noted("write", "to push the branch"),
        "pull-requests": Noted("write", "to open the pull request"),
    }
    fetch: Object = {
        "name": "Fetch the result",
        "uses": action("actions/download-artifact"),
        "with": {"name": "negotiation", **({"path": plan.folder} if plan.folder else {})},
    }
    job: Object = {
        "name": "Propose",
        "needs": "negotiate",
        "if": "needs.negotiate.outputs.has_result == 'true'",
        **_machine(10, permissions),
        "steps": [
            _check_out(),
            fetch,
            _step(Step("Open a pull request", script, ("GH_TOKEN",)), {"GH_TOKEN": token}),
        ],
    }
    return Noted(job, "May write to the repository, has no key, and runs nothing of what the model wrote.")
