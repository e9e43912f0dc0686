"""Requests whose end two readers could see at two places: each is refused, and nothing after it is answered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Figure
from tests.e2e.test_http_abuse import status_of
from tests.fakes.http_site import BEARER, JSON, TOKEN, SiteClient, build_site, served

H = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
P = f"POST /call/Till/echo HTTP/1.1\r\n{H}"
OLD = f"POST /call/Till/echo HTTP/1.0\r\n{H}"
BODY = '{"value": 1}'
CHUNKS = f"c\r\n{BODY}\r\n0\r\n\r\n"
TE = "Transfer-Encoding: chunked\r\n"
CL = "Content-Length: 12\r\n"

SMUGGLED = {
    # folded headers
    "te folded by a space": f"{P}Transfer-Encoding:\r\n chunked\r\n\r\n{CHUNKS}",
    "te folded by a tab": f"{P}Transfer-Encoding:\r\n\tchunked\r\n\r\n{CHUNKS}",
    "te folded after its value": f"{P}Transfer-Encoding: chunked\r\n \r\n\r\n{CHUNKS}",
    "te in the fold of another header": f"{P}X: a\r\n Transfer-Encoding: chunked\r\n{CL}\r\n{BODY}",
    "cl folded": f"{P}Content-Length:\r\n 12\r\n\r\n{BODY}",
    "cl folded in two numbers": f"{P}Content-Length: 1\r\n 2\r\n\r\n{BODY}",
    "host folded": f"POST /call/Till/echo HTTP/1.1\r\nHost:\r\n localhost\r\n{CL}\r\n{BODY}",
    "any header folded": f"{P}X: a\r\n b\r\n{CL}\r\n{BODY}",
    "a fold right after the request line": f"POST /call/Till/echo HTTP/1.1\r\n X: a\r\n{H}{CL}\r\n{BODY}",
    # HTTP/1.0 and others
    "te in HTTP/1.0": f"{OLD}{TE}\r\n{CHUNKS}",
    "te in HTTP/1.0 that stays": f"{OLD}Connection: keep-alive\r\n{TE}\r\n{CHUNKS}",
    "te and cl in HTTP/1.0": f"{OLD}{CL}{TE}\r\n{CHUNKS}",
    "HTTP/0.9": f"{P}{CL}\r\n{BODY}".replace("HTTP/1.1", "HTTP/0.9"),
    "HTTP/1.2": f"{P}{CL}\r\n{BODY}".replace("HTTP/1.1", "HTTP/1.2"),
    "HTTP/2.0": f"{P}{TE}\r\n{CHUNKS}".replace("HTTP/1.1", "HTTP/2.0"),
    "http/1.1": f"{P}{CL}\r\n{BODY}".replace("HTTP/1.1", "http/1.1"),
    "no version": f"{P}{CL}\r\n{BODY}".replace(" HTTP/1.1", ""),
    # ends of lines
    "lf for every line": f"{P}{CL}\r\n".replace("\r\n", "\n") + BODY,
    "lf after the request line": f"POST /call/Till/echo HTTP/1.1\n{H}{CL}\r\n{BODY}",
    "lf after one header": f"{P}X: a\n{CL}\r\n{BODY}",
    "lf before te": f"{P}X: a\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}",
    "lf for the empty line": f"{P}{CL}\n{BODY}",
    "lf before the empty line": f"{P}Content-Length: 12\n\r\n{BODY}",
    "cr in a value": f"{P}X: a\rTransfer-Encoding: chunked\r\n{CL}\r\n{BODY}",
    "cr before the line's end": f"{P}X: a\r\r\n{CL}\r\n{BODY}",
    "cr in a name": f"{P}\rX: a\r\n{CL}\r\n{BODY}",
    "an lf before the request line": f"\n{P}{CL}\r\n{BODY}",
    "a line before the request line": f"\r\n{P}{CL}\r\n{BODY}",
    # spelling of te
    "te and cl": f"{P}{CL}{TE}\r\n{CHUNKS}",
    "cl after te": f"{P}{TE}{CL}\r\n{CHUNKS}",
    "two te": f"{P}{TE}{TE}\r\n{CHUNKS}",
    "two te, one of them another": f"{P}{TE}Transfer-Encoding: identity\r\n\r\n{CHUNKS}",
    "te with a list": f"{P}Transfer-Encoding: gzip, chunked\r\n\r\n{CHUNKS}",
    "te with an empty list": f"{P}Transfer-Encoding: , chunked\r\n\r\n{CHUNKS}",
    "te with a parameter": f"{P}Transfer-Encoding: chunked;q=1\r\n\r\n{CHUNKS}",
    "te quoted": f'{P}Transfer-Encoding: "chunked"\r\n\r\n{CHUNKS}',
    "te identity": f"{P}Transfer-Encoding: identity\r\n{CL}\r\n{BODY}",
    "te empty": f"{P}Transfer-Encoding:\r\n{CL}\r\n{BODY}",
    "te with a vertical tab": f"{P}Transfer-Encoding: \x0bchunked\r\n\r\n{CHUNKS}",
    "te with a form feed": f"{P}Transfer-Encoding: chunked\x0c\r\n\r\n{CHUNKS}",
    "te with a nul": f"{P}Transfer-Encoding: chunked\x00\r\n\r\n{CHUNKS}",
    "te with a no-break space": f"{P}Transfer-Encoding: \xa0chunked\r\n\r\n{CHUNKS}",
    "te with a space before the colon": f"{P}Transfer-Encoding : chunked\r\n\r\n{CHUNKS}",
    "te with a tab before the colon": f"{P}Transfer-Encoding\t: chunked\r\n\r\n{CHUNKS}",
    "te with a letter that is another in capitals": f"{P}Transfer-Encoding: chun\u212aed\r\n\r\n{CHUNKS}",
    # spelling of cl
    "cl twice, the same": f"{P}{CL}{CL}\r\n{BODY}",
    "cl twice, another": f"{P}{CL}Content-Length: 0\r\n\r\n{BODY}",
    "cl as a list of the same": f"{P}Content-Length: 12, 12\r\n\r\n{BODY}",
    "cl as a list": f"{P}Content-Length: 12, 0\r\n\r\n{BODY}",
    "cl with a comma": f"{P}Content-Length: 12,\r\n\r\n{BODY}",
    "cl with a plus": f"{P}Content-Length: +12\r\n\r\n{BODY}",
    "cl negative": f"{P}Content-Length: -12\r\n\r\n{BODY}",
    "cl with a leading zero": f"{P}Content-Length: 012\r\n\r\n{BODY}",
    "cl in hexadecimal": f"{P}Content-Length: 0xc\r\n\r\n{BODY}",
    "cl with an underscore": f"{P}Content-Length: 1_2\r\n\r\n{BODY}",
    "cl with a space": f"{P}Content-Length: 1 2\r\n\r\n{BODY}",
    "cl with a point": f"{P}Content-Length: 12.0\r\n\r\n{BODY}",
    "cl empty": f"{P}Content-Length:\r\n\r\n{BODY}",
    "cl too large for 64 bits": f"{P}Content-Length: 18446744073709551628\r\n\r\n{BODY}",
    "cl in Arabic digits": f"{P}Content-Length: \u0661\u0662\r\n\r\n{BODY}",
    "cl with a space before the colon": f"{P}Content-Length : 12\r\n\r\n{BODY}",
    # names and values
    "a name with a space": f"{P}X Y: a\r\n{CL}\r\n{BODY}",
    "a name with a nul": f"{P}X\x00: a\r\n{CL}\r\n{BODY}",
    "no name": f"{P}: a\r\n{CL}\r\n{BODY}",
    "no colon": f"{P}X\r\n{CL}\r\n{BODY}",
    "a value with a nul": f"{P}X: a\x00b\r\n{CL}\r\n{BODY}",
    "a value with an escape": f"{P}X: \x1b[2J\r\n{CL}\r\n{BODY}",
    "a value with a delete": f"{P}X: \x7f\r\n{CL}\r\n{BODY}",
    "a value with a bell": f"{P}X: \x07\r\n{CL}\r\n{BODY}",
    # whose it is
    "two hosts": f"{P}Host: evil.example\r\n{CL}\r\n{BODY}",
    "two equal hosts": f"{P}Host: localhost\r\n{CL}\r\n{BODY}",
    "no host": f"{P}{CL}\r\n{BODY}".replace("Host: localhost\r\n", ""),
    "an absolute address of others": f"{P}{CL}\r\n{BODY}".replace(" /", " http://evil.example/", 1),
    "an absolute address": f"{P}{CL}\r\n{BODY}".replace(" /", " http://localhost/", 1),
    "an authority": f"CONNECT localhost:80 HTTP/1.1\r\n{H}\r\n",
    "an asterisk": f"OPTIONS * HTTP/1.1\r\n{H}\r\n",
    "a space in the address": f"{P}{CL}\r\n{BODY}".replace("/echo", "/ec ho", 1),
    "a tab after the method": f"{P}{CL}\r\n{BODY}".replace("POST ", "POST\t", 1),
    "two spaces after the method": f"{P}{CL}\r\n{BODY}".replace("POST ", "POST  ", 1),
    # chunks
    "a chunk's size with lf": f"{P}{TE}\r\nc\n{BODY}\r\n0\r\n\r\n",
    "a chunk's end with lf": f"{P}{TE}\r\nc\r\n{BODY}\n0\r\n\r\n",
    "a chunk without its end": f"{P}{TE}\r\nc\r\n{BODY}0\r\n\r\n",
    "a chunk's size with a plus": f"{P}{TE}\r\n+c\r\n{BODY}\r\n0\r\n\r\n",
    "a chunk's size with 0x": f"{P}{TE}\r\n0xc\r\n{BODY}\r\n0\r\n\r\n",
    "a chunk's size with an underscore": f"{P}{TE}\r\n0_c\r\n{BODY}\r\n0\r\n\r\n",
    "a chunk's size with a space": f"{P}{TE}\r\nc \r\n{BODY}\r\n0\r\n\r\n",
    "a chunk's size after a space": f"{P}{TE}\r\n c\r\n{BODY}\r\n0\r\n\r\n",
    "a chunk's size of more than 64 bits": f"{P}{TE}\r\n1000000000000000c\r\n{BODY}\r\n0\r\n\r\n",
    "a chunk without a size": f"{P}{TE}\r\n\r\n{BODY}\r\n0\r\n\r\n",
    "an extension with lf": f"{P}{TE}\r\nc;a\nb\r\n{BODY}\r\n0\r\n\r\n",
    "an extension with cr": f"{P}{TE}\r\nc;a\rb\r\n{BODY}\r\n0\r\n\r\n",
    "an extension with a nul": f"{P}{TE}\r\nc;a\x00\r\n{BODY}\r\n0\r\n\r\n",
    "trailers with lf": f"{P}{TE}\r\nc\r\n{BODY}\r\n0\r\nX: a\n\r\n",
    "an lf at the end of the trailers": f"{P}{TE}\r\nc\r\n{BODY}\r\n0\r\n\n",
    "a folded trailer": f"{P}{TE}\r\nc\r\n{BODY}\r\n0\r\nX: a\r\n b\r\n\r\n",
    "trailers with te": f"{P}{TE}\r\nc\r\n{BODY}\r\n0\r\n{TE}{CL}\r\n",
}
PLAIN = {
    "cl": f"{P}{CL}\r\n{BODY}",
    "chunks": f"{P}{TE}\r\n{CHUNKS}",
    "te in capitals": f"{P}TRANSFER-ENCODING: CHUNKED\r\n\r\n{CHUNKS}",
    "te after a tab": f"{P}Transfer-Encoding:\tchunked \r\n\r\n{CHUNKS}",
    "several chunks": f'{P}{TE}\r\n4\r\n{{"va\r\n8\r\nlue": 1}}\r\n0\r\n\r\n',
    "a chunk's size with zeros": f"{P}{TE}\r\n00C\r\n{BODY}\r\n0\r\n\r\n",
    "an extension": f"{P}{TE}\r\nc;name=value\r\n{BODY}\r\n0\r\n\r\n",
    "trailers": f"{P}{TE}\r\nc\r\n{BODY}\r\n0\r\nX: a\r\n\r\n",
    "a value in Latin-1": f"{P}X: \xe4\r\n{CL}\r\n{BODY}",
    "HTTP/1.0": f"{OLD}{CL}\r\n{BODY}",
}
SECOND = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteClient]:
    root = build_site(tmp_path_factory.mktemp("site"), "header_timeout_s = 0.5\nbody_timeout_s = 0.5\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GRAPHBUS_TOKEN", TOKEN)
        with served(root) as client:
            yield client


def _bytes(text: str) -> bytes:
    return b"".join(char.encode("latin-1" if ord(char) < 256 else "utf-8") for char in text)


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_could_end_at_two_places_is_refused_and_ends_the_connection(site: SiteClient, name: str) -> None:
    answer = site.raw(_bytes(SMUGGLED[name] + SECOND))

    assert status_of(answer) == 400, answer
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("name", PLAIN)
def test_what_can_be_read_in_one_way_only_is_answered_and_so_is_what_follows(site: SiteClient, name: str) -> None:
    answer = site.raw(_bytes(PLAIN[name] + SECOND))

    assert status_of(answer) == 200, answer
    assert answer.count(b"HTTP/1.1 200") == (1 if name == "HTTP/1.0" else 2), answer


def test_lines_that_arrive_byte_by_byte_are_read_as_strictly(site: SiteClient) -> None:
    for text in (SMUGGLED["te folded by a space"], SMUGGLED["lf before te"], SMUGGLED["a chunk's size with lf"]):
        with site.connect() as connection:
            try:
                for byte in _bytes(text):
                    connection.sendall(bytes([byte]))
            except ConnectionError:
                pass
            assert connection.recv(20).startswith(b"HTTP/1.1 400")


def test_how_many_were_tried(figure: Figure) -> None:
    figure("requests that could end at two places", f"{len(SMUGGLED)}, 0 answered")


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/metrics"])
def test_a_page_of_others_reads_nothing(site: SiteClient, path: str) -> None:
    for method in ("GET", "HEAD"):
        assert site.request(method, path, headers={"origin": "https://evil.example"}).status == 403
        assert site.request(method, path, headers=BEARER | {"origin": "null"}).status == 403
        assert site.request(method, path).status == 200
    assert site.request("POST", "/call/Till/echo", BODY, BEARER | JSON).status == 200
