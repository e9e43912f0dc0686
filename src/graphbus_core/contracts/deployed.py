"""What runs in an environment: the builds of a component with the messages of their agents, and how a deploy changes them.

A component is what is deployed and rolled back together, such as a graph. If its agents are deployed one by one, several builds
of it run at the same time, each with its own agents.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

import msgspec

from graphbus_core.contracts.messages import Messages
from graphbus_core.errors import DeployError

VERSION = 1


class DeployedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A build that runs somewhere.

    Attributes:
        digest: Its digest, which its events carry.
        revision: The commit that it was recorded from; empty if there was none.
        agents: Those of its agents that run.
        messages: What these send and take.
    """

    digest: str
    revision: str
    agents: tuple[str, ...]
    messages: Messages

    def without(self, agents: Collection[str]) -> DeployedBuild:
        """Return the build with fewer agents."""
        kept = tuple(each for each in self.agents if each not in agents)
        return msgspec.structs.replace(self, agents=kept, messages=self.messages.without(agents))


class DeployedComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A component in an environment, with the builds of it that run there."""

    environment: str
    component: str
    builds: tuple[DeployedBuild, ...] = ()

    @property
    def messages(self) -> Messages:
        """What all builds of the component send and take."""
        return join_messages(*(each.messages for each in self.builds))

    @property
    def agents(self) -> frozenset[str]:
        """The agents of all builds."""
        return frozenset(chain.from_iterable(each.agents for each in self.builds))

    def deploy(self, build: DeployedBuild, *, replaces: Collection[str]) -> DeployedComponent:
        """Return the component after a deploy in which a build replaces these agents."""
        rest = [each.without(replaces) for each in self.builds]
        return msgspec.structs.replace(self, builds=(*(each for each in rest if each.agents), build))


class _Record(DeployedComponent, frozen=True, kw_only=True):
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int


def join_messages(*parts: Messages) -> Messages:
    """Return the messages of several builds that run side by side."""
    return Messages(
        tuple(chain.from_iterable(each.producers for each in parts)),
        tuple(chain.from_iterable(each.consumers for each in parts)),
        tuple(dict.fromkeys(chain.from_iterable(each.unread for each in parts))),
    )


def encode_record(component: DeployedComponent) -> bytes:
    """Return a component as JSON, on a line for each value."""
    fields = {name: getattr(component, name) for name in DeployedComponent.__struct_fields__}
    return msgspec.json.format(msgspec.json.encode(_Record(**fields)), indent=1) + b"\n"


def decode_record(data: bytes, environment: str, component: str) -> DeployedComponent:
    """Return the component in a record.

    Raises:
        DeployError: GBE748, the record is damaged, or of another component; GBE749, it is of a newer version.
    """
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            raise DeployError("GBE749", environment=environment, component=component, version=version, known=VERSION)
        found = msgspec.json.decode(data, type=_Record)
    except msgspec.MsgspecError as error:
        raise damaged_record(environment, component, str(error)) from None
    if (found.environment, found.component) != (environment, component):
        raise damaged_record(environment, component, f"it is about {found.component} in {found.environment}")
    return found


def damaged_record(environment: str, component: str, reason: str) -> DeployError:
    """Return GBE748."""
    return DeployError("GBE748", environment=environment, component=component, reason=reason.rstrip("."))
