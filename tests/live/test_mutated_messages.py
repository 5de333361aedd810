"""Ten thousand damaged messages against a daemon with an acquisition at work: it ends clean, its memory is bounded."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from acqstream.client.daemon_requests import fetch_status
from tests.live.daemon_process import DaemonProcess
from tests.live.victim import Victim
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

MIB = 2**20
SEED = 20261121
MESSAGES = 10_000
WARM_UP = 2000
GROWTH_BYTES = 64 * MIB
PER_CONNECTION = 50
PAYLOAD = bytes(range(128))
Header = dict[str, Any]


def valid_header(chance: random.Random, ds: str) -> Header:
    n = chance.randrange(6)
    return chance.choice(
        [
            {"t": "hello", "v": 1, "client": {"name": "x"}},
            {"t": "open", "ds": ds, "name": "mutant", "on_exists": "number", "frame": {"dt": "<u2", "sh": [8, 8]}},
            {"t": "frame", "ds": ds, "n": n, "dt": "<u2", "sh": [8, 8], "ax": {"time": n}, "meta": {"a": 1.5}},
            {"t": "frames", "ds": ds, "n": n, "count": 2, "dt": "<u2", "sh": [8, 4], "ax": {"time": [n, n + 1]}},
            {"t": "frame", "ds": ds, "n": n, "dt": "<u2", "sh": [8, 8], "ax": {"time": n}, "mem": [1, 64 * n]},
            {"t": "skip", "ds": ds, "n": n, "count": 1, "reason": "x"},
            {"t": "patch", "ds": ds, "summary": {"a": 1}, "display": {"b": [1, 2]}},
            {"t": "close", "ds": ds, "n": n, "status": "completed"},
            {"t": "note", "id": f"note-{n}", "ds": ds, "text": "x", "values": {"a": 1}, "n": n, "tns": n},
            {"t": "ping", "ds": ds},
        ]
    )


def retyped(chance: random.Random, header: Header) -> Header:
    values: list[Any] = [None, True, -1, 2**62, 1.5, "", "x" * 5000, [], {}, [[1]], {"a": {}}, "\x00", header]
    return {**header, chance.choice(list(header)): chance.choice(values)}


def shortened(chance: random.Random, header: Header) -> Header:
    dropped = chance.choice(list(header))
    return {key: value for key, value in header.items() if key != dropped}


def unchanged(_chance: random.Random, header: Header) -> Header:
    return header


CHANGES_OF_FIELDS: tuple[Callable[[random.Random, Header], Header], ...] = (unchanged, unchanged, retyped, shortened)


def flipped(chance: random.Random, raw: bytes) -> bytes:
    content = bytearray(raw)
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def changed_parts(chance: random.Random, parts: list[bytes]) -> list[bytes]:
    """Bytes flipped, cut off or put in; parts doubled, lost or in another order."""
    place = chance.randrange(len(parts))
    part = parts[place]
    cut = chance.randrange(len(part) + 1)
    match chance.randrange(8):
        case 0:
            parts[place] = flipped(chance, part) if part else b"x"
        case 1:
            parts[place] = part[:cut]
        case 2:
            parts[place] = part[:cut] + chance.randbytes(chance.randint(1, 40)) + part[cut:]
        case 3:
            parts.insert(place, part)
        case 4 if len(parts) > 1:
            del parts[place]
        case 5:
            parts.reverse()
    return parts


def mutant(chance: random.Random, ds: str) -> list[bytes]:
    header = chance.choice(CHANGES_OF_FIELDS)(chance, valid_header(chance, ds))
    raw = msgpack.packb(header) if chance.random() < 0.5 else json.dumps(header).encode()
    has_payload = header.get("t") in ("frame", "frames") and "mem" not in header
    return changed_parts(chance, [raw, PAYLOAD] if has_payload else [raw])


def send_mutants(daemon: DaemonProcess, chance: random.Random, count: int) -> None:
    """Over many connections, each with acquisitions of its own, ended by a ping that is answered."""
    for _ in range(count // PER_CONNECTION):
        ds = new_dataset_id()
        with WireClient(daemon.endpoint) as client:
            client.send("open", ds=ds, name="mutant", on_exists="number")
            if chance.random() < 0.7:
                client.wait_for("opened", "error")
            for _ in range(PER_CONNECTION):
                client.send_parts(*mutant(chance, ds))
            client.send("hello", v=1, client={"name": "still there?"})
            while client.receive()["t"] != "welcome":
                pass


@pytest.mark.deep
@pytest.mark.promise("nonsense")
@pytest.mark.slow
@pytest.mark.timeout_s(180)
def test_ten_thousand_mutants_beside_a_run(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with DaemonProcess(tmp_path / "data", grace_s=0.2, memory_mb=128) as daemon:
        victim = Victim(daemon.endpoint)
        send_mutants(daemon, chance, WARM_UP)
        until(lambda: len(fetch_status(daemon.endpoint).acquisitions) == 1, "the first mutants' acquisitions are over")
        warm = daemon.rss_bytes()
        send_mutants(daemon, chance, MESSAGES - WARM_UP)
        until(lambda: len(fetch_status(daemon.endpoint).acquisitions) == 1, "the mutants' acquisitions are over")
        until(lambda: daemon.rss_bytes() - warm < GROWTH_BYTES, "the system has the memory of their frames again")
        victim.finish()
        assert "fault" not in daemon.output()
