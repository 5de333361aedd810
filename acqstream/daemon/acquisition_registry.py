"""Running acquisitions by dataset id, name and producer, and receipts of ended ones. Loop only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from acqstream.daemon.acquisition import ActiveAcquisition, Peer
from acqstream.errors import ProtocolError
from acqstream.model.dataset_name import normal_name
from acqstream.model.receipt import Receipt

MAX_RECEIPTS = 100  # for producers that ask again after a lost connection


class AcquisitionRegistry:
    """Finds acquisitions. The path of a frame calls `of_producer` once and nothing else of it."""

    def __init__(self) -> None:
        self._running: dict[str, ActiveAcquisition] = {}
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[ActiveAcquisition]:
        """Iterate over running acquisitions; take a tuple of it before any is added or removed."""
        return iter(self._running.values())

    def of_producer(self, peer: Peer, dataset_id: str) -> ActiveAcquisition:
        """Return the peer's own running acquisition. Raises ProtocolError (unknown_ds, denied)."""
        acquisition = self._running.get(dataset_id)
        if acquisition is None:
            raise ProtocolError(f"acquisition {dataset_id!r} is not open here; send 'open' first", code="unknown_ds")
        if acquisition.peer.identity != peer.identity:
            raise ProtocolError(f"acquisition {dataset_id!r} belongs to another connection", code="denied")
        return acquisition

    def by_id(self, dataset_id: str) -> ActiveAcquisition | None:
        return self._running.get(dataset_id)

    def by_name(self, name: str) -> ActiveAcquisition | None:
        """name: normalized, as in requests."""
        return next((one for one in self._running.values() if normal_name(one.name) == name), None)

    def receipt(self, dataset_id: str) -> Receipt | None:
        """Return the receipt of an acquisition that ended lately and was not resumed."""
        return self._receipts.get(dataset_id)

    def add(self, acquisition: ActiveAcquisition) -> None:
        """Register an acquisition. A resumed one is no longer ended."""
        self._receipts.pop(acquisition.dataset_id, None)
        self._running[acquisition.dataset_id] = acquisition

    def remove(self, acquisition: ActiveAcquisition, receipt: Receipt) -> None:
        """Remove an ended acquisition and keep its receipt."""
        del self._running[acquisition.dataset_id]
        self._receipts[acquisition.dataset_id] = receipt
        while len(self._receipts) > MAX_RECEIPTS:
            self._receipts.popitem(last=False)
