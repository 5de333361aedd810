"""A daemon without disks: a thread with a ROUTER that keeps frames in a list and can be told to misbehave."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import xxhash
import zmq

from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.state import Cursors, Limit
from acqstream.model.status import DaemonStatus
from acqstream.protocol.encoding import Encoding, decode_header, encode_header
from acqstream.protocol.frame_batch import Frame, FrameBatch
from acqstream.protocol.replies import Ack, Closed, Error, Opened, ShutdownReply, StatusReply, Welcome
from acqstream.protocol.requests import Close, Hello, Open, Patch, Ping, Shutdown, Skip, parse_request
from acqstream.protocol.shared_memory import socket_identity
from acqstream.storage import platform
from tests.waiting import WAIT_S, until_notified

needs_ipc = pytest.mark.skipif(not zmq.has("ipc"), reason="this ZeroMQ is built without ipc")

WINDOW_BYTES = 2**30


@dataclass
class Behavior:
    """What the fake does. Changed by tests while it runs; every field is read anew for every message."""

    version: int = 1
    hello_error: Error | None = None
    boot: str = field(default_factory=platform.boot_id)
    ipc: str = ""
    memory: str = ""
    shutdown: str = ""
    sockets: dict[str, str] | None = None  # None: as they are
    limit: Limit = field(default_factory=lambda: Limit(10**9, 10**15))
    window_bytes: int = WINDOW_BYTES
    max_payload: int = 2**28
    open_error: Error | None = None
    resume_error: Error | Closed | None = None
    publish: bool = True  # acknowledge frames as published
    durable: bool = True
    status: Any = field(default_factory=lambda: StatusReply(DaemonStatus(version="fake")))
    silent: bool = False  # takes messages and says nothing
    answer_open: bool = True
    answer_close: bool = True
    lose_frames: int = 0  # of the next frames: dropped without a word, as by a lost connection
    receipt: Callable[[Receipt], Receipt] = lambda receipt: receipt
    first_number: int = 0


class FakeDaemon:
    """Serves one acquisition at a time at `endpoint`. frames maps number to (header, pixels)."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self.behavior = Behavior()
        self.frames: dict[int, tuple[Frame, bytes]] = {}
        self.skips: list[Skip] = []
        self.patches: list[Patch] = []
        self.requests: list[Any] = []
        self.opens: list[tuple[str, bool]] = []  # (dataset id, resume)
        self.epochs: list[int] = []
        self.next = 0
        self.payload_bytes = 0  # of an earlier run, as the next two
        self.stored_before = 0
        self.dataset_id = ""
        self.stored_id = ""
        self.peer: bytes | None = None
        self.changed = threading.Condition()
        self._say: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.bind(endpoint)
        self.endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._wake_in = self._context.socket(zmq.PAIR)
        self._wake_in.bind(f"inproc://wake-{id(self)}")
        self._wake_out = self._context.socket(zmq.PAIR)
        self._wake_out.connect(f"inproc://wake-{id(self)}")
        self._stopping = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fake-daemon", daemon=True)
        self._thread.start()

    def bind_also(self, endpoint: str) -> None:
        self._do(lambda: self._router.bind(endpoint))

    def say(self, *replies: Any) -> None:
        """Send replies to the producer, from the daemon's own thread."""
        for reply in replies:
            self._do(functools.partial(self._tell, reply))

    def acknowledge(self, *, received: int, published: int, durable: int) -> None:
        self.say(Ack(self.dataset_id, Cursors(received, published, durable), self.behavior.limit))

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        with self.changed:
            until_notified(self.changed, condition, "what the fake daemon waits for", timeout_s)

    def stop(self) -> None:
        if not self._stopping:
            if self._thread.is_alive():
                self._do(self._stop)
            self._thread.join()
            self._wake_out.close(0)
            self._context.destroy(linger=0)
        if self.failure is not None:
            raise self.failure

    def _stop(self) -> None:
        self._stopping = True

    def _do(self, action: Callable[[], Any]) -> None:
        self._say.put(action)
        self._wake_out.send(b"")

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._wake_in, zmq.POLLIN)
        try:
            while not self._stopping:
                ready = dict(poller.poll())
                if self._wake_in in ready:
                    self._wake_in.recv()
                    self._say.get()()
                if self._router in ready:
                    self._take(*self._router.recv_multipart())
                with self.changed:
                    self.changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - raised by stop
            self.failure = error
        finally:
            self._router.close(0)
            self._wake_in.close(0)

    def _take(self, peer: bytes, header: bytes, *payload: bytes) -> None:
        request = parse_request(decode_header(header)[0])
        self.requests.append(request)
        if self.behavior.silent:
            return
        if isinstance(request, Hello):
            self._reply(peer, self.behavior.hello_error or self._welcome())
        elif isinstance(request, Open):
            self._open(peer, request)
        elif isinstance(request, Ping | Shutdown):  # a shutdown is confirmed, and the fake stays
            self._reply(peer, self.behavior.status if isinstance(request, Ping) else ShutdownReply(0))
        elif peer != self.peer:
            self._reply(peer, Error("unknown_ds", "no such acquisition here", self.dataset_id))
        elif isinstance(request, Frame):
            self._take_frame(request, *payload)
        elif isinstance(request, FrameBatch):
            assert request.run is not None
            for position, one in enumerate(request.run):
                start = position * request.frame_bytes
                self._take_frame(Frame(request.dataset_id, one), payload[0][start : start + request.frame_bytes])
        elif isinstance(request, Skip):
            self.skips.append(request)
            self.next = max(self.next, request.number + request.count)
            self._acknowledge()
        elif isinstance(request, Patch):
            self.patches.append(request)
        elif isinstance(request, Close) and self.behavior.answer_close:
            self._acknowledge(everything=True)
            self._reply(peer, Closed(self.behavior.receipt(self._receipt(request))))

    def _welcome(self) -> Welcome:
        b = self.behavior
        return Welcome(
            b.version,
            "fake",
            ("ndtiff",),
            ("|u1", "<u2"),
            2**20,
            b.max_payload,
            b.boot,
            b.ipc,
            "",
            b.memory,
            {path: socket_identity(path) for path in (b.ipc.removeprefix("ipc://"), b.memory)}
            if b.sockets is None
            else b.sockets,
            shutdown=b.shutdown,
        )

    def _open(self, peer: bytes, request: Open) -> None:
        spec, behavior = request.spec, self.behavior
        self.opens.append((spec.dataset_id, spec.resume))
        self.epochs.append(spec.epoch)
        if not behavior.answer_open:
            return
        error = behavior.resume_error if spec.resume else behavior.open_error
        if error is not None:
            self._reply(peer, error)
            return
        if not spec.resume:
            self.next = behavior.first_number
        self.peer, self.dataset_id = peer, self.stored_id or spec.dataset_id
        opened = Opened(
            self.dataset_id,
            spec.name,
            f"/data/{spec.name}",
            self.next,
            behavior.limit,
            behavior.window_bytes,
            spec.resume,
            "direct",
            self.payload_bytes,
            spec.epoch,
        )
        self._reply(peer, opened)

    def _take_frame(self, frame: Frame, pixels: bytes) -> None:
        number = frame.header.number
        if self.behavior.lose_frames:
            self.behavior.lose_frames -= 1
            return
        limit = self.behavior.limit
        assert number < limit.number, f"frame {number} is beyond the window of {limit}"
        assert len(pixels) == frame.header.payload_bytes
        assert xxhash.xxh3_64_intdigest(pixels) == frame.header.checksum
        if number < self.next:
            self._acknowledge()
            return
        assert number == self.next, f"frame {number} came, {self.next} was expected"
        self.frames[number] = (frame, pixels)
        self.next += 1
        self._acknowledge()

    def _acknowledge(self, *, everything: bool = False) -> None:
        published = self.next if self.behavior.publish or everything else 0
        durable = published if self.behavior.durable or everything else 0
        self._reply(self.peer, Ack(self.dataset_id, Cursors(self.next, published, durable), self.behavior.limit))

    def _receipt(self, close: Close) -> Receipt:
        skipped = sum(skip.count for skip in self.skips)
        return Receipt(
            dataset_id=close.dataset_id,
            path="/data/x",
            status=close.status,  # type: ignore[arg-type]
            reason=close.reason,
            sent=close.number,
            stored=self.stored_before + len(self.frames),
            skipped=skipped,
            missing=tuple(MissingFrames(skip.number, skip.count, skip.reason) for skip in self.skips),
            payload_bytes=sum(len(pixels) for _, pixels in self.frames.values()),
        )

    def _tell(self, reply: Any) -> None:
        self._reply(self.peer, reply)

    def _reply(self, peer: bytes | None, reply: Any) -> None:
        assert peer is not None
        self._router.send_multipart([peer, encode_header(reply.fields(), Encoding.MSGPACK)])
