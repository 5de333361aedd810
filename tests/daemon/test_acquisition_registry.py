"""Finding acquisitions, and keeping the receipts of those that ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from acqstream.daemon.acquisition import MAX_RECEIPTS, AcquisitionRegistry, Peer
from acqstream.errors import ProtocolError
from acqstream.model.dataset_name import normal_name
from acqstream.protocol.encoding import Encoding

OWN, STRANGER = Peer(b"own", Encoding.JSON), Peer(b"stranger", Encoding.JSON)


def running(number: int = 0, name: str = "cells") -> Any:
    return SimpleNamespace(dataset_id=f"id-{number}", name=name, peer=OWN)


def test_only_its_own_producer_reaches_an_acquisition() -> None:
    registry, acquisition = AcquisitionRegistry(), running()
    registry.add(acquisition)
    assert registry.of_producer(Peer(b"own", Encoding.MSGPACK), "id-0") is acquisition
    for peer, dataset_id, code in ((STRANGER, "id-0", "denied"), (OWN, "id-1", "unknown_ds")):
        with pytest.raises(ProtocolError) as caught:
            registry.of_producer(peer, dataset_id)
        assert caught.value.code == code


def test_a_name_is_found_in_its_normal_form() -> None:
    registry, acquisition = AcquisitionRegistry(), running(name="Cafe\N{COMBINING ACUTE ACCENT}")
    registry.add(acquisition)
    assert registry.by_name(normal_name(acquisition.name)) is acquisition
    assert registry.by_name("other") is None


def test_folders_of_a_name_may_differ_in_case() -> None:
    """As when it was opened: an existing folder is taken. The name itself is one of its own."""
    registry, acquisition, other = AcquisitionRegistry(), running(0, "zoe/Cells"), running(1, "ZOE/Cells")
    registry.add(acquisition)
    assert registry.by_name("Zoe/Cells") is acquisition
    assert registry.by_name("Zoe/cells") is None
    assert registry.by_name("Cells") is None
    registry.add(other)
    assert registry.by_name("zoe/Cells") is acquisition
    assert registry.by_name("ZOE/Cells") is other, "on Linux there may be both"


def test_the_last_receipts_are_kept_until_the_acquisition_is_resumed() -> None:
    registry = AcquisitionRegistry()
    receipts: list[Any] = [object() for _ in range(MAX_RECEIPTS + 1)]
    for number, receipt in enumerate(receipts):
        registry.add(running(number))
        registry.remove(running(number), receipt)
    assert not len(registry)
    assert registry.receipt("id-0") is None, "the oldest one is dropped"
    assert registry.receipt("id-1") is receipts[1]
    registry.add(running(1))
    assert registry.receipt("id-1") is None, "a resumed acquisition has not ended"
    assert len(registry) == 1
