"""What programs in other languages get wrong: a right answer with one text exchanged is refused for the right requirement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.negotiation.gbnp.answers import BreachError
from graphbus_core.negotiation.gbnp.conversation import Conversation
from graphbus_core.negotiation.gbnp.messages import MAX_LINE_BYTES

FOLDER = Path(__file__).with_name("transcripts")
RIGHT = {
    "hello": "021",
    "analyze": "030",
    "propose": "041",
    "repair": "051",
    "evaluate": "060",
    "arbitrate": "071",
    "bye": "021",
}
"""Method -> the transcript that has a right answer to it."""


def asked(method: str) -> tuple[Conversation, bytes]:
    """Return a conversation in which a method was just asked, and a right answer without its line end."""
    conversation, question = Conversation(), {}
    for line in (FOLDER / f"GBNP-{RIGHT[method]}.positive.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "host" in entry:
            conversation.host_says(entry["host"].encode() + b"\n")
            question = json.loads(entry["host"])
        elif question["method"] == f"agent/{method}":
            return conversation, entry["program"].encode()
        else:
            conversation.take(entry["program"].encode() + b"\n")
    raise AssertionError(f"{method} is not in the transcript")


def number_for(method: str, change: Callable[[bytes], bytes]) -> str:
    """Return the number of the requirement that an answer breaks after a change; empty if it is accepted."""
    conversation, line = asked(method)
    try:
        conversation.take(change(line))
    except BreachError as breach:
        return breach.number.removeprefix("GBNP-") if breach.side == "program" and breach.reason else "no reason"
    return ""


TEXTS = [
    # numbers, identities and nulls, as loosely typed languages write them
    ("evaluate", '"id":2', '"id":2.0', "014"),
    ("evaluate", '"id":2', '"id":2e0', "014"),
    ("evaluate", '"id":2', '"id":"2"', "014"),
    ("evaluate", '"id":2', '"id":null', "014"),
    ("evaluate", '"id":2', '"id":[2]', "014"),
    ("evaluate", '"id":2', '"id":0', "014"),
    ("evaluate", '"id":2', '"id":-2', "014"),
    ("evaluate", '"id":2,', "", "014"),
    ("hello", '"id":1', '"id":true', "014"),
    ("evaluate", '"jsonrpc":"2.0"', '"jsonrpc":2.0', "007"),
    ("evaluate", '"jsonrpc":"2.0"', '"jsonrpc":"1.0"', "007"),
    ("evaluate", '"jsonrpc":"2.0"', '"jsonrpc":["2.0"]', "007"),
    ("evaluate", '"round":1', '"round":"1"', "060"),
    ("evaluate", '"round":1', '"round":1.5', "060"),
    ("evaluate", '"round":1', '"round":true', "060"),
    ("evaluate", '"round":1', '"round":null', "060"),
    ("evaluate", '"round":1,', "", "060"),
    ("evaluate", '"confidence":0.8', '"confidence":"0.8"', "060"),
    ("evaluate", '"confidence":0.8', '"confidence":null', "060"),
    ("evaluate", '"confidence":0.8', '"confidence":true', "060"),
    ("evaluate", '"confidence":0.8', '"confidence":80', "066"),
    ("evaluate", '"confidence":0.8', '"confidence":-0.01', "066"),
    ("evaluate", '"confidence":0.8', f'"confidence":{2**64 - 1}', "066"),
    ("evaluate", '"confidence":0.8', f'"confidence":{2**64}', "004"),
    ("evaluate", '"confidence":0.8', f'"confidence":{-(2**63) - 1}', "004"),
    ("evaluate", '"confidence":0.8', f'"confidence":{"1" * 5000}', "004"),
    ("evaluate", '"confidence":0.8', '"confidence":1e400', "004"),
    ("evaluate", '"confidence":0.8', '"confidence":-Infinity', "004"),
    ("evaluate", '"confidence":0.8', '"confidence":.8', "001"),
    ("evaluate", '"confidence":0.8', '"confidence":+1', "001"),
    ("evaluate", '"confidence":0.8', '"confidence":01', "001"),
    ("evaluate", '"confidence":0.8', '"confidence":0x1', "001"),
    ("evaluate", '"confidence":0.8', '"confidence":undefined', "001"),
    # shapes
    ("evaluate", '"evaluations":[', '"evaluations":null,"x":[', "060"),
    ("evaluate", '"evaluations":[', '"evaluation":[', "060"),
    ("evaluate", '"evaluations":[', '"evaluations":[null,', "060"),
    ("evaluate", '"evaluations":[', '"evaluations":{"P001":"accept"},"x":[', "060"),
    ("evaluate", '"result":', '"result":"{}","x":', "060"),
    ("evaluate", '"result":', '"result":null,"x":', "060"),
    ("evaluate", '"result":', '"result":[],"x":', "060"),
    ("evaluate", '"decision":"accept"', '"decision":"Accept"', "065"),
    ("evaluate", '"decision":"accept"', '"decision":"accept "', "065"),
    ("evaluate", '"decision":"accept"', '"decision":true', "060"),
    ("evaluate", '"decision":"accept"', '"decision":["accept"]', "060"),
    ("evaluate", '"decision":"accept"', '"decision":"counter"', "067"),
    ("evaluate", '"decision":"accept"', '"decision":"accept","counter_proposal":{}', "060"),
    ("evaluate", '"reasoning":"It fits."', '"reasoning":null', "060"),
    ("evaluate", '"reasoning":"It fits."', '"reasoning":["It fits."]', "060"),
    ("evaluate", '"reasoning":"It fits."', '"impact_assessment":null', "060"),
    ("evaluate", '"reasoning":"It fits."', '"impact_assessment":{"estimated_risk":"HIGH"}', "060"),
    ("evaluate", '"reasoning":"It fits."', '"concerns":"none"', "060"),
    ("evaluate", '"kind":"contract"', '"kind":"proof"', "060"),
    ("repair", '"result":{"proposal":', '"result":{"proposals":', "050"),
    ("repair", '"result":{"proposal":', '"result":{"proposal":false,"x":', "050"),
    ("repair", '"result":{"proposal":', '"result":null,"x":{"y":', "050"),
    ("arbitrate", '"evaluation":{', '"evaluations":{', "070"),
    ("arbitrate", '"evaluation":{', '"evaluation":[],"x":{', "070"),
    ("analyze", '"responsibilities":["Counts."]', '"responsibilities":"Counts."', "030"),
    ("analyze", '"amount: int"', '{"amount":"int"}', "030"),
    ("analyze", '"result":', '"result":null,"x":', "030"),
    ("hello", '"protocol":1', '"protocol":"1"', "021"),
    ("hello", '"protocol":1', '"protocol":1.0', "021"),
    ("hello", '"protocol":1', '"protocol":"1.0"', "021"),
    ("hello", '"protocol":1', '"protocol":0', "021"),
    ("hello", '"protocol":1', '"protocol":null', "021"),
    ("hello", '"protocol":1', '"protocol":[1]', "021"),
    ("hello", '"result":', '"result":[],"x":', "021"),
    ("hello", '"agent":"Stock"', '"agent":"stock"', "022"),
    ("hello", '"agent":"Stock"', '"agent":["Stock"]', "022"),
    ("hello", '"agent":"Stock"', '"agent":"Ｓtock"', "022"),
    ("hello", '"capabilities":[]', '"capabilities":"evaluate"', "023"),
    ("hello", '"capabilities":[]', '"capabilities":{"evaluate":true}', "023"),
    ("hello", '"capabilities":[]', '"capabilities":null', "023"),
    ("hello", '"capabilities":[]', '"x":[]', "023"),
    ("hello", '"capabilities":[]', '"capabilities":[],"program":null', "027"),
    ("hello", '"capabilities":[]', '"capabilities":[],"program":{"name":"x"}', "027"),
    ("hello", '"capabilities":[]', '"capabilities":[],"program":7', "027"),
    ("bye", '"result":{}', '"result":null', "084"),
    ("bye", '"result":{}', '"result":"bye"', "084"),
    ("bye", '"result":{}', '"result":[]', "084"),
    ("bye", '"result":{}', '"error":{"code":-32601,"message":"no"}', "084"),
    # other people's words, and claims that only the host can make
    ("evaluate", '"evaluator":"Stock"', '"evaluator":"stock"', "063"),
    ("evaluate", '"evaluator":"Stock"', '"evaluator":"Stock (ARBITER)"', "063"),
    ("evaluate", '"evaluator":"Stock"', '"evaluator":"Stock","is_arbiter":true', "068"),
    ("arbitrate", '"evaluator":"Stock"', '"evaluator":"Stock","is_arbiter":true', "068"),
    ("arbitrate", '"evaluator":"Stock"', '"evaluator":"Stock (ARBITER)"', "072"),
    ("evaluate", '"kind":"contract"', '"kind":"contract","detail":"it holds"', "068"),
    ("evaluate", '"proposal_id":"P001"', '"proposal_id":"p001"', "061"),
    ("evaluate", '"proposal_id":"P001"', '"proposal_id":"first"', "061"),
    ("evaluate", '"proposal_id":"P001"', '"proposal_id":1', "060"),
    ("arbitrate", '"decision":"reject"', '"decision":"abstain"', "065"),
    ("arbitrate", '"decision":"reject"', '"decision":"counter"', "071"),
    ("arbitrate", '"round":1', '"round":2', "064"),
    ("arbitrate", '"confidence":0.8', '"confidence":2', "066"),
    ("propose", '"src":"Stock"', '"src":"stock"', "041"),
    ("propose", '"src":"Stock"', '"src":null', "040"),
    ("propose", '"proposal_id":"first"', '"proposal_id":""', "044"),
    ("propose", '"proposal_id":"first"', '"proposal_id":1', "040"),
    ("propose", '"round":1', '"round":0', "042"),
    ("propose", '"intent":', '"parent":"","intent":', "045"),
    ("propose", '"intent":', '"affects":"Orders","intent":', "040"),
    ("propose", '"intent":', '"dst":["Orders"],"intent":', "040"),
    ("propose", '"intent":', '"priority":"high","intent":', "040"),
    ("propose", '"intent":', '"further_code_changes":null,"intent":', "040"),
    ("propose", '"change_type":"modify"', '"change_type":"Modify"', "040"),
    ("propose", '"change_type":"modify"', '"change_type":"modify","operation":"rewrite"', "040"),
    ("propose", '"old_code":"pass"', f'"base_sha256":"{"A" * 64}"', "048"),
    ("propose", '"old_code":"pass"', f'"base_sha256":"sha256:{"a" * 64}"', "048"),
    ("propose", '"old_code":"pass"', f'"base_sha256":"{"a" * 64}\\n"', "048"),
    ("propose", '"old_code":"pass"', f'"base_sha256":"{"١" * 64}"', "048"),
    ("propose", '"old_code":"pass"', '"base_sha256":null', "040"),
    ("propose", '"code_change":{', '"code_change":[],"x":{', "040"),
    (
        "propose",
        '"code_change":{',
        '"code_changes":[{"file_path":"../x","target":"","change_type":"add"}],"x":{',
        "046",
    ),
    *(
        ("propose", '"agents/stock.py"', json.dumps(path), number)
        for path, number in [
            ("/agents/stock.py", "046"),
            ("./agents/stock.py", "046"),
            ("agents//stock.py", "046"),
            ("agents/../agents/stock.py", "046"),
            ("agents\\stock.py", "046"),
            ("agents/stock.py/", "046"),
            ("file:///agents/stock.py", "046"),
            ("", "046"),
            ("C:/agents/stock.py", "047"),
            ("agents/Stock.py", "047"),
            ("agents/stock.py ", "047"),
            ("agents/stock.py\0", "047"),
            ("~/agents/stock.py", "047"),
            ("agents/ｓtock.py", "047"),
            (None, "040"),
        ]
    ),
    ("repair", '"round":1', '"round":9', "042"),
    ("repair", '"intent":', '"parent":"P009","intent":', "045"),
    ("repair", '"src":"Stock"', '"src":"Orders"', "041"),
    # the envelope
    ("evaluate", '"result":', '"error":null,"result":', "015"),
    ("evaluate", '"result":{', '"result":null,"error":{', "015"),
    ("evaluate", '"result":{', '"error":{"code":"-1","message":"m"},"x":{', "016"),
    ("evaluate", '"result":{', '"error":{"code":-1.0,"message":"m"},"x":{', "016"),
    ("evaluate", '"result":{', '"error":{"code":true,"message":"m"},"x":{', "016"),
    ("evaluate", '"result":{', '"error":{"code":null,"message":"m"},"x":{', "016"),
    ("evaluate", '"result":{', '"error":{"code":-1,"message":null},"x":{', "016"),
    ("evaluate", '"result":{', '"error":{"code":-1,"message":{}},"x":{', "016"),
    ("evaluate", '"result":{', '"error":[-1,"m"],"x":{', "016"),
    ("evaluate", '"result":{', '"error":"no","x":{', "016"),
    ("evaluate", '"result":{', '"error":{"code":0,"message":""},"x":{', "025"),
    ("hello", '"result":{', '"error":{"code":-32601,"message":"no"},"x":{', "021"),
    ("evaluate", '"id":2', '"id":2,"method":"agent/evaluate"', "008"),
    ("evaluate", '"id":2', '"id":2,"method":null', "008"),
    ("evaluate", '"id":2', '"id":2,"\\u0069d":2', "005"),
    ("evaluate", '"round":1', '"round":1,"round":1', "005"),
    ("evaluate", '"id":2', '"id":2,"":1,"":2', "005"),
    # text
    ("evaluate", "It fits", "\\ud83d", "003"),
    ("evaluate", "It fits", "\\udc00", "003"),
    ("evaluate", "It fits", "\\ude00\\ud83d", "003"),
    ("evaluate", '"id":2', '"id":2,"\\ud800":1', "003"),
    ("evaluate", "It fits", "It\tfits", "001"),
    ("evaluate", "It fits", "It\0fits", "001"),
    ("evaluate", "It fits", "It\\x20fits", "001"),
    ("evaluate", "It fits", "It\\'fits", "001"),
    ("evaluate", '"id":2', '"id":2,', "001"),
    ("evaluate", '"id":2', "'id':2", "001"),
    ("evaluate", '"id":2', '"id":2/* the id */', "001"),
]


@pytest.mark.parametrize(("method", "old", "new", "number"), TEXTS)
def test_an_answer_with_one_text_exchanged_is_refused_for_the_requirement_that_it_breaks(method, old, new, number):
    assert old.encode() in asked(method)[1]
    assert number_for(method, lambda line: line.replace(old.encode(), new.encode(), 1) + b"\n") == number


LINES: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("a byte order mark", lambda line: b"\xef\xbb\xbf" + line + b"\n", "003"),
    ("UTF-16", lambda line: (line.decode() + "\n").encode("utf-16")[:-1], "003"),
    ("surrogates in UTF-8", lambda line: line.replace(b"It fits", b"\xed\xa0\xbd\xed\xb8\x80") + b"\n", "003"),
    ("an overlong form", lambda line: line.replace(b"It fits", b"\xc0\xaf") + b"\n", "003"),
    ("half of a letter", lambda line: line.replace(b"It fits", b"\xe2\x82") + b"\n", "003"),
    ("beyond Unicode", lambda line: line.replace(b"It fits", b"\xf4\x90\x80\x80") + b"\n", "003"),
    ("no line end", bytes, "001"),
    ("the line end of an old Mac", lambda line: line + b"\r", "001"),
    ("an empty line", lambda _line: b"\n", "001"),
    ("a line of spaces", lambda _line: b"   \n", "001"),
    ("a header", lambda line: b"Content-Length: %d\r\n" % len(line), "001"),
    ("a record separator", lambda line: b"\x1e" + line + b"\n", "001"),
    ("a prompt", lambda line: b"> " + line + b"\n", "001"),
    ("two objects", lambda line: line + line + b"\n", "001"),
    ("a batch", lambda line: b"[" + line + b"]\n", "001"),
    ("an empty batch", lambda _line: b"[]\n", "001"),
    ("a string", lambda line: json.dumps(line.decode()).encode() + b"\n", "001"),
    ("null", lambda _line: b"null\n", "001"),
    ("an empty object", lambda _line: b"{}\n", "007"),
    ("a million zeros", lambda line: line[:-1] + b',"x":[0' + b",0" * 1_000_000 + b"]}\n", "002"),
    ("a byte too much", lambda line: line.ljust(MAX_LINE_BYTES) + b"\n", "002"),
    ("arrays 65 deep", lambda line: line[:-1] + b',"x":' + b"[" * 64 + b"]" * 64 + b"}\n", "006"),
    ("objects 65 deep", lambda line: line[:-1] + b',"x":' + b'{"a":' * 64 + b"1" + b"}" * 65 + b"\n", "006"),
    ("half a million brackets", lambda _line: b"[" * 500_000 + b"\n", "006"),
    ("300,000 empty evaluations", lambda line: line.replace(b"[{", b"[" + b"{}," * 300_000 + b"{", 1) + b"\n", "060"),
    ("a request", lambda _line: b'{"jsonrpc":"2.0","id":2,"method":"agent/hello","params":{}}\n', "008"),
    ("a parse error", lambda _line: b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}\n', "014"),
]


@pytest.mark.parametrize(("change", "number"), [pytest.param(*row[1:], id=row[0]) for row in LINES])
def test_a_line_in_another_form_is_refused_for_the_requirement_that_it_breaks(change, number):
    assert number_for("evaluate", change) == number


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line + b"\r\n",
        lambda line: b" \t" + line.replace(b":", b" :\t") + b" \n",
        lambda line: line.replace(b"It fits", b"\\uD83D\\uDE00 \x7f \xe2\x80\xa8 \\u0000") + b"\n",
        lambda line: line.replace(b'"confidence":0.8', b'"confidence":1') + b"\n",
        lambda line: line.replace(b'"confidence":0.8', b'"confidence":-0.0') + b"\n",
        lambda line: line.replace(b'"id":2', b'"params":null,"x":[{"id":3}],"id":2') + b"\n",
        lambda line: line.ljust(MAX_LINE_BYTES - 1) + b"\n",
        lambda line: line[:-1] + b',"x":' + b"[" * 63 + b"]" * 63 + b"}\n",
        lambda line: line[:-1] + b',"x":[0' + b",0" * 400_000 + b"]}\n",
    ],
)
def test_what_is_unusual_but_right_is_accepted(change):
    assert number_for("evaluate", change) == ""
