"""One source file: its bytes, what they decode to, and the syntax tree or the reason why there is none."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from itertools import accumulate

from graphbus_core.compiler.reading import syntax
from graphbus_core.errors import BuildError, Place
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.digests import sha256_hex

BOM = b"\xef\xbb\xbf"
Ignores = tuple[tuple[int, tuple[str, ...]], ...]

_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_IGNORE = re.compile(r"#\s*graphbus:\s*ignore(-file)?(?:\[([^\]]*)\])?")


class SourceFile:
    """A file as it was read.

    Attributes:
        path: Relative posix path below the project root.
        module: Dotted name.
        data: The bytes; they are the truth.
    """

    def __init__(self, path: str, module: str, data: bytes) -> None:
        self.path = path
        self.module = module
        self.data = data

    @cached_property
    def sha256(self) -> str:
        """Digest of the bytes."""
        return sha256_hex(self.data)

    @cached_property
    def encoding(self) -> str:
        """The declared encoding, `utf-8` without a declaration."""
        if b"coding" not in self.data:
            return "utf-8"
        head = self.data.removeprefix(BOM).split(b"\n", 2)
        for position, line in enumerate(head[:2]):
            cookie = _COOKIE.match(line)
            if cookie:
                return cookie.group(1).decode("ascii", "replace").lower()
            if position == 0 and not _BLANK.match(line.rstrip(b"\r")):
                break
        return "utf-8"

    @cached_property
    def newline(self) -> str:
        r"""The first line end in the file, `"\n"` if there is none."""
        found = _LINE_END.search(self.data)
        return found.group().decode() if found else "\n"

    @cached_property
    def text(self) -> str:
        """The decoded text without byte order mark, line ends untouched."""
        return self.data.removeprefix(BOM).decode(self.encoding)

    @cached_property
    def utf8(self) -> bytes:
        """The text in UTF-8 without byte order mark: what the columns of spans count in."""
        return self.text.encode() if self.encoding not in ("utf-8", "utf8") else self.data.removeprefix(BOM)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """The offset in `utf8` at which each line begins."""
        return (0, *accumulate(map(len, self.utf8.splitlines(keepends=True))))

    def span_bytes(self, span: SourceSpan) -> bytes:
        """Give the part of `utf8` that a span covers."""
        starts = self.line_starts
        return self.utf8[starts[span.line - 1] + span.column : starts[span.end_line - 1] + span.end_column]

    def parse(self) -> ast.Module:
        """Give the syntax tree.

        Raises:
            BuildError: GBE201 for a syntax error, GBE202 for bytes that are no text, GBE206 for nesting beyond Python's limits.
        """
        try:
            tree = syntax.parse(self.data, self.path)
            return syntax.with_whole_characters(tree) if syntax.may_have_half_characters(self.data) else tree
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in some versions of Python
            raise self._null_byte() or self._encoding_error() or self._syntax_error(error) from None
        except (RecursionError, MemoryError):
            raise BuildError("GBE206", where=Place(self.path)) from None

    def _syntax_error(self, error: SyntaxError | ValueError) -> BuildError:
        line, column = getattr(error, "lineno", None) or 0, getattr(error, "offset", None) or 0
        return BuildError("GBE201", where=Place(self.path, line, column), reason=syntax.reason_of(error))

    def _null_byte(self) -> BuildError | None:
        position = self.data.find(b"\0")
        if position < 0:
            return None
        line = self.data.count(b"\n", 0, position) + 1
        return BuildError("GBE201", where=Place(self.path, line), reason="it contains a null byte")

    def _encoding_error(self) -> BuildError | None:
        try:
            self.data.removeprefix(BOM).decode(self.encoding)
        except LookupError:
            reason = "this encoding is not known"
            return BuildError("GBE202", where=Place(self.path, 1), encoding=self.encoding, reason=reason)
        except UnicodeDecodeError as error:
            line = self.data[: error.start].count(b"\n") + 1
            return BuildError("GBE202", where=Place(self.path, line), encoding=self.encoding, reason=error.reason)
        return None

    def ignores(self) -> Ignores:
        """Give the `# graphbus: ignore[...]` comments: line (0: the whole file) and codes (none: all)."""
        if b"graphbus:" not in self.data:
            return ()
        found: list[tuple[int, tuple[str, ...]]] = []
        for line, comment in self._comments():
            match = _IGNORE.match(comment)
            if match:
                codes = tuple(code.strip() for code in (match.group(2) or "").split(",") if code.strip())
                found.append((0 if match.group(1) else line, codes))
        return tuple(found)

    def _comments(self) -> list[tuple[int, str]]:
        import io
        import tokenize

        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        try:
            return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
        except (tokenize.TokenError, SyntaxError):  # pragma: no cover - only files that parse come here
            return []


def span_of(path: str, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> SourceSpan:
    """Give the span of a node, decorators left out."""
    return SourceSpan(path, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
