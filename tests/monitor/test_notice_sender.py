"""Notices reach real programs and a real HTTP server; what fails is bounded in attempts, time and number."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from acqstream.model.notice_target import AddressTarget, CommandTarget
from acqstream.monitor.notifier import (
    MAX_WAITING,
    Notice,
    NoticeKind,
    NoticeSender,
    NotSent,
    SendLimits,
    post,
    run_command,
)
from tests.waiting import until

EVIL = "cells'; touch evil; $(touch evil) `touch evil` & \n --flag"
NOTICE = Notice(
    kind=NoticeKind.PAUSED,
    text=f"scope: {EVIL} is paused",
    host="scope",
    time="2026-11-25T14:00:00+00:00",
    acquisition=EVIL,
    path="/data/cells",
    details={"free_bytes": 7},
)
QUICK = SendLimits(attempt_s=5.0, pauses_s=(0.0, 0.0))


def notice(number: int) -> Notice:
    return Notice(kind=NoticeKind.FINISHED, text=str(number), host="scope", time="")


def python(source: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source, *arguments)


def test_a_command_gets_json_and_variables_and_nothing_is_run_by_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out.json"
    source = (
        "import json, os, sys; found = {k: v for k, v in os.environ.items() if k.startswith('ACQSTREAM_')};"
        "json.dump([json.load(sys.stdin), found, sys.argv[2:]], open(sys.argv[1], 'w'))"
    )
    run_command(python(source, str(out), "$HOME", "a b"), NOTICE, 30.0)
    content, variables, arguments = json.loads(out.read_text())
    assert content == NOTICE.as_dict()
    assert variables["ACQSTREAM_KIND"] == "paused"
    assert variables["ACQSTREAM_ACQUISITION"] == EVIL
    assert variables["ACQSTREAM_TEXT"] == NOTICE.text
    assert variables["ACQSTREAM_PATH"] == "/data/cells"
    assert arguments == ["$HOME", "a b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json"]


def test_a_command_that_reads_nothing_is_fine() -> None:
    run_command(python("pass"), NOTICE, 30.0)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (python("import sys; sys.exit('token=s3cret')"), "ended with 1; it said 1[34] bytes, which may hold secrets"),
        (("/nowhere/at/all",), "cannot be started"),
    ],
)
def test_a_command_that_fails(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(NotSent, match=why) as raised:
        run_command(arguments, NOTICE, 30.0)
    assert "s3cret" not in str(raised.value)


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = (
        "import os, subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}'); time.sleep(600)"
    )
    numbers: list[str] = []
    for limit_s in (4.0, 16.0, 64.0):  # on a busy machine the first one ends before its child is there
        with pytest.raises(NotSent, match=f"did not end within {limit_s:g} s"):
            run_command(python(source, str(pids)), NOTICE, limit_s)
        if pids.exists() and len(numbers := pids.read_text().split()) == 2:
            break
    assert len(numbers) == 2
    until(lambda: not any(_lives(int(one)) for one in numbers), "both have ended")


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Receiver(ThreadingHTTPServer):
    """A local server that keeps what it gets; `answers` are the codes of its answers, the last one for all others."""

    daemon_threads = True

    def __init__(self, *answers: int, before: Callable[[BaseHTTPRequestHandler], None] | None = None) -> None:
        self.answers = list(answers)
        self.before = before
        self.bodies: list[Any] = []
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?room=3"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.headers["Content-Type"], json.loads(body)))
        self.server.paths.append(self.path)
        if self.server.before is not None:
            self.server.before(self)
        answers = self.server.answers
        code = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(code)
        self.send_header("Content-Length", "0")
        if code // 100 == 3:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # the client has given up

    def log_message(self, *_arguments: object) -> None:
        return


def waiting_for(release: threading.Event) -> Callable[[BaseHTTPRequestHandler], None]:
    """A server's delay until `release` is set."""

    def wait(_handler: BaseHTTPRequestHandler) -> None:
        release.wait(60)

    return wait


def has_sent(sender: NoticeSender, count: int) -> bool:
    return sender.n_sent == count


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    made: list[Receiver] = []
    yield made
    for one in made:
        one.shutdown()
        one.server_close()


def test_an_address_gets_json(receivers: list[Receiver]) -> None:
    receivers.append(Receiver(204))
    post(receivers[0].url, NOTICE, 10.0)
    ((content_type, body),) = receivers[0].bodies
    assert content_type == "application/json"
    assert body == {**NOTICE.as_dict(), "content": NOTICE.text}
    assert receivers[0].paths == ["/hook?room=3"]


def test_a_redirection_is_not_followed(receivers: list[Receiver]) -> None:
    receivers.append(Receiver(307))
    with pytest.raises(NotSent, match="answered 307"):
        post(receivers[0].url, NOTICE, 10.0)
    assert receivers[0].paths == ["/hook?room=3"]


def test_an_answer_that_comes_byte_by_byte_is_bounded(receivers: list[Receiver]) -> None:
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        try:
            for byte in b"HTTP/1.1 200 OK\r\nX: " + 10_000 * b"a":
                handler.wfile.write(bytes([byte]))
                if ended.wait(0.05):
                    return
        except OSError:
            return

    receivers.append(Receiver(200, before=drip))
    with pytest.raises(NotSent, match="no answer within 1 s"):
        post(receivers[0].url, NOTICE, 1.0)
    ended.set()


def test_no_server() -> None:
    with pytest.raises(NotSent, match="ConnectionRefusedError"):
        post("http://127.0.0.1:9/", NOTICE, 10.0)


def test_a_certificate_is_checked(receivers: list[Receiver]) -> None:
    """A server that speaks no TLS, or with a certificate of nobody, gets no notice."""
    receivers.append(Receiver(200))
    with pytest.raises(NotSent, match="SSL"):
        post(f"https://127.0.0.1:{receivers[0].server_port}/", NOTICE, 10.0)
    assert receivers[0].bodies == []


def test_attempts_are_repeated_and_bounded(receivers: list[Receiver]) -> None:
    receivers.append(Receiver(503, 200))
    sender = NoticeSender(AddressTarget(receivers[0].url), QUICK)
    sender.put(notice(1))
    until(lambda: sender.n_sent == 1, "the second attempt succeeds")
    assert len(receivers[0].bodies) == 2
    receivers.append(Receiver(500))
    other = NoticeSender(AddressTarget(receivers[1].url), QUICK)
    other.put(notice(1))
    until(lambda: other.n_failed == 1, "all attempts fail")
    assert len(receivers[1].bodies) == 1 + len(QUICK.pauses_s)
    sender.close(5.0)
    other.close(5.0)


def test_notices_come_in_order(receivers: list[Receiver]) -> None:
    receivers.append(Receiver(200))
    sender = NoticeSender(AddressTarget(receivers[0].url), QUICK)
    for number in range(20):
        sender.put(notice(number))
    sender.close(30.0)
    assert [body["text"] for _, body in receivers[0].bodies] == [str(number) for number in range(20)]
    assert sender.n_sent == 20


def test_a_target_that_hangs_fills_no_memory_and_delays_no_other(receivers: list[Receiver]) -> None:
    release = threading.Event()
    receivers += [Receiver(200, before=waiting_for(release)), Receiver(200)]
    slow, quick = (NoticeSender(AddressTarget(one.url), SendLimits(attempt_s=60.0)) for one in receivers)
    slow.put(notice(0))
    until(lambda: receivers[0].bodies, "the slow one is asked")
    for number in range(1, 3 * MAX_WAITING):
        slow.put(notice(number))
        quick.put(notice(number))
        until(partial(has_sent, quick, number), "the quick one is not delayed")
    assert slow.n_dropped == 2 * MAX_WAITING - 1
    release.set()
    until(lambda: slow.n_sent == MAX_WAITING + 1, "the latest ones are sent")
    assert [body["text"] for _, body in receivers[0].bodies][-1] == str(3 * MAX_WAITING - 1)
    slow.close(5.0)
    quick.close(5.0)


def test_the_end_waits_no_longer_than_it_is_given(receivers: list[Receiver]) -> None:
    release = threading.Event()
    receivers.append(Receiver(200, before=waiting_for(release)))
    sender = NoticeSender(AddressTarget(receivers[0].url), SendLimits(attempt_s=60.0))
    sender.put(notice(0))
    until(lambda: receivers[0].bodies, "it is asked")
    sender.close(0.1)
    assert sender._thread.is_alive()
    release.set()
    sender._thread.join()


def test_a_command_is_a_target(tmp_path: Path) -> None:
    got = tmp_path / "got"
    source = "import sys; line = sys.stdin.read(); open(sys.argv[1], 'a').write(line + '\\n')"
    sender = NoticeSender(CommandTarget(python(source, str(got))), QUICK)
    sender.put(NOTICE)
    sender.put(notice(2))
    sender.close(30.0)
    assert [json.loads(line)["text"] for line in got.read_text().splitlines()] == [NOTICE.text, "2"]
