"""What a rule of the filter refuses, on every kind of processor; and which names a declared host stands for."""

from __future__ import annotations

import struct
from errno import EACCES, EPERM
from typing import NoReturn

import pytest

from graphbus_core.confinement import calls
from graphbus_core.confinement.calls import ENOSYS, AnyBitSet, CallRule, MaskedEqual, NoBitSet, NotIn, compile_filter
from graphbus_core.confinement.hook import PowerHook, RefusedAction

ALLOWED = 0
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}


def carry_out(steps: bytes, number: int, machine: int, *arguments: int) -> int:
    """Run a program as the kernel does, and give the error of the call, 0 for none."""
    data = struct.pack("=IIQ6Q", number, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    at, held = 0, 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", steps, at * 8)
        at += 1
        if code == 0x06:
            return value & 0xFFFF if value & 0x00050000 and value != 0x7FFF0000 else ALLOWED
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            held &= value
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if holds else no


RULES = [
    CallRule("ptrace"),
    CallRule("clone3", ENOSYS),
    CallRule("clone", EPERM, AnyBitSet(0, 0x6)),
    CallRule("clone", EACCES, NoBitSet(0, 0x100)),
    CallRule("socketpair", EPERM, MaskedEqual(1, 2, 0xF)),
    CallRule("socket", EPERM, NotIn(0, (1, 2))),
    CallRule("fork"),
]
CASES = [
    ("ptrace", (), EPERM),
    ("clone3", (), ENOSYS),
    ("clone", (0x102,), EPERM),
    ("clone", (0x101,), ALLOWED),
    ("clone", (0x1,), EACCES),
    ("socketpair", (1, 0x80002), EPERM),
    ("socketpair", (1, 0x80001), ALLOWED),
    ("socket", (1,), ALLOWED),
    ("socket", (2,), ALLOWED),
    ("socket", (40,), EPERM),
    ("execve", (), ALLOWED),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("call", "arguments", "error"), CASES)
def test_a_rule_refuses_its_call_and_no_other(machine: str, call: str, arguments: tuple[int, ...], error: int) -> None:
    number = calls._NUMBERS[call][machine != "x86_64"]
    assert carry_out(compile_filter(machine, RULES), number, MACHINES[machine], *arguments) == error


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_other_processors_are_not_there(machine: str) -> None:
    steps = compile_filter(machine, RULES)
    assert carry_out(steps, 1, 0x40000003) == ENOSYS
    assert carry_out(steps, 0x40000001, MACHINES[machine]) == ENOSYS


def test_a_processor_whose_calls_are_not_known_has_no_program() -> None:
    assert compile_filter("s390x", RULES) == b""


def refuse(deed: RefusedAction) -> NoReturn:
    raise PermissionError(deed.what)


@pytest.mark.parametrize(
    ("pattern", "host", "is_reached"),
    [
        ("api.bank.example", "api.bank.example", True),
        ("api.bank.example", "API.Bank.Example.", True),
        ("API.bank.example", "api.bank.example", True),
        ("api.bank.example", "evil-api.bank.example", False),
        ("api.bank.example", "api.bank.example.evil.example", False),
        ("*.bank.example", "api.bank.example", True),
        ("*.bank.example", "bank.example", False),
        ("*.bank.example", "evilbank.example", False),
        ("*", "anything", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_a_declared_host_is_reached_and_no_other(pattern: str, host: str, is_reached: bool) -> None:
    judge = PowerHook(readable=(), writable=(), hosts=(pattern,), may_start=False, refuse=refuse)
    try:
        judge._check_look_up(host)
    except PermissionError:
        assert not is_reached
    else:
        assert is_reached
