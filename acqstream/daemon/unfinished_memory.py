"""Attributes growth of the daemon's memory to connections that send endless messages.

libzmq keeps all parts of a message until the last one has arrived. A part of 2 bytes on the wire takes 64 bytes of
memory, one that arrives alone takes up to 18 KiB, and the kernel counts no bytes of local sockets. So the memory of the
process is measured. Its growth is charged to the connections that sent meanwhile, until their message is complete.
"""

from __future__ import annotations

import select
from collections.abc import Collection

from acqstream.daemon.process_memory import ProcessMemory
from acqstream.daemon.watched_connection import WatchedConnection
from acqstream.storage.platform.capabilities import has_epoll

SLACK_BYTES = 192 * 2**20  # of growth, besides the memory of acquisitions
TIE_BYTES = 192 * 2**20  # further growth, until one of several suspects is chosen
MAX_COST_OF_A_BYTE = 512  # memory for one byte on the wire: a part of 35 bytes that arrives alone
MEASURE_S = 0.05  # interval of measurements: one takes up to half a millisecond
_ARRIVAL = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET if has_epoll() else 0


class UnfinishedMemory:
    """Measures at each `update`. Used by the loop only, on Linux.

    is_alarmed: one connection has made the memory grow by half of SLACK_BYTES. checks_suspected counts the checks in a
    row that had a suspect.
    """

    def __init__(self) -> None:
        self.is_alarmed = False
        self.checks_suspected = 0
        self._senders: set[WatchedConnection] = set()  # of complete messages since the last update
        self._measured_s = 0.0
        self._memory = ProcessMemory()
        self._unexplained_bytes = self._memory.used_bytes()
        # Edge-triggered, for readable and writable: reports each arrival, also of bytes that libzmq has read since.
        self._arrivals = select.epoll()

    def add(self, connection: WatchedConnection) -> None:
        connection.low_bytes = self._unexplained_bytes
        if not connection.is_tcp:
            self._arrivals.register(connection.handle, _ARRIVAL)

    def remove(self, connection: WatchedConnection) -> None:
        """Forget a connection. Call it before its handle is closed."""
        if not connection.is_tcp:
            self._arrivals.unregister(connection.handle)

    def note_senders(self, senders: Collection[WatchedConnection]) -> None:
        """Note connections that sent a complete message."""
        self._senders.update(senders)

    def is_due(self, now_s: float) -> bool:
        """Return True if it is time for `update`: always after an alarm, else every MEASURE_S."""
        return self.is_alarmed or now_s - self._measured_s >= MEASURE_S

    def update(self, connections: Collection[WatchedConnection], now_s: float) -> None:
        """Measure, and charge the growth to the connections that sent and whose message is not complete."""
        self._measured_s = now_s
        complete, self._senders = self._senders, set()
        used, before = self._memory.used_bytes(), self._unexplained_bytes
        arrived = {descriptor for descriptor, _ in self._arrivals.poll(0, max(1, len(connections)))}
        senders = []
        for one in connections:
            read = max(one.bytes_read, one.read_bytes()) if one.is_tcp else 0
            if one in complete:
                one.checks_with_message += 1
                one.blame_bytes = one.blame_share_bytes = one.bytes_unfinished = 0
            elif read > one.bytes_read or one.handle.fileno() in arrived:
                one.bytes_unfinished += read - one.bytes_read
                senders.append(one)
            one.bytes_read = read
            used -= one.bytes_unfinished  # explained by large parts
        self._unexplained_bytes = used
        for one in senders:
            one.blame_bytes = max(0, one.blame_bytes + used - before)
            one.blame_share_bytes = max(0, one.blame_share_bytes + (used - before) // len(senders))
        # Memory that comes and goes belongs to no connection. Without this bound its increases alone would add up, and
        # be charged to connections that send little.
        for one in connections:
            one.low_bytes = used if one in complete else min(one.low_bytes, used)
            one.blame_bytes = min(one.blame_bytes, used - one.low_bytes)
            one.blame_share_bytes = min(one.blame_share_bytes, used - one.low_bytes)

    def suspect(self, connections: Collection[WatchedConnection], lent_bytes: int) -> WatchedConnection | None:
        """Return the connection that made the memory grow too much; None if none did, or the choice is unclear.

        Among several, one without an acquisition comes first, then one with fewer messages. lent_bytes is the memory of
        the acquisitions, which honest producers never exceed. Updates is_alarmed and checks_suspected.
        """
        self.is_alarmed = any(one.blame_bytes > SLACK_BYTES // 2 for one in connections)
        suspect = self._suspect(connections, lent_bytes)
        self.checks_suspected = 0 if suspect is None else self.checks_suspected + 1
        return suspect

    def _suspect(self, connections: Collection[WatchedConnection], lent_bytes: int) -> WatchedConnection | None:
        excess = sum(one.blame_share_bytes for one in connections) - SLACK_BYTES - lent_bytes
        if excess <= 0:
            return None
        largest = max(one.blame_bytes for one in connections)
        suspects = [one for one in connections if one.blame_bytes > largest // 2 and _is_plausible(one)]
        suspects = [one for one in suspects if not one.is_opened] or suspects
        if not suspects or (len(suspects) > 1 and excess <= TIE_BYTES):
            return None
        return min(suspects, key=lambda one: (one.checks_with_message, -one.blame_bytes))

    def close(self) -> None:
        self._memory.close()
        self._arrivals.close()


def _is_plausible(one: WatchedConnection) -> bool:
    return not one.is_cut_off and (not one.is_tcp or one.bytes_unfinished * MAX_COST_OF_A_BYTE >= one.blame_bytes // 2)
