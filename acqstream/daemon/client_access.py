"""Checks the CURVE keys of clients on other machines, by ZAP (rfc.zeromq.org/spec/27).

Only listeners bound after `secure` require keys; those bound before stay open to this machine. A client without a known
key gets no answer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import zmq
from zmq.auth import Authenticator, load_certificate

from acqstream.errors import AcqStreamError, ConfigError, CorruptDataset
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.platform import exposure

logger = logging.getLogger("acqstream.daemon")

ZAP_DOMAIN = b"acqstream"
_MAX_KEY_FILE_BYTES = 64 * 1024


class ClientAccess:
    """Answers ZeroMQ's questions about clients, in a thread of its own, from `start` to `stop`.

    server_key is the daemon's secret key file. client_keys is a folder with the public key files (*.key) of all
    clients, read again for each connection. Raises ConfigError if they cannot be used.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], server_key: Path, client_keys: Path) -> None:
        if not client_keys.is_dir():
            raise ConfigError(
                f"client_keys: {client_keys} is not a folder; put the clients' public key files (*.key) there"
            )
        self._public, self._secret = _load_server_key(server_key)
        self._authenticator = _Authenticator(client_keys, context)
        self._end, self._seen_end = _pair(context)
        self._thread = threading.Thread(target=self._answer, name="client-access", daemon=True)

    def start(self) -> None:
        """Raises ZMQError if another part of this context answers already."""
        self._authenticator.start()
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._end.send(b"")
            self._thread.join()
        self._authenticator.stop()
        self._end.close()
        self._seen_end.close()

    def secure(self, socket: zmq.Socket[bytes]) -> None:
        """Require a known key of clients of all endpoints that `socket` binds from here on."""
        socket.curve_server = True
        socket.curve_publickey = self._public
        socket.curve_secretkey = self._secret
        socket.zap_domain = ZAP_DOMAIN
        socket.zap_enforce_domain = 1  # without a handler libzmq would admit every client

    def _answer(self) -> None:
        # asyncio waits for no socket here: its usual loop on Windows cannot wait for ZeroMQ.
        questions, poller = self._authenticator.zap_socket, zmq.Poller()
        for socket in (questions, self._seen_end):
            poller.register(socket, zmq.POLLIN)
        with asyncio.Runner() as runner:
            while self._seen_end not in dict(poller.poll()):
                runner.run(self._authenticator.handle_zap_message(questions.recv_multipart()))


class _Authenticator(Authenticator):
    """Looks up keys in a folder, and logs the clients that it denies."""

    def __init__(self, folder: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        super().__init__(context)
        self._folder = folder
        self._address = ""
        self.configure_curve_callback(ZAP_DOMAIN.decode(), self)

    async def handle_zap_message(self, msg: list[bytes]) -> None:
        self._address = msg[3].decode(errors="replace") if len(msg) > 3 else ""
        await super().handle_zap_message(msg)

    def callback(self, _domain: str, key: bytes) -> bool:
        """Return True if the client with this public key (Z85) may connect."""
        if key in self._known_keys():
            return True
        logger.warning("denied a connection from %s: no file in %s has its key %s", self._address, self._folder, key)
        return False

    def _known_keys(self) -> set[bytes]:
        keys = set()
        for path in sorted(self._folder.glob("*.key")):
            try:
                read_small_file(path, _MAX_KEY_FILE_BYTES)  # reading a pipe would block all other clients
                keys.add(load_certificate(path)[0])
            except (AcqStreamError, OSError, ValueError) as error:
                logger.warning("cannot read client key %s: %s", path, error)
        return keys


def _pair(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Two sockets that are connected."""
    first, second = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    endpoint = f"inproc://client-access-{id(first)}"
    first.bind(endpoint)
    second.connect(endpoint)
    return first, second


def _load_server_key(path: Path) -> tuple[bytes, bytes]:
    try:
        if reason := exposure(path):
            raise ConfigError(f"server_key: {reason}, and make new keys")
        read_small_file(path, _MAX_KEY_FILE_BYTES)
        public, secret = load_certificate(path)
    except (CorruptDataset, OSError, ValueError) as error:
        raise ConfigError(f"server_key: cannot read {path}: {error}; make one with: acqstream keys server") from error
    if secret is None:
        raise ConfigError(f"server_key: {path} has no secret key; use the file that ends with .key_secret")
    return public, secret
