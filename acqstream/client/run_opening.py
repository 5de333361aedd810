"""Opens the acquisition of a run at its daemon, for the first time and after a lost contact."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from acqstream.client.connect import Connector, OpenConnection
from acqstream.client.connection_settings import ConnectionSettings
from acqstream.client.daemon_contact import RunWarning
from acqstream.client.daemon_errors import failure, refusal
from acqstream.client.frame_sender import FrameSender
from acqstream.client.link import Link, no_daemon
from acqstream.client.outbox import BATCH_BYTES
from acqstream.client.run_state import RunState
from acqstream.errors import AcqStreamError, ConfigError, DaemonUnavailable
from acqstream.protocol.replies import Closed, Error, Opened, Welcome

log = logging.getLogger(__name__)


def log_warning(name: str, warning: RunWarning | None) -> None:
    """Log a warning, if there is one, of the run called `name`."""
    if warning is not None:
        log.warning("run %s: %s (%s)", name, warning.text, warning.code)


class RunOpener:
    """Opens the acquisition and remembers the way to the daemon. Used by the connection's thread.

    Any thread may read endpoint, daemon_endpoint, welcome and transport_why.
    """

    def __init__(self, settings: ConnectionSettings, state: RunState, sender: FrameSender) -> None:
        self.settings = settings
        self.welcome: Welcome | None = None
        self.endpoint = settings.endpoint  # the one in use: tcp may have become ipc
        self.daemon_endpoint = settings.endpoint  # the one to ask at first, where the daemon was reached
        self.transport_why = ""  # why frames go as messages; empty where they lie in shared memory
        self._state = state
        self._sender = sender

    def open_first(self, connector: Connector) -> Link | None:
        """Create the acquisition; None if the run was stopped or the daemon ended it. Raises as `create`."""
        name, patience_s = self.settings.name, self.settings.patience_s
        request = {"ds": self.settings.dataset_id, **self.settings.request}
        connection = connector.connect_patiently(request, deadline=time.monotonic() + patience_s, answer_s=patience_s)
        if connection is None:
            if connector.stopped():
                return None
            if connector.last_refusal is not None:
                raise refusal(connector.last_refusal, name)
            if connector.is_turned_away:
                raise DaemonUnavailable(
                    f"the daemon at {connector.endpoint} closes each connection at once: it has as many as it may "
                    "(max_connections, or the limit of open files that its log names), or is no daemon; end other runs"
                )
            raise self._not_opened() if connector.is_asked else no_daemon(connector.endpoint)
        if connection.memory_why and self.settings.transport == "shm":
            connection.link.close()
            raise ConfigError(f"transport='shm': {connection.memory_why}; use transport='auto'")
        self.daemon_endpoint = connector.endpoint  # before the run counts as open: its owner may ask there at once
        return self._admit(connection, lambda error: refusal(error, name))

    def open_again(self, connector: Connector) -> Link | None:
        """Resume the acquisition; None if the run was stopped or has ended. Raises DaemonUnavailable."""
        settings, opened = self.settings, self._state.opened
        assert opened is not None  # there was a link
        log.warning("run %s: contact with %s is lost; connecting again", settings.name, settings.endpoint)
        deadline = self._state.contact.heard_at + settings.patience_s
        epoch = self._state.contact.epoch + 1
        request = {**settings.request, "ds": opened.dataset_id, "resume": True, "on_exists": "error", "epoch": epoch}
        connection = connector.connect_patiently(request, deadline=deadline, answer_s=max(settings.silence_s, 0.1))
        if connection is not None:
            self.daemon_endpoint = connector.endpoint
            return self._admit(connection, lambda error: failure(error, opened.path))
        if connector.stopped():
            return None
        raise self._out_of_contact()

    def _admit(self, connection: OpenConnection, error_of: Callable[[Error], AcqStreamError]) -> Link | None:
        """Take in the answer to `open`; the link for frames, None if the acquisition has ended."""
        answer, warning = connection.answer, None
        try:
            if isinstance(answer, Error):
                raise error_of(answer)
            with self._state.condition:
                if isinstance(answer, Opened):
                    if self.settings.transport == "shm" and connection.memory_why and not self.transport_why:
                        text = f"frames are sent as messages from now on: {connection.memory_why}"
                        warning = self._state.report.add_warning("no_shared_memory", text, time.time())
                    self.welcome, self.endpoint = connection.welcome, connection.link.endpoint
                    self.transport_why = connection.memory_why
                    self._state.outbox.message_bytes = min(BATCH_BYTES, connection.welcome.max_payload)
                    self._state.open(answer, same_machine=connection.same_machine, now=time.monotonic())
                    # Not the answer's: the first one names the acquisition that a resumed run continues.
                    assert self._state.opened is not None
                    self._sender.begin(self._state.opened.dataset_id, answer.memory)
                else:
                    self._state.receive(answer, time.monotonic(), time.time())
                self._state.condition.notify_all()
        except AcqStreamError:
            connection.link.close()
            raise
        log_warning(self.settings.name, warning)
        if isinstance(answer, Closed):
            connection.link.close()
            return None
        return connection.link

    def _not_opened(self) -> DaemonUnavailable:
        name, seconds = self.settings.name, self.settings.patience_s
        return DaemonUnavailable(
            f"the daemon at {self.settings.endpoint} has not opened {name!r} within {seconds:g} s: its disk may stall. "
            f"{name!r} may exist later, without frames; resume=True continues it{self.settings.log_advice()}"
        )

    def _out_of_contact(self) -> DaemonUnavailable:
        unsafe = self._state.describe_unsafe()
        return DaemonUnavailable(
            f"no message from the daemon at {self.settings.endpoint} for {self.settings.patience_s:g} s{unsafe}"
            f"{self._state.contact.loss_reason}{self.settings.log_advice()}"
        )
