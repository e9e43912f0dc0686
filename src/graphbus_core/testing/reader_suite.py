"""ReaderSuite: the tests that every reader passes, of this project or yours. They check what `readers.seam` promises.

    class TestMyReader(ReaderSuite):
        reader = my_package.reader
        files = {"shop/tasks.py": "...", "shop/views.py": "..."}
        producers = [("shop.tasks.charge", "shop/views.py", 4)]
        consumers = [("shop.tasks.charge", "shop/tasks.py", 3)]

pytest runs the class. Importing a file of the sample must fail, for example by `raise SystemExit` at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from graphbus_core.contracts.messages import Consumer, Messages, Producer
from graphbus_core.readers.seam import Project, Reader
from graphbus_core.testing.ledger_checks import check

Place = tuple[str, str, int]
"""A channel, a path and a line."""
_TORN = "def torn(:\n"


class ReaderSuite:
    """The promises of a reader as tests.

    Attributes:
        reader: The reader.
        files: Path -> text of a sample project, in which every message is known.
        producers: Its producers: the channel and the place of each.
        consumers: Its consumers.
    """

    reader: ClassVar[Reader]
    files: ClassVar[Mapping[str, str]]
    producers: ClassVar[Sequence[Place]]
    consumers: ClassVar[Sequence[Place]]

    def read(self, files: Mapping[str, str], focus: frozenset[str] | None = None) -> Messages:
        """Return the messages of a project with these files."""
        return self.reader.read(Project(files, lambda path: files[path].encode(), focus))

    def test_it_finds_who_sends_and_who_takes_and_where(self) -> None:
        """Every producer and consumer of the sample is found with its place, and nothing is unknown."""
        found = self.read(self.files)
        check("the producers", _places(found.producers), sorted(self.producers))
        check("the consumers", _places(found.consumers), sorted(self.consumers))
        check("what is unknown", found.unread, ())

    def test_the_same_project_gives_the_same_messages(self) -> None:
        """Two readings are equal, and the order of the files makes no difference."""
        again = dict(reversed([*self.files.items()]))
        check("a second reading", self.read(again), self.read(self.files))

    def test_every_place_is_in_a_file_of_the_project(self) -> None:
        """A span names a file of the project and a line that it has."""
        found = self.read(self.files)
        for each in _ends(found):
            lines = self.files[each.span.path].count("\n") + 1
            check(f"the line of {each.channel}", 1 <= each.span.line <= lines, wanted=True)

    def test_a_focus_leaves_out_nothing_that_concerns_it(self) -> None:
        """What a file in the focus sends and takes is there, and everything that is sent to its consumers."""
        whole = self.read(self.files)
        for path in self.files:
            found = self.read(self.files, frozenset({path}))
            taken = {each.channel for each in whole.consumers if each.span.path == path}
            for each in whole.producers:
                if each.span.path == path or each.channel in taken:
                    check(f"{each.channel} of {path}", each in found.producers, wanted=True)
            missing = [
                each.channel for each in whole.consumers if each.span.path == path and each not in found.consumers
            ]
            check(f"the consumers in {path}", missing, [])

    def test_an_empty_project_has_no_messages(self) -> None:
        """Without files there is nothing, and no error."""
        check("the messages of nothing", self.read({}), Messages())

    def test_a_file_that_cannot_be_read_is_unknown(self) -> None:
        """A file that is torn is in `unread` as a whole, and nothing is invented in its place."""
        for path, text in self.files.items():
            found = self.read({**self.files, path: text + _TORN})
            invented = [each.channel for each in _ends(found) if each.span.path == path]
            check(f"the messages of {path}, torn", invented, [])
        concerned = {path for _, path, _ in (*self.producers, *self.consumers)}
        for path in sorted(concerned):
            found = self.read({**self.files, path: self.files[path] + _TORN})
            check(
                f"{path}, torn, is unknown",
                path in {each.span.path for each in found.unread if each.is_file},
                wanted=True,
            )


def _ends(found: Messages) -> list[Producer | Consumer]:
    return [*found.producers, *found.consumers]


def _places(found: Sequence[Producer | Consumer]) -> list[Place]:
    return sorted((each.channel, each.span.path, each.span.line) for each in found)
