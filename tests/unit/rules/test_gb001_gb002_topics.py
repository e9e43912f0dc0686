"""GB001 and GB002: topics with one end only."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.bus import MessageBus
from graphbus_core.compiler import rules
from graphbus_core.errors import RunError
from graphbus_core.model.config import Settings
from tests.checking import Files, apply_fix, assert_marked, fixed, only_finding, read, text_of

PUBLISHER = """
class Publisher(GraphBusNode):
    def go(self):
        self.publish("/Stock/Changed", {"sku": "a"})
"""

WITHOUT_PUBLISHER = {
    "nobody publishes at all": """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")  #! GB001
    def on_change(self, event): ...
""",
    "a slip in the topic": PUBLISHER
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changd")  #! GB001
    def on_change(self, event): ...
""",
    "an entry of SUBSCRIBE": PUBLISHER
    + """
class Listener(GraphBusNode):
    SUBSCRIBE = [
        "/Stock/Changed",
        "/Stock/Chnged",  #! GB001
    ]
    def handle_event(self, topic, payload): ...
""",
}

WITH_PUBLISHER = {
    "a pattern": PUBLISHER
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/*")
    def one(self, event): ...
    @subscribe("/**")
    def all(self, event): ...
""",
    "a computed topic with a beginning that fits": """
class Publisher(GraphBusNode):
    def go(self, what):
        self.publish(f"/Stock/{what}", {})

class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, event): ...
    @subscribe("/Stock/*")
    def on_any(self, event): ...
""",
    "a computed subscription": """
def topic(): ...
class Listener(GraphBusNode):
    @subscribe(topic())
    def on_change(self, event): ...
""",
    "a start script that feeds the graph": {
        "agents.py": """
class Listener(GraphBusNode):
    @subscribe("/Shop/Opened")
    def on_open(self, event): ...
""",
        "main.py": """
def run(graph):
    graph.publish("/Shop/Opened", {})
""",
    },
    "a start script that feeds the graph by the name of a topic": {
        "topics.py": """
from graphbus_core import Topic

OPENED = "/Shop/Opened"
CLOSED = Topic("/Shop/Closed", str)
""",
        "agents.py": """
from topics import CLOSED, OPENED

class Listener(GraphBusNode):
    @subscribe(OPENED)
    def on_open(self, event): ...

    @subscribe(CLOSED)
    def on_close(self, event): ...
""",
        "main.py": """
import topics

def run(graph):
    graph.publish(topics.OPENED, {})
    graph.publish(topic=topics.CLOSED, payload="until Monday")
""",
    },
    "a function that publishes for an agent": """
def announce(node, topic, payload):
    node.publish(topic, payload)

class Publisher(GraphBusNode):
    def go(self):
        announce(self, "/Stock/Changed", {"sku": "a"})

class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_change(self, event): ...
""",
}


@pytest.mark.parametrize("files", WITHOUT_PUBLISHER.values(), ids=WITHOUT_PUBLISHER)
def test_a_subscription_without_publisher_is_found(tmp_path: Path, files: Files) -> None:
    assert_marked(tmp_path, files, "GB001")


@pytest.mark.parametrize("files", WITH_PUBLISHER.values(), ids=WITH_PUBLISHER)
def test_a_subscription_that_may_have_a_publisher_is_left_alone(tmp_path: Path, files: Files) -> None:
    assert_marked(tmp_path, files, "GB001")


def test_topics_from_outside_are_silenced_by_the_settings(tmp_path: Path) -> None:
    text = WITHOUT_PUBLISHER["nobody publishes at all"].replace("#! GB001", "")
    for topics in [("/Stock/Changed",), ("/Stock/*",), ("/**",)]:
        assert_marked(tmp_path, text, "GB001", settings=Settings(external_topics=topics))


def test_nothing_is_said_of_missing_ends_while_a_file_cannot_be_read(tmp_path: Path) -> None:
    files = {"agents.py": str(WITHOUT_PUBLISHER["nobody publishes at all"]), "broken.py": "def ("}
    assert rules.check(read(tmp_path, files)) == ()


def test_both_ends_and_the_likely_topic_are_named(tmp_path: Path) -> None:
    finding = only_finding(read(tmp_path, WITHOUT_PUBLISHER["a slip in the topic"]), "GB001")
    assert finding.message == "Listener.on_change subscribes to '/Stock/Changd', which no agent publishes"
    assert finding.hint.startswith("Did you mean '/Stock/Changed'?")
    assert [(each.agent, each.message) for each in finding.related] == [
        ("Publisher", "Publisher publishes '/Stock/Changed'")
    ]


@pytest.mark.parametrize("there", [(), ("/Clock/*",)])
def test_the_line_for_a_topic_from_outside_is_given_whole(tmp_path: Path, there: tuple[str, ...]) -> None:
    settings = Settings(external_topics=there)
    silent = only_finding(read(tmp_path, WITHOUT_PUBLISHER["nobody publishes at all"], settings=settings), "GB001")
    listed = ", ".join(f'"{topic}"' for topic in (*there, "/Stock/Changed"))
    line = f"external_topics = [{listed}] in [tool.graphbus] of pyproject.toml."
    assert silent.hint == f"Publish it in an agent; if other programs publish it, write {line}"
    unheard = only_finding(read(tmp_path, PUBLISHER, settings=settings), "GB002")
    assert unheard.hint == f"Subscribe to it or stop publishing it; if other programs subscribe to it, write {line}"


def test_the_subscription_gets_the_name_that_is_published(tmp_path: Path) -> None:
    before = read(tmp_path, WITHOUT_PUBLISHER["a slip in the topic"])
    after = fixed(before, "GB001")
    assert text_of(after) == text_of(before).replace('"/Stock/Changd"', '"/Stock/Changed"')
    assert rules.fix_for(only_finding(before, "GB001"), before).affects == ("Publisher",)


def test_an_entry_of_subscribe_is_renamed_in_its_class(tmp_path: Path) -> None:
    before = read(tmp_path, WITHOUT_PUBLISHER["an entry of SUBSCRIBE"])
    assert text_of(fixed(before, "GB001")) == text_of(before).replace('"/Stock/Chnged"', '"/Stock/Changed"')


NOT_FIXED = {
    "nothing tells which one is the slip": PUBLISHER.replace("/Changed", "/Taken")
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Tkaen")
    def on_news(self, event): ...
""",
    "several publish the one and several hear the other": PUBLISHER.replace("/Changed", "/Create")
    + PUBLISHER.replace("class Publisher", "class Created").replace("/Changed", "/Create")
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Created")
    def create(self, event): ...
class Other(GraphBusNode):
    @subscribe("/Stock/Created")
    def on_news(self, event): ...
""",
    "the likely topic is heard already and further away": PUBLISHER
    + """
class Listener(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_changed(self, event): ...
    @subscribe("/Stock/Chan")
    def on_change(self, event): ...
""",
}


@pytest.mark.parametrize("text", NOT_FIXED.values(), ids=NOT_FIXED)
def test_a_topic_is_not_renamed_on_a_guess(tmp_path: Path, text: str) -> None:
    project = read(tmp_path, text)
    findings = rules.check(project, select=["GB001"])
    assert findings
    assert [each for each in findings if each.is_fixable or rules.fix_for(each, project)] == []


LISTENER = """
class Listener(GraphBusNode):
    @subscribe({topic})
    def on_change(self, event): ...
"""
WRITTEN = {
    "a constant of the file": ('CHANGED = "/Stock/Changd"\n', "CHANGED"),
    "a constant of a class": ('class Topics:\n    CHANGED = "/Stock/Changd"\n', "Topics.CHANGED"),
}


@pytest.mark.parametrize(("constant", "topic"), WRITTEN.values(), ids=WRITTEN)
def test_a_constant_is_changed_where_it_is_written(tmp_path: Path, constant: str, topic: str) -> None:
    before = read(tmp_path, PUBLISHER + constant + LISTENER.replace("{topic}", topic))
    assert text_of(fixed(before, "GB001")) == text_of(before).replace("/Changd", "/Changed")


def test_a_constant_of_a_file_that_agents_may_not_change_is_left_alone(tmp_path: Path) -> None:
    listener = LISTENER.replace("{topic}", "topics.CHANGED")
    files = {"agents.py": f"{PUBLISHER}import topics\n{listener}", "topics.py": 'CHANGED = "/Stock/Changd"\n'}
    assert not only_finding(read(tmp_path, files), "GB001").is_fixable


PUBLISHER_WRONG = {
    "several hear the other one": """
class Other(GraphBusNode):
    @subscribe("/Stock/Changed")
    def on_news(self, event): ...
""",
    "a word that is written elsewhere": "",
}


@pytest.mark.parametrize("more", PUBLISHER_WRONG.values(), ids=PUBLISHER_WRONG)
def test_the_publisher_gets_the_name_that_is_heard_where_its_own_is_the_slip(tmp_path: Path, more: str) -> None:
    text = PUBLISHER.replace("/Changed", "/Chnaged") + LISTENER.replace("{topic}", '"/Stock/Changed"') + more
    before = read(tmp_path, text)
    finding = next(each for each in rules.check(before, select=["GB001"]) if each.agent == "Listener")
    fix = rules.fix_for(finding, before)
    assert fix.title == "Rename the topic '/Stock/Chnaged' to '/Stock/Changed' in Publisher.go"
    after = apply_fix(before, fix)
    assert text_of(after) == text_of(before).replace("/Chnaged", "/Changed")
    assert rules.check(after) == ()


WITHOUT_SUBSCRIBER = {
    "nobody listens": PUBLISHER.replace('{"sku": "a"})', '{"sku": "a"})  #! GB002'),
    "the same topic twice is said once": """
class Publisher(GraphBusNode):
    def go(self):
        self.publish("/A", {})  #! GB002
        self.publish("/A", {})
""",
}

WITH_SUBSCRIBER = {
    "a pattern hears it": WITH_PUBLISHER["a pattern"],
    "a computed subscription may hear it": PUBLISHER
    + """
def topic(): ...
class Listener(GraphBusNode):
    @subscribe(topic())
    def on_change(self, event): ...
""",
    "its subscription is misspelled, which GB001 says": WITHOUT_PUBLISHER["a slip in the topic"].replace(
        "#! GB001", ""
    ),
    "a computed topic": """
class Publisher(GraphBusNode):
    def go(self, topic):
        self.publish(topic)
""",
}


@pytest.mark.parametrize("text", [*WITHOUT_SUBSCRIBER.values(), *WITH_SUBSCRIBER.values()],
                         ids=[*WITHOUT_SUBSCRIBER, *WITH_SUBSCRIBER])  # fmt: skip
def test_a_publication_that_nobody_hears_is_a_note(tmp_path: Path, text: str) -> None:
    assert_marked(tmp_path, text, "GB002")
    assert all(finding.severity == "info" for finding in rules.check(read(tmp_path, text), select=["GB002"]))


NO_TOPICS = ["bad topic", "Stock/Changed", "/Stock/", "/Stock//Changed", "/Stock/é", "/**/Changed", "/Stock/Cha*"]


@pytest.mark.parametrize("topic", NO_TOPICS)
@pytest.mark.parametrize(
    "publisher", ["", PUBLISHER.replace("/Stock/Changed", "{topic}")], ids=["unheard", "published"]
)
def test_what_is_no_topic_is_an_error_whoever_publishes_it(tmp_path: Path, topic: str, publisher: str) -> None:
    text = f"""
class Listener(GraphBusNode):
    @subscribe("{topic}")
    def on_change(self, event): ...
"""
    settings = Settings(external_topics=("/**",))
    finding = only_finding(read(tmp_path, publisher.replace("{topic}", topic) + text, settings), "GB001")
    assert finding.message == f"Listener.on_change subscribes to {topic!r}, but this is not a valid topic"
    assert (finding.severity, finding.is_fixable) == ("error", False)
    with pytest.raises(RunError):
        MessageBus().subscribe(topic, print)


def test_what_is_nearly_a_topic_gets_the_name_that_is_published(tmp_path: Path) -> None:
    text = WITHOUT_PUBLISHER["a slip in the topic"].replace("/Stock/Changd", "Stock/Changed")
    before = read(tmp_path, text)
    assert only_finding(before, "GB001").hint.startswith("Did you mean '/Stock/Changed'?")
    assert text_of(fixed(before, "GB001")) == text_of(before).replace('"Stock/Changed"', '"/Stock/Changed"')
