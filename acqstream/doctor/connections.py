"""Check: can a daemon listen here? Its port, and the folder of its local sockets."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from acqstream.doctor.examination import Examination
from acqstream.doctor.verdict import CheckVerdict, ok, problem, warning
from acqstream.errors import ConfigError

NAME = "connections"
_ADDRESS = ("127.0.0.1", 5271)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """is_port_free: the default port; has_daemon: a daemon answers; runtime_problem: why the folder is unusable."""

    port: int = _ADDRESS[1]
    is_port_free: bool = True
    has_daemon: bool = False
    runtime: str = ""
    runtime_problem: str = ""


def gather(examination: Examination) -> ConnectionFacts:
    """Try the port and the runtime folder, as the daemon does."""
    from acqstream.daemon.runtime_folder import make_runtime_folder

    runtime, runtime_problem = examination.config.runtime.absolute(), ""
    try:
        make_runtime_folder(runtime)
    except ConfigError as error:
        runtime_problem = str(error)
    return ConnectionFacts(
        is_port_free=_is_free(),
        has_daemon=examination.status is not None,
        runtime=str(runtime),
        runtime_problem=runtime_problem,
    )


def judge(facts: ConnectionFacts) -> CheckVerdict:
    """Without the folder no daemon starts; without the port only one at another port."""
    if facts.runtime_problem:
        return problem(
            f"No daemon can start: {facts.runtime_problem}.", "Do that, or set `runtime` in its configuration."
        )
    if facts.is_port_free or facts.has_daemon:
        state = "free" if facts.is_port_free else "the port of a daemon"
        return ok(f"Port {facts.port} is {state}; local sockets go into {facts.runtime}.")
    return warning(
        f"Port {facts.port} is taken by another program.",
        "Use create(data=DIR), which takes any port, or give the daemon another --endpoint.",
    )


def _is_free() -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(_ADDRESS)
        except OSError:
            return False
    return True
