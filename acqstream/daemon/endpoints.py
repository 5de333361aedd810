"""The daemon's sockets, their endpoints and limits, and the CURVE keys of clients on other machines.

Keys are checked by ZAP (rfc.zeromq.org/spec/27). Only listeners bound after `ClientAccess.secure` require keys; those
bound before stay open to this machine. A client without a known key gets no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import zmq
from zmq.auth import Authenticator, load_certificate

from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.runtime_folder import make_runtime_folder
from acqstream.daemon.shared_memory_server import SharedMemoryServer
from acqstream.errors import AcqStreamError, ConfigError, CorruptDataset
from acqstream.protocol.shared_memory import socket_identity
from acqstream.storage import local_sockets
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.local_sockets import private_folder, remove_port_key, write_port_key
from acqstream.storage.platform import exposure, memory_listener
from acqstream.storage.platform.capabilities import has_local_sockets, port_release_s

if TYPE_CHECKING:
    from acqstream.daemon.runtime_folder import ShutdownFile

logger = logging.getLogger("acqstream.daemon")

SOCKET_BUFFER_BYTES = 4 * 2**20
HANDSHAKE_MS = 3000
KEEPALIVE_S = 10, 5, 3  # seconds of silence, then the interval of probes, and their number
UNREACHABLE_AFTER_MS = 25_000  # the sum of those; also the limit for data that the peer does not acknowledge
BIND_RETRY_S = 0.1
LOOK_INTERVAL_S = 1.0
MAX_IPC_PATH = 100  # sun_path holds 107 bytes
IPC_SUFFIX, MEMORY_SUFFIX, EVENTS_SUFFIX = ".sock", ".memory", ".events"
SHUTDOWN_SUFFIX = ".shutdown"
_QUEUE_IN = 65_536  # messages that may wait per peer, far more than a window allows: docs/decisions/018
_QUEUE_OUT = 1000
MAX_SUBSCRIPTION_BYTES = 4096  # a topic is the id of a dataset
_LOCAL_DOMAIN = b"acqstream-local"
"""ZAP domain of the local listeners, so that libzmq refuses peers with ZMTP 1.0 or 2.0. docs/decisions/020."""


class Endpoints:
    """A ROUTER for producers on every endpoint, an XPUB for events, and the server for shared memory.

    Raises ConfigError that names the endpoint that cannot be bound; then no socket stays bound.
    """

    def __init__(self, config: DaemonConfig) -> None:
        self._context = zmq.Context()
        self._context.linger = 0
        self.producers = self._router(config)
        self.events = self._context.socket(zmq.XPUB)
        _refuse_old_protocols(self.events)
        self.events.sndhwm = _QUEUE_OUT
        self.events.maxmsgsize = MAX_SUBSCRIPTION_BYTES
        self.ipc = ""
        self.memory_server: SharedMemoryServer | None = None
        self.remote: list[str] = []
        self._access: ClientAccess | None = None
        self._names: dict[Path, zmq.Socket[bytes]] = {}  # of local sockets
        self._runtime = config.runtime.absolute()
        self._looked_at_s, self._trouble = time.monotonic(), ""
        self.bound: list[str] = []
        self._key = zmq.curve_keypair() if config.has_key else None
        try:
            for socket in (self.producers, self.events) if self._key is not None else ():
                socket.curve_server, socket.curve_secretkey = True, self._key[1]  # type: ignore[index]
            self.bound = [self._bind(self.producers, endpoint) for endpoint in config.endpoints]
            self.ipc = next((f"ipc://{path}" for path in self._names), "")
            if config.ipc and not self.ipc and zmq.has("ipc"):
                self.ipc = self._bind(self.producers, f"ipc://{self._socket_path(config, IPC_SUFFIX)}")
            if config.shared_memory and SharedMemoryServer.is_possible():
                has_name = memory_listener.HAS_NAME
                self.memory_server = SharedMemoryServer(self._socket_path(config, MEMORY_SUFFIX) if has_name else None)
            self._bind_remote(config)  # after the local ones: listeners bound from here on require keys
            self.events_endpoint = self._bind(self.events, self._events_name(config))
            self._note_key(config)
        except BaseException:
            self.close()
            raise

    @property
    def all(self) -> list[str]:
        """Endpoints for producers."""
        return list(dict.fromkeys([*self.bound, *self.remote, *([self.ipc] if self.ipc else [])]))

    def identities(self) -> dict[str, str]:
        """Return the identity of each local socket by path. Clients compare it with the file that they see."""
        memory_path = self.memory_server.path if self.memory_server is not None else None
        paths = [*self._names, *([memory_path] if memory_path is not None else [])]
        return {str(path): socket_identity(path) for path in paths}

    def local_path(self, config: DaemonConfig, suffix: str) -> Path:
        """Return a path in the runtime directory that is this daemon's own. Creates the directory if it is missing."""
        port, name = self.bound[0].rpartition(":")[2], Path(self.bound[0].removeprefix("ipc://"))
        runtime = config.runtime.absolute()
        make_runtime_folder(runtime)
        own = name.stem if name.parent == runtime else os.getpid()
        return runtime / f"{port if port.isdigit() else own}{suffix}"

    def tick(self, shutdown_file: ShutdownFile, now_s: float) -> None:
        """Make the runtime folder and what is in it again if it was removed or renamed. Connected clients stay."""
        if now_s - self._looked_at_s < LOOK_INTERVAL_S:
            return
        self._looked_at_s = now_s
        try:
            if not self._runtime.is_dir():
                make_runtime_folder(self._runtime)
            for path, socket in self._names.items():
                if not path.exists():
                    logger.warning("the socket %s was removed; it is made again", path)
                    _bind(socket, f"ipc://{path}")  # beside the old one, whose connections stay
            if self.memory_server is not None:
                self.memory_server.restore()
            shutdown_file.restore()
        except (ConfigError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.error("new clients do not find this daemon's local sockets: %s", error)  # noqa: TRY400

    def close(self, linger_ms: int = 0) -> None:
        """Close all sockets, waiting up to linger_ms for last messages to leave. Repeated calls do nothing."""
        while self._names:  # first: once tcp is closed, the next daemon may bind these names
            local_sockets.remove(self._names.popitem()[0])
        server, self.memory_server = self.memory_server, None
        if server is not None:
            server.close()
        if self._access is not None:
            self._access.stop()
        if self._key is not None and self.bound:
            with contextlib.suppress(OSError):
                remove_port_key(_port_of(self.bound[0]))
        self._context.destroy(linger=linger_ms)

    def _router(self, config: DaemonConfig) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        socket.router_mandatory = 1  # sending to a lost producer raises EHOSTUNREACH
        socket.maxmsgsize = config.max_payload_mb * 2**20
        socket.rcvhwm = _QUEUE_IN
        socket.sndhwm = _QUEUE_OUT
        socket.rcvbuf = SOCKET_BUFFER_BYTES
        socket.tcp_keepalive = 1  # and no heartbeats of ZeroMQ: docs/decisions/018
        socket.tcp_keepalive_idle, socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = KEEPALIVE_S
        socket.tcp_maxrt = UNREACHABLE_AFTER_MS
        socket.handshake_ivl = HANDSHAKE_MS
        _refuse_old_protocols(socket)
        socket.ipv6 = any("[" in endpoint for endpoint in (*config.endpoints, *config.remote))
        return socket

    def _bind_remote(self, config: DaemonConfig) -> None:
        if not config.remote or config.server_key is None or config.client_keys is None:
            return
        if not zmq.has("curve"):
            raise ConfigError("remote: this ZeroMQ library was built without CURVE; install one that has it")
        self._access = ClientAccess(self._context, config.server_key, config.client_keys)
        self._access.start()
        self._access.secure(self.producers)
        self.remote = [_bind(self.producers, endpoint) for endpoint in config.remote]

    def _note_key(self, config: DaemonConfig) -> None:
        """Keep the key of the port where this user's programs look for it; an old key would keep them out."""
        try:
            if self._key is not None:
                make_runtime_folder(private_folder())
                write_port_key(_port_of(self.bound[0]), self._key[0])
            elif not has_local_sockets():
                for port in filter(None, map(_port_of, self.bound)):
                    remove_port_key(port)
        except OSError as error:
            raise ConfigError(f"cannot keep the key of {self.bound[0]}: {error}") from error

    def _events_name(self, config: DaemonConfig) -> str:
        """Return the endpoint of events: no tcp if the configuration has none, since all users reach loopback ports."""
        if all(endpoint.startswith("ipc:") for endpoint in config.endpoints):
            return f"ipc://{self._socket_path(config, EVENTS_SUFFIX)}"
        return "tcp://127.0.0.1:*"

    def _bind(self, socket: zmq.Socket[bytes], endpoint: str) -> str:
        """Bind to a port, or to a name in the file system; return the endpoint with its real port."""
        name = endpoint.removeprefix("ipc://")
        is_name = name != endpoint and name != "*" and not name.startswith("@")
        if is_name:
            self._check_path(Path(name))
            if Path(name).parent == self._runtime:
                make_runtime_folder(self._runtime)
            local_sockets.take_over(Path(name))
        bound = _bind(socket, endpoint)
        if is_name:
            self._names[Path(name).absolute()] = socket
        return bound

    def _socket_path(self, config: DaemonConfig, suffix: str) -> Path:
        path = self.local_path(config, suffix)
        self._check_path(path)
        return path

    def _check_path(self, path: Path) -> None:
        if len(os.fsencode(path)) > MAX_IPC_PATH:
            text = (
                f"socket path {path} is too long; expected at most {MAX_IPC_PATH} bytes: set `runtime` to a shorter one"
            )
            raise ConfigError(text)


def _port_of(endpoint: str) -> int:
    """The port; 0 of a local socket."""
    port = endpoint.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def _refuse_old_protocols(socket: zmq.Socket[bytes]) -> None:
    """Accept ZMTP 3 only. An HTTP request parses as ZMTP 1.0, so any web page could send messages."""
    socket.zap_domain = _LOCAL_DOMAIN
    socket.zap_enforce_domain = (
        0  # without `remote` the context has no ZAP handler; libzmq must admit peers all the same
    )


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Bind, and return the endpoint with its real port.

    A port in use is tried again while the system may not have released it from a daemon that was killed.
    """
    latest_s = time.monotonic() + port_release_s()
    while True:
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or time.monotonic() >= latest_s:
                raise ConfigError(f"cannot listen on {endpoint}: {error}; is another daemon running there?") from error
            time.sleep(BIND_RETRY_S)
        else:
            return bytes(socket.last_endpoint).rstrip(b"\0").decode()  # type: ignore[arg-type]


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
