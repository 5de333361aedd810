"""Memory and orders that one process hands to another one."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from acqstream.storage.handover import (
    PAGE_BYTES,
    OrderSender,
    make_sealed_memory,
    map_sealed_memory,
    receive_orders,
    unavailable_reason,
)
from acqstream.storage.platform.capabilities import peer_credentials
from acqstream.storage.platform.linux_memory import receive_attached
from acqstream.storage.platform.linux_memory_listener import peer_groups
from tests.host_system import descriptors_of

fcntl = pytest.importorskip("fcntl")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="not a memory files here")


def test_what_one_writes_the_other_reads() -> None:
    pages, descriptor = make_sealed_memory(3 * PAGE_BYTES)
    view = map_sealed_memory(descriptor)
    os.close(descriptor)
    pages[PAGE_BYTES : PAGE_BYTES + 5] = b"hello"
    assert (len(view), bytes(view[PAGE_BYTES : PAGE_BYTES + 6])) == (3 * PAGE_BYTES, b"hello\0")
    assert view.readonly
    del pages
    assert bytes(view[PAGE_BYTES : PAGE_BYTES + 5]) == b"hello"  # it lives as long as it is mapped


def test_large_memory_lies_in_huge_pages_where_the_system_has_them() -> None:
    """On both sides: direct writes take thrice the processor time from small pages."""
    pages, descriptor = make_sealed_memory(8 * 2**20)
    view = map_sealed_memory(descriptor)
    os.close(descriptor)
    assert bytes(view) == bytes(8 * 2**20)  # read once, so that all of it is mapped
    for one in (pages, view):
        assert np.frombuffer(one, np.uint8).ctypes.data % 2**21 == 0
    if _huge_bytes() == 0:
        pytest.skip("this system puts not a memory files into huge pages")
    assert _huge_bytes() >= 2 * 8 * 2**20


def _huge_bytes() -> int:
    """Of memory files that this process has mapped as huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("ShmemPmdMapped:"))


def test_it_keeps_its_size_and_nobody_else_writes() -> None:
    _, descriptor = make_sealed_memory(2 * PAGE_BYTES)
    for size in (0, PAGE_BYTES, 3 * PAGE_BYTES):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, PAGE_BYTES, flags=mmap.MAP_SHARED)
    with pytest.raises(PermissionError):
        os.write(descriptor, b"x")
    os.close(descriptor)


def test_its_owner_cannot_take_pages_away() -> None:
    """Else who maps it would be given new ones, of its own memory, or none."""
    kept, descriptor = make_sealed_memory(2 * PAGE_BYTES)
    map_sealed_memory(descriptor)
    libc = ctypes.CDLL(None, use_errno=True)
    address = np.frombuffer(kept, np.uint8).ctypes.data
    assert libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(2 * PAGE_BYTES), mmap.MADV_REMOVE) == -1
    assert ctypes.get_errno() == errno.EPERM
    os.close(descriptor)
    descriptor = os.memfd_create("a test", os.MFD_ALLOW_SEALING)
    os.posix_fallocate(descriptor, 0, 2 * PAGE_BYTES)
    pages = mmap.mmap(descriptor, 2 * PAGE_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    with pytest.raises(ValueError, match="not sealed"):
        map_sealed_memory(descriptor)
    pages.madvise(mmap.MADV_REMOVE)  # these seals allow it
    os.close(descriptor)


def test_it_is_looked_at_after_it_was_found_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may seal it at the last moment, when pages of it are gone."""
    descriptor = os.memfd_create("a test", os.MFD_ALLOW_SEALING)
    os.posix_fallocate(descriptor, 0, 2 * PAGE_BYTES)
    pages = mmap.mmap(descriptor, 2 * PAGE_BYTES)
    ask = fcntl.fcntl

    def seal_late(number: int, command: int, *more: int) -> int:
        if command == fcntl.F_GET_SEALS:
            pages.madvise(mmap.MADV_REMOVE)
            ask(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x10)
        return ask(number, command, *more)

    monkeypatch.setattr(fcntl, "fcntl", seal_late)
    with pytest.raises(ValueError, match="only 0 of its 8192 bytes are present"):
        map_sealed_memory(descriptor)
    os.close(descriptor)


def test_memory_that_there_is_not_is_an_error_and_no_crash() -> None:
    gc.collect()  # what other tests have left goes now
    before = descriptors_of("memfd:acqstream")
    with pytest.raises(OSError, match=f"{2**50} bytes wanted") as caught:
        make_sealed_memory(2**50)
    assert caught.value.errno == errno.ENOMEM
    assert descriptors_of("memfd:acqstream") <= before


def test_a_limit_of_the_address_space_is_an_error() -> None:
    code = (
        "import os, resource; from acqstream.storage.handover import make_sealed_memory\n"
        "def count(): return len(os.listdir('/proc/self/fd'))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)); before = count()\n"
        "try: make_sealed_memory(2**30)\n"
        "except OSError as error: print('refused', error.errno, count() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"refused {errno.ENOMEM} 0\n"  # no descriptor is left; libraries may have some of their own


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_the_peer_is_this_process(pair: tuple[socket.socket, socket.socket]) -> None:
    assert peer_credentials(pair[0]) == (os.getpid(), os.geteuid(), os.getegid())
    assert set(peer_groups(pair[0])) == set(os.getgroups())


def test_no_child_inherits_a_received_descriptor(pair: tuple[socket.socket, socket.socket]) -> None:
    _, descriptor = make_sealed_memory(PAGE_BYTES)
    socket.send_fds(pair[0], [b"x"], [descriptor, descriptor])
    data, received = receive_attached(pair[1], 100)
    assert (data, len(received)) == (b"x", 2)
    assert not any(os.get_inheritable(one) for one in received)
    for one in (descriptor, *received):
        os.close(one)


def test_orders_arrive_in_order_with_their_memory(pair: tuple[socket.socket, socket.socket]) -> None:
    before = descriptors_of("memfd:acqstream")
    sender = OrderSender(pair[0], os.getpid())
    for number in range(3):
        pages, descriptor = make_sealed_memory((number + 1) * PAGE_BYTES)
        pages[:1] = bytes([number])
        sender.add({"id": number}, *[descriptor] * number)
        os.close(descriptor)  # the order has its own
        del pages  # Python's mmap has one too
    sender.send()
    pair[0].shutdown(socket.SHUT_WR)
    orders = [
        (order, [bytes(one[:1]) for one in maps], [len(one) for one in maps]) for order, maps in receive_all(pair)
    ]
    assert orders[0] == ({"id": 0}, [], [])
    assert orders[1] == ({"id": 1, "fds": 1}, [b"\x01"], [2 * PAGE_BYTES])
    assert orders[2] == ({"id": 2, "fds": 2}, [b"\x02"] * 2, [3 * PAGE_BYTES] * 2)
    assert descriptors_of("memfd:acqstream") <= before


def receive_all(pair: tuple[socket.socket, socket.socket]) -> list[tuple[dict, list[memoryview]]]:
    return list(receive_orders(pair[1]))


def test_a_peer_that_reads_nothing_blocks_no_one(pair: tuple[socket.socket, socket.socket]) -> None:
    """What did not fit leaves when there is space again, also the remainder of a line."""
    sender = OrderSender(pair[0], os.getpid())
    texts = [f"{number}" * 40_000 for number in range(20)]
    for text in texts:
        sender.add({"text": text})
    while sender.blocked_since_s is None:
        sender.send()
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.extend(order["text"] for order, _ in receive_all(pair)))
    reader.start()
    while sender.blocked_since_s is not None or sender._queue:
        sender.send()
    pair[0].shutdown(socket.SHUT_WR)
    reader.join()
    assert found == texts


def test_orders_that_were_not_sent_leave_no_descriptor(pair: tuple[socket.socket, socket.socket]) -> None:
    own = os.readlink(f"/proc/self/fd/{pair[0].fileno()}")
    sender = OrderSender(pair[0], os.getpid())
    sender.add({"id": 1}, pair[0].fileno(), pair[0].fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        sender.add({"id": 2}, pair[0].fileno(), 2**20)
    assert descriptors_of(own)[own] == 1 + 2
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        sender.send()
    sender.close()
    assert descriptors_of(own)[own] == 1


def test_a_system_without_memory_files_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not unavailable_reason()
    monkeypatch.delattr(socket, "SO_PEERCRED")
    assert "does not name the peer" in unavailable_reason()
    monkeypatch.delattr(os, "memfd_create")
    assert "memfd" in unavailable_reason()
    with pytest.raises(OSError, match="memfd"):
        make_sealed_memory(PAGE_BYTES)
