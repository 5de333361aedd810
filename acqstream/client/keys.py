"""Keys of a connection to another machine: CURVE, see zmq_curve(7)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from acqstream.client.default_endpoint import is_loopback
from acqstream.errors import AcqStreamError, ConfigError
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.files.boundary import distrust
from acqstream.storage.files.small_file import read_small_file
from acqstream.storage.local_sockets import read_port_key
from acqstream.storage.platform.capabilities import has_local_sockets

SERVER_KEY_VARIABLE = "ACQSTREAM_SERVER_KEY"
KEYS_VARIABLE = "ACQSTREAM_KEYS"
KEY_CHARACTERS = 40  # Z85
MAX_KEY_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """The daemon's public key and the client's own pair, each in Z85."""

    server: bytes
    public: bytes
    secret: bytes = field(repr=False)


def curve_keys(
    endpoint: str, server_key: str | os.PathLike[str] | None, keys: str | os.PathLike[str] | None
) -> CurveKeys | None:
    """The keys to use at `endpoint`; None for a connection without any.

    server_key is the daemon's public key, as a file or as text; keys the client's secret key file. Without
    both, ACQSTREAM_SERVER_KEY and ACQSTREAM_KEYS apply to tcp endpoints on other machines.
    Raises ConfigError naming the key that is missing or cannot be read.
    """
    if server_key is None and keys is None:
        if not endpoint.startswith("tcp:") or is_loopback(endpoint):
            return None
        server_key = os.environ.get(SERVER_KEY_VARIABLE) or None
        keys = os.environ.get(KEYS_VARIABLE) or None
        if server_key is None and keys is None:
            return None
    if server_key is None or keys is None:
        missing = f"server_key (or {SERVER_KEY_VARIABLE})" if server_key is None else f"keys (or {KEYS_VARIABLE})"
        raise ConfigError(f"{endpoint}: {missing} is missing; a connection with keys needs both")
    public, secret = _load(Path(keys))
    if secret is None:
        raise ConfigError(f"keys: {keys} has no secret key; name the file that ends with .key_secret")
    return CurveKeys(_server_key(server_key), public, secret)


def port_keys(endpoint: str) -> CurveKeys | None:
    """The keys for a daemon of this user's own at a port of loopback, which it has kept for this user alone.

    None where the daemon has no key. Raises ConfigError if it cannot be read.
    """
    port = endpoint.rpartition(":")[2]
    if has_local_sockets() or not is_loopback(endpoint) or not port.isdigit():
        return None
    try:
        server = read_port_key(int(port))
    except (AcqStreamError, OSError) as error:
        raise ConfigError(f"the key of {endpoint} cannot be read: {error}") from error
    if server is None:
        return None
    import zmq

    return CurveKeys(server, *zmq.curve_keypair())


def make_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """A new pair: NAME.key, to be given away, and NAME.key_secret, which only this user can read.

    Raises ConfigError if there are keys of that name, or a stranger could replace them; OSError if the folder cannot be
    written to.
    """
    from zmq.auth import create_certificates

    paths = folder / f"{name}.key", folder / f"{name}.key_secret"
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path} exists already; keys are not overwritten")
    mask = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if stranger := distrust(folder.absolute() / name):
            raise ConfigError(f"{folder}: {stranger}; name a folder of your own")
        write_private(paths[1], b"")  # first, as the content that follows keeps its access list
        create_certificates(folder, name)
    finally:
        os.umask(mask)
    return paths


def _server_key(value: str | os.PathLike[str]) -> bytes:
    text = os.fspath(value)
    if len(text) == KEY_CHARACTERS and not os.path.exists(text):
        return text.encode("ascii", "replace")
    return _load(Path(text))[0]


def _load(path: Path) -> tuple[bytes, bytes | None]:
    from zmq.auth import load_certificate

    try:
        read_small_file(path, MAX_KEY_FILE_BYTES)  # a pipe would not end
        public, secret = load_certificate(path)
    except (AcqStreamError, OSError, ValueError) as error:
        raise ConfigError(f"key file {path} cannot be read: {error}") from error
    if len(public) != KEY_CHARACTERS or len(secret or public) != KEY_CHARACTERS:
        raise ConfigError(f"key file {path}: a key has {KEY_CHARACTERS} characters")
    return public, secret
