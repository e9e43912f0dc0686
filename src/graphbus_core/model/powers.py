"""Powers: what agents may do besides computing. They are declared in pyproject.toml; the gate and a confined run enforce them."""

from __future__ import annotations

from typing import Literal

import msgspec

Power = Literal["network", "write", "read", "processes", "environment"]


class Powers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tool.graphbus.powers]`. Without this table, agents may only compute, publish and keep their state.

    Attributes:
        network: False, or the hosts that agents may connect to: `"api.bank.example"`, `"*.bank.example"`, `"*"` for all.
        write: Files and folders that agents may write, relative to the project root or absolute.
        read: Files and folders that agents may read, besides the project itself, relative to the project root or absolute.
        processes: True if agents may start programs.
        environment: The names of the environment variables that agents may read.
    """

    network: Literal[False] | tuple[str, ...] = False
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    processes: bool = False
    environment: tuple[str, ...] = ()
