"""Requests that cannot be parsed are counted in the log, and what they held is not there."""

from __future__ import annotations

import errno
import logging
import socket
from contextlib import suppress

import pytest

from acqstream.web.web_server import LOGGERS, MalformedRequests
from tests.web.web_process import Site, web_process

TOKEN = "a-token-of-some-length"
START, END = f"GET /t/{TOKEN}/", " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MALFORMED = [
    f"{START} x{END}\r\n",
    f"{START}\x01{END}\r\n",
    f"{START} HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    f"GE\x00T /t/{TOKEN}/{END}\r\n",
    f"{START}{END}Content-Length: x\r\n\r\n",
    f"{START}{END}Ho st: 127.0.0.1\r\n\r\n",
    f"{START}{'a' * 9000}{END}\r\n",
    f"GET http://[::1/t/{TOKEN}/{END}\r\n",
    f"GET //[/t/{TOKEN}/{END}\r\n",
    f"{START}{END}Authorization: Bearer {TOKEN}\x01\r\n\r\n",
    f"{START}data/x%ZZ{END}\r\n",
    f"/t/{TOKEN}/\r\n\r\n",
    f"{START}api/datasets/\xff{END}\r\n",
    f"CONNECT /t/{TOKEN}/{END}\r\n",
    f"{START}{END}Expect: x\r\n\r\n",
]


def send(site: Site, content: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.port), 5) as one, suppress(OSError):
        one.sendall(content)
        one.settimeout(2)
        while one.recv(65536):
            pass


def test_the_log_has_no_token_and_stays_small(data, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    log = tmp_path / "log"
    with web_process(data, "--token-file", str(tmp_path / "token"), log=log) as site:
        for request in MALFORMED:
            send(site, request.encode("latin1"))
        for _ in range(1000):
            send(site, b"GET / HTTP/1.1\r\nHo st: x\r\n\r\n")
        assert site.ask("/", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
    text = log.read_text(errors="replace")
    assert "requests could not be parsed" in text
    assert TOKEN not in text
    assert len(text) < 10_000


def test_they_are_counted_once_a_minute_and_other_errors_pass(caplog: pytest.LogCaptureFixture) -> None:
    from aiohttp.http_exceptions import BadHttpMessage

    times = iter([0.0, 1.0, 59.0, 61.0])
    logger, malformed = logging.getLogger(LOGGERS[0]), MalformedRequests(lambda: next(times))
    logger.addFilter(malformed)
    try:
        for _ in range(4):
            logger.error("Error handling request", exc_info=BadHttpMessage("secret"))
        logger.error("a fault", exc_info=ValueError("here"))
    finally:
        logger.removeFilter(malformed)
    counts = [record.getMessage().split()[0] for record in caplog.records]
    assert counts == ["1", "3", "a"]
    assert "secret" not in caplog.text
    assert "here" in caplog.text


def test_a_lack_of_descriptors_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio writes a traceback for each connection that it cannot accept."""
    found = logging.getLogger(LOGGERS[1])
    counted = MalformedRequests(lambda: 0.0)
    found.addFilter(counted)
    try:
        for _ in range(100):
            try:
                raise OSError(errno.EMFILE, "Too many open files")
            except OSError:
                found.exception("socket.accept() out of system resource")
        try:
            raise OSError(errno.EIO, "Input/output error")
        except OSError:
            found.exception("another one")
    finally:
        found.removeFilter(counted)
    assert [record.getMessage() for record in caplog.records] == [
        "1 connections could not be accepted for want of descriptors (`ulimit -n`) since the last such line",
        "another one",
    ]
