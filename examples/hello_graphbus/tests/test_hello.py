"""The greeting as the terminal and the log see it: real agents on a real bus."""

from __future__ import annotations

import logging

import pytest

from graphbus_core.testing import run_graph
from hello_graphbus.agents.hello import HelloService
from hello_graphbus.agents.logger import LoggerService
from hello_graphbus.agents.printer import PrinterService
from hello_graphbus.main import run


@pytest.fixture
def graph():
    with run_graph(HelloService, PrinterService, LoggerService) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "message"), [("Ada", "Hello, Ada!"), ("  Ada ", "Hello, Ada!"), ("", "Hello, world!")]
)
def test_somebody_is_greeted_by_name_and_nobody_as_the_world(graph, name, message):
    assert graph.call("HelloService", "generate_message", name=name) == {"message": message}


def test_a_message_that_is_not_printed_on_a_terminal_stays_plain(graph, capsys):
    graph.call("PrinterService", "print_message", message="Hello!")
    assert capsys.readouterr().out == "Hello!\n"


def test_a_printed_message_is_logged_with_its_length_and_time(graph, caplog):
    with caplog.at_level(logging.INFO):
        graph.call("PrinterService", "print_message", message="Hello!")
    assert "printed 'Hello!' (6 characters)" in caplog.text


def test_the_entry_point_greets_the_user(graph, monkeypatch, capsys):
    monkeypatch.setenv("HELLO_NAME", "Grace")
    run(graph)
    assert capsys.readouterr().out == "Hello, Grace!\n"
    graph.assert_delivered_to("LoggerService")
