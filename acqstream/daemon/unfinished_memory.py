"""Attributes growth of the daemon's memory to connections that send messages without end.

libzmq keeps all parts of a message until the last one is there. A part of 2 bytes on the wire takes 64 bytes of memory,
one that arrives alone takes up to 18 KiB, and the kernel counts no bytes of local sockets. So the memory of the process
is measured. Its growth is charged to the connections that sent meanwhile, until a message of theirs is complete.
"""

from __future__ import annotations

import select
from collections.abc import Collection

from acqstream.daemon.process_memory import ProcessMemory
from acqstream.daemon.watched_connection import WatchedConnection

SLACK_BYTES = 192 * 2**20  # of growth, besides what acquisitions may have on their way
TIE_BYTES = 192 * 2**20  # further growth, until one of several suspects is chosen
MAX_COST_OF_A_BYTE = 512  # memory for one byte on the wire: a part of 35 bytes that arrives alone
_ARRIVAL = select.EPOLLIN | select.EPOLLOUT | select.EPOLLET if hasattr(select, "epoll") else 0


class UnfinishedMemory:
    """Measures at each `update`. Used by the loop only, on Linux."""

    def __init__(self) -> None:
        self._memory = ProcessMemory()
        self._unexplained_bytes = self._memory.used_bytes()
        # Edge-triggered, for readable and writable: reports each arrival, also of bytes that libzmq has read since.
        self._arrivals = select.epoll()

    def add(self, one: WatchedConnection) -> None:
        one.low_bytes = self._unexplained_bytes
        if not one.is_tcp:
            self._arrivals.register(one.handle, _ARRIVAL)

    def remove(self, one: WatchedConnection) -> None:
        """Before its handle is closed."""
        if not one.is_tcp:
            self._arrivals.unregister(one.handle)

    def update(self, connections: Collection[WatchedConnection], heard: Collection[WatchedConnection]) -> None:
        """heard: a complete message of theirs was taken since the last update."""
        used, before = self._memory.used_bytes(), self._unexplained_bytes
        arrived = {descriptor for descriptor, _ in self._arrivals.poll(0, max(1, len(connections)))}
        senders = []
        for one in connections:
            read = max(one.bytes_read, one.read_bytes()) if one.is_tcp else 0
            if one in heard:
                one.checks_heard += 1
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
        for one in connections:  # what comes and goes is nobody's: its ups alone would add up, for those who only read
            one.low_bytes = used if one in heard else min(one.low_bytes, used)
            one.blame_bytes = min(one.blame_bytes, used - one.low_bytes)
            one.blame_share_bytes = min(one.blame_share_bytes, used - one.low_bytes)

    def suspect(self, connections: Collection[WatchedConnection], lent_bytes: int) -> WatchedConnection | None:
        """The connection that has made the memory grow too much; None while it has not, or more than one may be it.

        Of several, one without an acquisition is the first, then one with fewer messages so far. lent_bytes: memory of
        the acquisitions. Honest producers have no more than that on their way.
        """
        excess = sum(one.blame_share_bytes for one in connections) - SLACK_BYTES - lent_bytes
        if excess <= 0:
            return None
        largest = max(one.blame_bytes for one in connections)
        suspects = [one for one in connections if one.blame_bytes > largest // 2 and _is_plausible(one)]
        suspects = [one for one in suspects if not one.is_opened] or suspects
        if not suspects or (len(suspects) > 1 and excess <= TIE_BYTES):
            return None
        return min(suspects, key=lambda one: (one.checks_heard, -one.blame_bytes))

    def close(self) -> None:
        self._memory.close()
        self._arrivals.close()


def _is_plausible(one: WatchedConnection) -> bool:
    return not one.is_cut_off and (not one.is_tcp or one.bytes_unfinished * MAX_COST_OF_A_BYTE >= one.blame_bytes // 2)
