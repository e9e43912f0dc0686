"""GitLab CI: `.gitlab-ci.yml`, or a file for `include` where the project has a pipeline already.

What the jobs share is in a hidden job, and the stages are those that GitLab has by itself, so they can stand beside jobs of other
origin. Only the file of its own says which pipelines there are.
"""

from __future__ import annotations

from graphbus_core.deploy.facts import Files
from graphbus_core.deploy.pins import BASES, DOCKER_CLIENT, DOCKER_ENGINE
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
    head,
    install,
    lines,
    negotiating,
    preparing,
    unpacking,
    verifying,
)
from graphbus_core.deploy.yaml import Node, Noted, Object, render

PIPELINE = ".gitlab-ci.yml"
MARK = "Written by `graphbus ci"
"""A file of ours begins with it."""
START = "GRAPHBUS_NEGOTIATE"
"""The variable of the schedule that negotiates."""
PUSH_TOKEN = "GRAPHBUS_PUSH_TOKEN"  # noqa: S105 - the name of a variable
_CACHE = ".cache/pip"
_PREPARED = (".dockerignore", ".graphbus", "Dockerfile", "docker")
_ON_REQUEST = "$CI_PIPELINE_SOURCE == 'merge_request_event'"
_INHERITED = {"default": Noted(["tags"], "which runners; no cache, script or service of other jobs")}


def generate(plan: Plan, *, is_included: bool = False) -> Files:
    """Return the pipeline, as a file of its own or as one that is included."""
    if not is_included:
        rules: list[Node] = [{"if": _ON_REQUEST}, {"if": _on_branch(plan)}]
        whole: Object = {"workflow": {"auto_cancel": {"on_new_commit": "interruptible"}, "rules": rules}}
        return {PIPELINE: render({**whole, **_jobs(plan)}, head=head(plan))}
    path = included(plan)
    hint = f"\nTo be included in {PIPELINE}:\n\n  include:\n    - local: {path}"
    return {path: render(_jobs(plan), head=head(plan) + hint)}


def included(plan: Plan) -> str:
    """Return the path of a file that a pipeline includes."""
    return f".gitlab/{plan.prefix}.yml"


def _jobs(plan: Plan) -> Object:
    jobs: Object = {f".{plan.prefix}": _base(plan), f".{plan.prefix}-look": _look(plan)}
    jobs |= {f"{plan.prefix}-{job.key}": _verify(plan, job) for job in verifying(plan, "gitlab")}
    if plan.has_image:
        jobs |= {f"{plan.prefix}-package": _package(plan), f"{plan.prefix}-image": _image(plan)}
    if plan.has_deploy:
        jobs[f"{plan.prefix}-deploy"] = _deploy(plan)
    if plan.negotiation:
        jobs[f"{plan.prefix}-negotiate"] = _negotiate(plan, plan.negotiation)
        jobs[f"{plan.prefix}-propose"] = _propose(plan)
    return jobs


def _on_branch(plan: Plan) -> str:
    return f"$CI_COMMIT_BRANCH == '{plan.branch}'"


def _on_push(plan: Plan) -> str:
    return f"{_on_branch(plan)} && $CI_PIPELINE_SOURCE != 'schedule'"


def _on_schedule(plan: Plan) -> str:
    return f"{_on_branch(plan)} && $CI_PIPELINE_SOURCE == 'schedule' && ${START} == 'true'"


def _on_request() -> Object:
    return {"if": _ON_REQUEST, "interruptible": Noted(True, "by the next push; a run on the branch is never cancelled")}


def _base(plan: Plan) -> Object:
    """What all jobs share but the one that builds the image."""
    step = install(plan)
    programs = _script(*_programs("ca-certificates", "git")) if plan.has_git else []
    variables: Object = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    return {
        "image": BASES[plan.python],
        "inherit": _INHERITED,
        "variables": variables,
        "before_script": [*_begin(plan), *programs, Noted(step.run, step.note)],
    }


def _begin(plan: Plan) -> list[Node]:
    return ["set -euo pipefail", *([command("cd", plan.folder)] if plan.folder else [])]


def _look(plan: Plan) -> Object:
    """What the jobs share that look at a change."""
    cache: Object = {
        "key": {"files": _inside(plan, *plan.requirements[:2]), "prefix": plan.prefix},
        "paths": [_CACHE],
    }
    return {
        **_job(plan, "test"),
        "needs": [],
        "rules": [_on_request(), {"if": _on_push(plan)}],
        "variables": {"PIP_CACHE_DIR": f"$CI_PROJECT_DIR/{_CACHE}"},
        "cache": Noted(cache, "protected branches have one of their own, which no merge request can write to"),
    }


def _job(plan: Plan, stage: str) -> Object:
    return {"extends": f".{plan.prefix}", "stage": stage}


def _verify(plan: Plan, job: Job) -> Node:
    compared: Object = {}
    if "GRAPHBUS_BASE" in job.steps[0].needs:
        depth = Noted("0", "back to where the branch began")
        variables: Object = {"GIT_DEPTH": depth, "GRAPHBUS_BASE": "$CI_MERGE_REQUEST_DIFF_BASE_SHA"}
        compared = {"rules": [_on_request()], "variables": variables}
    script = _script(*_programs(*job.programs), *job.steps)
    fields: Object = {"extends": f".{plan.prefix}-look", **compared}
    return Noted({**fields, "timeout": f"{job.minutes} minutes", "script": script}, job.note)


def _inside(plan: Plan, *names: str) -> list[Node]:
    return [f"{plan.folder}/{name}" if plan.folder else name for name in names]


def _programs(*names: str) -> tuple[Step, ...]:
    if not names:
        return ()
    fetch = command("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names)
    return (Step("Install what the image lacks", lines("apt-get update --quiet", fetch)),)


def _script(*steps: Step) -> list[Node]:
    return [Noted(step.run, step.note) for step in steps]


def _package(plan: Plan) -> Node:
    verified: list[Node] = [
        {"job": f"{plan.prefix}-{key}", "artifacts": False} for key in ("check", "build", "frozen", "test")
    ]
    job: Object = {
        **_job(plan, "deploy"),
        "needs": verified,
        "rules": [{"if": _on_push(plan)}],
        "timeout": "10 minutes",
        "script": _script(preparing(plan)),
        "artifacts": {"paths": _inside(plan, *_PREPARED), "expire_in": "1 day"},
    }
    return Noted(job, "No cache here: nothing that another pipeline has left behind gets into the image.")


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
    job: Object = {
        "image": DOCKER_CLIENT,
        "services": [{"name": DOCKER_ENGINE, "alias": "docker"}],
        "inherit": _INHERITED,
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
    }
    return Noted(job, "Docker in Docker, on a privileged runner: so nothing runs here but the Dockerfile.")


def _deploy(plan: Plan) -> Node:
    condition = f"{_on_push(plan)} && ${SWITCH} == 'true'"
    manual: Object = {
        "if": Noted(condition, "until somebody says so, there is nowhere to deploy to"),
        "when": Noted("manual", "somebody approves each deployment"),
        "allow_failure": Noted(True, "until then, the pipeline is done"),
    }
    holds = Noted(plan.environment, "holds KUBECONFIG, a protected variable of type file")
    job: Object = {
        **_job(plan, "deploy"),
        "needs": [{"job": f"{plan.prefix}-image", "artifacts": True}],
        "rules": [manual],
        "timeout": "15 minutes",
        "environment": {"name": holds, "action": "start"},
        "resource_group": Noted(plan.environment, "one deployment at a time"),
        "script": _script(*_programs("kubernetes-client"), Step("Deploy", deploying())),
    }
    return Noted(job, "The image that was just pushed, by its digest.")


def _negotiate(plan: Plan, negotiation: Negotiation) -> Node:
    schedule = f"Build > Pipeline schedules: {negotiation.cron} on {plan.branch}, with the variable {START} = true"
    keys = " and ".join(negotiation.keys)
    holds = Noted("negotiation", f"holds {keys}, protected and masked" if keys else "no key is needed")
    variables: Object = {
        "GRAPHBUS_BASE": "$CI_COMMIT_SHA",
        "COMMITTER_NAME": "GraphBus",
        "COMMITTER_EMAIL": "graphbus@noreply.$CI_SERVER_HOST",
    }
    job: Object = {
        **_job(plan, "test"),
        "needs": [],
        "rules": Noted([{"if": _on_schedule(plan)}], schedule),
        "timeout": "1 hour",
        "environment": {"name": holds, "action": "access"},
        "variables": variables,
        "script": _script(*_programs("bubblewrap", "git"), *negotiating(plan, negotiation)),
        "artifacts": {"paths": _inside(plan, BUNDLE, REPORT), "expire_in": "30 days"},
    }
    return Noted(job, "Has the key of the model, and no token that may push.")


def _propose(plan: Plan) -> Node:
    helper = f'!f() {{ echo username=graphbus; echo "password=${PUSH_TOKEN}"; }}; f'
    nothing = lines(f"if [ ! -f {BUNDLE} ]; then", '  echo "The agents have nothing to propose."', "  exit 0", "fi")
    push = lines(
        "# The token comes from the environment when git asks for it, and never stands in a command line.",
        "# shellcheck disable=SC2016",
        f"git -c credential.helper={command(helper)} push --quiet \\",
        f"  --push-option=merge_request.create --push-option=merge_request.target={plan.branch} \\",
        "  --push-option=merge_request.title='Negotiation of the agents' \\",
        f'  "$CI_PROJECT_URL.git" "FETCH_HEAD:refs/heads/{plan.prefix}/negotiation-$CI_PIPELINE_ID"',
    )
    script = nothing + unpacking((f":/{PIPELINE}", ":/.gitlab")) + push
    holds = Noted("proposal", f"holds {PUSH_TOKEN}, protected and masked: it may write_repository")
    job: Object = {
        **_job(plan, "deploy"),
        "needs": [{"job": f"{plan.prefix}-negotiate", "artifacts": True}],
        "rules": [{"if": _on_schedule(plan)}],
        "timeout": "10 minutes",
        "environment": {"name": holds, "action": "access"},
        "before_script": _begin(plan),
        "script": _script(*_programs("ca-certificates", "git"), Step("Open a merge request", script)),
    }
    return Noted(job, "May push, has no key, and runs nothing of what the model wrote.")
