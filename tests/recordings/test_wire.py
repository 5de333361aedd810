"""Recorded dialogues with a daemon, in the bytes of docs/protocol.md, get the recorded replies.

wire.json has both. A part of a message is text, `hex:...`, `zeros:COUNT`, or `count:COUNT` (0, 1, 2 ...). `until` is
what ends the wait for replies: a type, `published N` of an `ack`, `complete` for mirrors, or nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
import zmq

from tests.live.daemon_process import DaemonProcess
from tests.recordings.recording import check, check_keys, load

REPLY_S = 60.0
ASK_AGAIN_S = 0.1
# Times, counts of what threads did so far, and what the machine decides. All that is inside such a value is masked.
MASKED = {
    *("boot", "server", "ipc", "events", "memory", "sockets", "shutdown", "versions", "endpoints", "version"),
    *("started_at", "finished_at", "changed_at", "time", "uptime_s", "running_s", "seconds_since_frame", "root_sha256"),
    *("free_bytes", "reserve_bytes", "bytes_per_s", "seconds_left", "frames_left", "memory_used_bytes", "restarts"),
    *("memory_peak_bytes", "memory_bytes", "load", "totals", "pid", "kernels", "ended", "acquisitions"),
    *(
        "io",
        "io_why",
        "names_forced",
        "behind",
        "from_memory",
        "from_stack",
        "overtaken",
        "queue_frames",
        "stall",
        "warning",
        "published",
        "queue_bytes",
    ),
}
MASKED_TEXT = re.compile(r"20[0-9-]{8}T[0-9:.]{8,}\+00:00|[0-9.]+ [kMGT]?B left")
UNASKED = ("ack", "status")  # they come when a second or a commit is over: counted only where they are waited for
DIALOGUES = load("wire")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("wire") / "data", memory_mb=256, grace_s=0.5) as process:
        yield process


KNOWN_LATER = {"safe", "gaps", "to_come_bytes", "short_bytes", "seconds_to_end"}
"""Of a status: null, or empty, until frames are published."""


def part_of(text: str) -> bytes:
    kind, _, rest = text.partition(":")
    if kind == "zeros":
        return bytes(int(rest))
    if kind == "count":
        return bytes(range(int(rest)))
    return bytes.fromhex(rest) if kind == "hex" else text.encode()


def masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape_of(inner) if key in MASKED else masked(inner) for key, inner in value.items()}
    return [masked(inner) for inner in value] if isinstance(value, list) else value


def shape_of(value: Any) -> Any:
    """The keys of a masked value, and its type."""
    return {key: shape_of(inner) for key, inner in value.items()} if isinstance(value, dict) else type(value).__name__


def is_end(reply: dict[str, Any], until: str) -> bool:
    if until.startswith("published"):
        return reply["t"] == "ack" and reply["published"] >= int(until.split()[1])
    if until == "complete":
        return reply["t"] == "mirrors" and all(mirror["state"] == "complete" for mirror in reply["mirrors"])
    return bool(reply["t"] == until)


def replies_to(socket: zmq.Socket[bytes], step: dict[str, Any], own: dict[str, str]) -> list[Any]:
    """In the order of their texts: threads decide which of two comes first. own: names of this daemon, and tokens."""
    parts, until = [part_of(text) for text in step["send"]], step["until"]
    replies: list[Any] = []
    socket.send_multipart(parts)
    deadline, is_over = time.monotonic() + REPLY_S, not until
    while not is_over:
        assert socket.poll(int(max(0, deadline - time.monotonic()) * 1000)), (
            f"no {until} for {step['send']}, but {replies}"
        )
        content = socket.recv()
        is_json = content[:1] == b"{"
        reply = json.loads(content) if is_json else msgpack.unpackb(content)
        is_over = is_end(reply, until)
        if until == "complete" and not is_over:
            time.sleep(ASK_AGAIN_S)
            socket.send_multipart(parts)
        elif is_over or reply["t"] not in UNASKED:
            if reply["t"] == "ack":
                reply["durable"] = "masked"
            reply.update(dict.fromkeys(reply.keys() & KNOWN_LATER, "masked"))
            text = MASKED_TEXT.sub("...", json.dumps(masked(reply)))
            for name, token in own.items():
                text = text.replace(name, token)
            replies.append({"as": "JSON" if is_json else "msgpack", **json.loads(text)})
    return sorted(replies, key=lambda reply: json.dumps(reply, sort_keys=True))


def replay(daemon: DaemonProcess, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    own = {str(daemon.data): "DATA", str(daemon.home): "HOME", str(daemon.port): "PORT"}
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        socket.connect(daemon.endpoint)
        return [{**step, "replies": replies_to(socket, step, own)} for step in steps]
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize("name", DIALOGUES)
def test_replies_are_those_recorded(daemon: DaemonProcess, name: str) -> None:
    check("wire", name, replay(daemon, DIALOGUES[name]))


def test_no_other_dialogue_is_recorded() -> None:
    check_keys("wire", DIALOGUES)
