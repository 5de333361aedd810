"""The status of a whole daemon must fit into one message, however much there is to tell."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.protocol.encoding import MAX_HEADER_BYTES, Encoding, decode_header, encode_header
from acqstream.protocol.replies import StatusReply, parse_reply


def acquisition(number: int, warnings: int) -> dict[str, Any]:
    noted = [["disk_stalled", f"{one}: {'µ' * 200}", "2026-11-22T09:00:00.000+00:00"] for one in range(warnings)]
    return {"name": f"run-{number}", "path": "/data/" + "p" * 400, "ds": f"{number:032x}", "warnings": noted}


def mirror(number: int) -> dict[str, Any]:
    return {"path": f"/data/{number}", "mirror": "n5", "state": "failed", "behind": 3, "reason": "r" * 500}


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(("acquisitions", "warnings", "mirrors"), [(60, 50, 0), (3, 50, 4000), (300, 5, 300)])
def test_a_long_status_says_what_it_leaves_out(
    encoding: Encoding, acquisitions: int, warnings: int, mirrors: int
) -> None:
    runs = [acquisition(number, warnings) for number in range(acquisitions)]
    views = {"pid": 7, "mirrors": [mirror(number) for number in range(mirrors)]}
    whole = {"version": "1", "acquisitions": runs, "views": views}
    raw = encode_header(StatusReply(whole).fields(), encoding)
    assert MAX_HEADER_BYTES * 0.6 < len(raw) < MAX_HEADER_BYTES or encoding is Encoding.MSGPACK
    reply = parse_reply(decode_header(raw)[0])
    assert isinstance(reply, StatusReply)
    told, left_out = reply.values, reply.values["left_out"]
    assert [one["name"] for one in told["acquisitions"]] == [one["name"] for one in runs][: len(told["acquisitions"])]
    assert len(told["acquisitions"]) + left_out["acquisitions"] == acquisitions
    assert len(told["views"]["mirrors"]) + left_out["mirrors"] == mirrors
    shown = [one["warnings"] for one in told["acquisitions"]]
    assert sum(map(len, shown)) + left_out["warnings"] == warnings * len(shown)
    assert all(latest == runs[0]["warnings"][warnings - len(latest) :] for latest in shown)
    assert (told["version"], told["views"]["pid"]) == ("1", 7)
    assert len(runs[0]["warnings"]) == warnings, "what was given must not be changed"


def test_a_short_status_is_whole() -> None:
    values = {"acquisitions": [acquisition(1, 50)], "views": {"pid": None, "mirrors": [mirror(1)]}}
    assert StatusReply(values).fields() == {"t": "status", **values}
