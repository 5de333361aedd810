"""docs/protocol.md tells the truth: its bytes, its dialogue, its lists of messages and codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from acqstream.model.axes import MAX_AXES, MAX_STRING
from acqstream.model.frame_header import MAX_NUMBER
from acqstream.protocol import replies, requests, shared_memory
from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, decode_header, encode_header
from acqstream.protocol.frame_batch import Frame
from acqstream.protocol.replies import UnknownReply, parse_reply
from acqstream.protocol.requests import parse_request

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def block(label: str) -> str:
    found = re.search(rf"^```{label}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no block {label!r}"
    return found[1]


def documented_bytes(label: str) -> bytes:
    return bytes.fromhex(block(f"hex {label}"))


FRAME = json.loads(block("json"))


@pytest.mark.parametrize(("label", "encoding"), [("json", Encoding.JSON), ("msgpack", Encoding.MSGPACK)])
def test_the_example_frame_in_both_encodings(label, encoding):
    raw = documented_bytes(label)
    assert decode_header(raw) == (FRAME, encoding)
    assert encode_header(FRAME, encoding) == raw


def test_the_example_frame_means_what_the_page_says():
    request = parse_request(FRAME)
    assert isinstance(request, Frame)
    header = request.header
    assert (request.dataset_id, header.number, header.shape) == ("b0e1", 7, (2, 3))
    assert (header.axes, header.time_ns) == ({"time": 0, "channel": "DAPI"}, 1790000000000000000)
    assert len(documented_bytes("payload")) == header.payload_bytes
    assert documented_bytes("payload") == b"".join(value.to_bytes(2, "little") for value in range(6))


def dialogue(side: str) -> list[dict]:
    return [json.loads(line[2:]) for line in block("dialogue").splitlines() if line.startswith(side)]


def test_the_dialogue_is_possible():
    for fields in dialogue(">"):
        parse_request(fields)
    for fields in dialogue("<"):
        reply = parse_reply(fields)
        assert not isinstance(reply, UnknownReply)
        assert set(fields) <= set(reply.fields())


@pytest.mark.parametrize("label", ["handover", "handover-windows"])
def test_the_handing_over_is_possible(label):
    asked, answered = (line[2:].encode() for line in block(label).splitlines())
    assert shared_memory.encode_handover(*shared_memory.parse_handover(asked)) == asked
    assert shared_memory.encode_taken(shared_memory.parse_handover_answer(answered), 256000000) == answered
    offer = requests.parse_request({"t": "open", "ds": "b0e1", "name": "x", "memory": {"token": "0" * 32}})
    assert isinstance(offer, requests.Open)
    assert offer.memory.token == "0" * 32
    assert f"at most {shared_memory.MAX_HANDOVER_BYTES} bytes" in PAGE
    assert f"`why` (up to {shared_memory.MAX_WHY} characters)" in PAGE


def sections(title: str) -> set[str]:
    part = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^### `(\w+)`", part, re.MULTILINE))


def test_every_message_has_a_section():
    assert sections("Producer to daemon") == set(requests._PARSERS)
    assert sections("Daemon to producer") == set(replies._REPLIES)


def test_every_code_that_is_raised_is_in_the_table():
    table = PAGE.split("\n## Errors\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    folders = ("daemon", "log", "views", "mirrors", "integrity", "protocol", "formats/ndtiff")
    sources = [path for folder in folders for path in (ROOT / "acqstream" / folder).glob("*.py")]
    raised = {code for path in sources for code in re.findall(r'\bcode="(\w+)"', path.read_text(encoding="utf-8"))}
    assert raised - documented == set()


def test_limits_are_those_of_the_code():
    assert f"They end at {MAX_NUMBER} (2^48 - 1)" in PAGE
    assert dialogue("<")[0]["max_skip"] == MAX_NUMBER
    assert dialogue("<")[0]["max_header"] == MAX_HEADER_BYTES
    assert f"Up to {MAX_AXES} axes" in PAGE
    assert f"up to {MAX_STRING} printable" in PAGE
