"""GitLab CI: `.gitlab-ci.yml`, or a file for `include` where the project has a pipeline already.

All that the jobs share is in a hidden job, and the stages are those that GitLab has by itself: so they can stand beside jobs of
other origin. Only the file of its own says which pipelines there are.
"""

from __future__ import annotations

from graphbus_core.deploy.facts import Files
from graphbus_core.deploy.image.bases import BASES
from graphbus_core.deploy.pipelines.pins import DOCKER_CLIENT, DOCKER_ENGINE
from graphbus_core.deploy.pipelines.plan import Negotiation, Plan
from graphbus_core.deploy.pipelines.steps import (
    BUNDLE,
    IMAGE,
    REPORT,
    SWITCH,
    Job,
    Step,
    command,
    deploying,
    install,
    lines,
    negotiating,
    preparing,
    unpacking,
    verifying,
)
from graphbus_core.deploy.yaml import Node, Noted, render

PIPELINE = ".gitlab-ci.yml"
MARK = "Written by `graphbus ci"
"""How a file of ours begins."""
START = "GRAPHBUS_NEGOTIATE"
"""The variable of the schedule that negotiates."""
PUSH_TOKEN = "GRAPHBUS_PUSH_TOKEN"  # noqa: S105 - the name of a variable
_CACHE = ".cache/pip"
_PREPARED = (".dockerignore", ".graphbus", "Dockerfile", "docker")
_ON_REQUEST = "$CI_PIPELINE_SOURCE == 'merge_request_event'"


def generate(plan: Plan, *, is_included: bool = False) -> Files:
    """Give the pipeline, as a file of its own or as one that is included."""
    path = included(plan) if is_included else PIPELINE
    head = f"Written by `{plan.command}`, which writes it again;\nwith --check it tells whether anything differs."
    if is_included:
        head += f"\nTo be included in {PIPELINE}:\n\n  include:\n    - local: {path}"
    whole = {} if is_included else _whole(plan)
    return {path: render({**whole, **_jobs(plan)}, head=head)}


def included(plan: Plan) -> str:
    """Give the path of a file that a pipeline includes."""
    return f".gitlab/{plan.prefix}.yml"


def _whole(plan: Plan) -> dict[str, Node]:
    rules: list[Node] = [{"if": _ON_REQUEST}, {"if": _on_branch(plan)}]
    return {"workflow": {"auto_cancel": {"on_new_commit": "interruptible"}, "rules": rules}}


def _base_of(plan: Plan) -> str:
    return f".{plan.prefix}"


def _look_of(plan: Plan) -> str:
    return f".{plan.prefix}-look"


def _on_request() -> Node:
    return {"if": _ON_REQUEST, "interruptible": Noted(True, "by the next push; a run on the branch is never cancelled")}


def _on_branch(plan: Plan) -> str:
    return f"$CI_COMMIT_BRANCH == '{plan.branch}'"


def _on_push(plan: Plan) -> str:
    return f"{_on_branch(plan)} && $CI_PIPELINE_SOURCE != 'schedule'"


def _jobs(plan: Plan) -> dict[str, Node]:
    jobs: dict[str, Node] = {_base_of(plan): _base(plan), _look_of(plan): _look(plan)}
    for job in verifying(plan, "gitlab"):
        jobs[f"{plan.prefix}-{job.key}"] = _verifying(plan, job)
    if plan.has_image:
        jobs[f"{plan.prefix}-package"] = _package(plan)
        jobs[f"{plan.prefix}-image"] = _image(plan)
    if plan.has_deploy:
        jobs[f"{plan.prefix}-deploy"] = _deploy(plan)
    if plan.negotiation:
        jobs[f"{plan.prefix}-negotiate"] = _negotiate(plan, plan.negotiation)
        jobs[f"{plan.prefix}-propose"] = _propose(plan)
    return jobs


def _base(plan: Plan) -> Node:
    step = install(plan)
    entered = [command("cd", plan.folder)] if plan.folder else []
    programs = _script(*_programs(("ca-certificates", "git"))) if plan.has_git else []
    return {
        "image": BASES[plan.python],
        "inherit": _inherited(),
        "variables": {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        },
        "before_script": ["set -euo pipefail", *entered, *programs, Noted(step.run, step.note)],
    }


def _inherited() -> Node:
    return {"default": Noted(["tags"], "which runners; no cache, script or service of other jobs")}


def _look(plan: Plan) -> Node:
    """What the jobs that look at a change share."""
    return {
        "extends": _base_of(plan),
        "stage": "test",
        "needs": [],
        "rules": [_on_request(), {"if": _on_push(plan)}],
        "variables": {"PIP_CACHE_DIR": f"$CI_PROJECT_DIR/{_CACHE}"},
        "cache": Noted(
            {
                "key": {"files": [_inside(plan, name) for name in plan.requirements[:2]], "prefix": plan.prefix},
                "paths": [_CACHE],
            },
            "protected branches have one of their own, which no merge request can write to",
        ),
    }


def _verifying(plan: Plan, job: Job) -> Node:
    fields: dict[str, Node] = {"extends": _look_of(plan)}
    if "GRAPHBUS_BASE" in job.steps[0].needs:
        fields["rules"] = [_on_request()]
        fields["variables"] = {
            "GIT_DEPTH": Noted("0", "back to where the branch began"),
            "GRAPHBUS_BASE": "$CI_MERGE_REQUEST_DIFF_BASE_SHA",
        }
    script = _script(*_programs(job.programs), *job.steps)
    return Noted({**fields, "timeout": f"{job.minutes} minutes", "script": script}, job.note)


def _inside(plan: Plan, name: str) -> str:
    return f"{plan.folder}/{name}" if plan.folder else name


def _programs(names: tuple[str, ...]) -> tuple[Step, ...]:
    if not names:
        return ()
    script = lines(
        "apt-get update --quiet", command("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names)
    )
    return (Step("Install what the image lacks", script),)


def _script(*steps: Step) -> list[Node]:
    return [Noted(step.run, step.note) for step in steps]


def _package(plan: Plan) -> Node:
    return Noted(
        {
            "extends": _base_of(plan),
            "stage": "deploy",
            "needs": _verified(plan),
            "rules": [{"if": _on_push(plan)}],
            "timeout": "10 minutes",
            "script": _script(preparing(plan)),
            "artifacts": {"paths": [_inside(plan, name) for name in _PREPARED], "expire_in": "1 day"},
        },
        "No cache here: nothing that another pipeline has left behind gets into the image.",
    )


def _verified(plan: Plan) -> list[Node]:
    return [{"job": f"{plan.prefix}-{key}", "artifacts": False} for key in ("check", "build", "frozen", "test")]


def _image(plan: Plan) -> Node:
    name = f"$CI_REGISTRY_IMAGE{f'/{plan.name}' if plan.name else ''}"
    script = lines(
        'printf "%s" "$CI_REGISTRY_PASSWORD" | docker login "$CI_REGISTRY" --username "$CI_REGISTRY_USER" --password-stdin',
        f'docker build --tag "{name}:$CI_COMMIT_SHA" \\',
        '  --label "org.opencontainers.image.revision=$CI_COMMIT_SHA" \\',
        f'  --label "org.opencontainers.image.source=$CI_PROJECT_URL" {command(plan.folder or ".")}',
        f'docker push "{name}:$CI_COMMIT_SHA"',
        f'pushed="$(docker inspect --format "{{{{ index .RepoDigests 0 }}}}" "{name}:$CI_COMMIT_SHA")"',
        f'echo "{IMAGE}=$pushed" > image.env',
    )
    return Noted(
        {
            "image": DOCKER_CLIENT,
            "services": [{"name": DOCKER_ENGINE, "alias": "docker"}],
            "inherit": _inherited(),
            "stage": "deploy",
            "needs": [f"{plan.prefix}-package"],
            "rules": [{"if": _on_push(plan)}],
            "timeout": "30 minutes",
            "variables": {
                "DOCKER_HOST": "tcp://docker:2376",
                "DOCKER_TLS_CERTDIR": "/certs",
                "DOCKER_TLS_VERIFY": "1",
                "DOCKER_CERT_PATH": "/certs/client",
            },
            "script": ["set -eu", *_script(Step("Build and push the image", script))],
            "artifacts": {"reports": {"dotenv": Noted("image.env", "the image with its digest, for what follows")}},
        },
        "Docker in Docker, on a privileged runner: so nothing runs here but the Dockerfile.",
    )


def _deploy(plan: Plan) -> Node:
    manual: Node = {
        "if": Noted(
            f"{_on_push(plan)} && ${SWITCH} == 'true'", "until somebody says so, there is nowhere to deploy to"
        ),
        "when": Noted("manual", "somebody approves each deployment"),
        "allow_failure": Noted(True, "until then, the pipeline is done"),
    }
    return Noted(
        {
            "extends": _base_of(plan),
            "stage": "deploy",
            "needs": [{"job": f"{plan.prefix}-image", "artifacts": True}],
            "rules": [manual],
            "timeout": "15 minutes",
            "environment": {
                "name": Noted(plan.environment, "holds KUBECONFIG, a protected variable of type file"),
                "action": "start",
            },
            "resource_group": Noted(plan.environment, "one deployment at a time"),
            "script": _script(*_programs(("kubernetes-client",)), Step("Deploy", deploying())),
        },
        "The image that was just pushed, by its digest.",
    )


def _negotiate(plan: Plan, negotiation: Negotiation) -> Node:
    return Noted(
        {
            "extends": _base_of(plan),
            "stage": "test",
            "needs": [],
            "rules": Noted(
                [{"if": _on_schedule(plan)}],
                f"Build > Pipeline schedules: {negotiation.cron} on {plan.branch}, with the variable {START} = true",
            ),
            "timeout": "1 hour",
            "environment": {
                "name": Noted("negotiation", _held(negotiation)),
                "action": "access",
            },
            "variables": {
                "GRAPHBUS_BASE": "$CI_COMMIT_SHA",
                "COMMITTER_NAME": "GraphBus",
                "COMMITTER_EMAIL": "graphbus@noreply.$CI_SERVER_HOST",
            },
            "script": _script(*_programs(("bubblewrap", "git")), *negotiating(plan, negotiation, "")),
            "artifacts": {"paths": [_inside(plan, BUNDLE), _inside(plan, REPORT)], "expire_in": "30 days"},
        },
        "Has the key of the model, and no token that may push.",
    )


def _held(negotiation: Negotiation) -> str:
    return f"holds {' and '.join(negotiation.keys)}, protected and masked" if negotiation.keys else "no key is needed"


def _on_schedule(plan: Plan) -> str:
    return f"{_on_branch(plan)} && $CI_PIPELINE_SOURCE == 'schedule' && ${START} == 'true'"


def _propose(plan: Plan) -> Node:
    helper = f'!f() {{ echo username=graphbus; echo "password=${PUSH_TOKEN}"; }}; f'
    script = (
        lines(
            f"if [ ! -f {BUNDLE} ]; then",
            '  echo "The agents have nothing to propose."',
            "  exit 0",
            "fi",
        )
        + unpacking((f":/{PIPELINE}", ":/.gitlab"))
        + lines(
            "# The token comes from the environment when git asks for it, and never stands in a command line.",
            "# shellcheck disable=SC2016",
            f"git -c credential.helper={command(helper)} push --quiet \\",
            f"  --push-option=merge_request.create --push-option=merge_request.target={plan.branch} \\",
            "  --push-option=merge_request.title='Negotiation of the agents' \\",
            f'  "$CI_PROJECT_URL.git" "FETCH_HEAD:refs/heads/{plan.prefix}/negotiation-$CI_PIPELINE_ID"',
        )
    )
    entered = [command("cd", plan.folder)] if plan.folder else []
    return Noted(
        {
            "extends": _base_of(plan),
            "stage": "deploy",
            "needs": [{"job": f"{plan.prefix}-negotiate", "artifacts": True}],
            "rules": [{"if": _on_schedule(plan)}],
            "timeout": "10 minutes",
            "environment": {
                "name": Noted("proposal", f"holds {PUSH_TOKEN}, protected and masked: it may write_repository"),
                "action": "access",
            },
            "before_script": ["set -euo pipefail", *entered],
            "script": _script(*_programs(("ca-certificates", "git")), Step("Open a merge request", script)),
        },
        "May push, has no key, and runs nothing of what the model wrote.",
    )
