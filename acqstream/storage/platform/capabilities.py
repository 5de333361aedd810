"""Abilities that a system has or lacks, one function each; the priority of this process; what direct I/O asks.

Linux and Windows refuse a call that breaks the rules of direct I/O for offset, length and memory; Wine and file systems
in memory do not, so each call is checked here before the system gets it where its own check cannot be relied on.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from acqstream.storage.platform.windows_names import has_long_paths

_NICENESS = 10


def go_last() -> None:
    """Give this process a lower priority for processor and, on Linux, disk; threads that start later inherit it.

    The class "idle" of the disk would stop a live picture altogether while a camera fills the disk: it is the lowest
    level of the usual class (ioprio_set(2)). A priority that is lower already is kept.
    """
    import psutil  # only where many are started does anybody need it

    process = psutil.Process()
    if psutil.WINDOWS:
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        return
    process.nice(max(_NICENESS, process.nice()))
    if psutil.LINUX and process.ionice().ioclass != psutil.IOPRIO_CLASS_IDLE:
        process.ionice(psutil.IOPRIO_CLASS_BE, 7)


DIRECT_STEP_BYTES = 4096
"""Offset, length and address of direct calls are multiples of this one. Disks have sectors of 512 or 4096 bytes."""


def address_of(buffer: memoryview | bytes) -> int:
    """The address of the first byte of a buffer that is not empty; the caller keeps the buffer."""
    # By numpy, because ctypes gives no address of memory that cannot be written.
    import numpy as np

    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


def check_alignment(buffers: Sequence[memoryview | bytes], offset: int) -> None:
    """Raises OSError (EINVAL) unless offset, lengths and addresses are multiples of DIRECT_STEP_BYTES."""
    # Sectors of 4096 bytes are the rule, whatever the disk at hand would take: a dataset may be recorded to any.
    problems = [f"offset {offset}"] if offset % DIRECT_STEP_BYTES else []
    for buffer in buffers:
        if len(buffer) % DIRECT_STEP_BYTES:
            problems.append(f"a length of {len(buffer)} bytes")
        elif len(buffer) and address_of(buffer) % DIRECT_STEP_BYTES:
            problems.append(f"memory at address {address_of(buffer):#x}")
    if problems:
        text = f"direct I/O with {problems[0]}, expected a multiple of {DIRECT_STEP_BYTES}"
        raise OSError(errno.EINVAL, text)


def check_sectors(sector_bytes: int, path: str) -> None:
    """Raises OSError (EINVAL) unless the disk of `path` takes direct calls in steps of DIRECT_STEP_BYTES.

    sector_bytes: 0 if unknown, as on network file systems.
    """
    if sector_bytes == 0:  # trying could fail in the middle of a run instead of at its start
        raise OSError(errno.EINVAL, "no direct I/O: the disk does not report its sector size", path)
    if DIRECT_STEP_BYTES % sector_bytes:
        text = f"no direct I/O: the disk has sectors of {sector_bytes} bytes, expected {DIRECT_STEP_BYTES} at most"
        raise OSError(errno.EINVAL, text, path)


# Users.

ROOT_USER = 0
"""Who may do everything, where users have numbers."""

# Sockets.


def has_local_sockets() -> bool:
    """True if sockets have names in the file system (unix(7)): not in Python for Windows."""
    return hasattr(socket, "AF_UNIX")


def can_send_descriptors() -> bool:
    """True if open files can be sent over a local socket (SCM_RIGHTS)."""
    return has_local_sockets() and hasattr(socket, "send_fds")


def names_socket_peers() -> bool:
    """True if the system names the process and user at the other end of a local socket (SO_PEERCRED)."""
    return hasattr(socket, "SO_PEERCRED")


_CREDENTIALS = struct.Struct("3i")  # struct ucred


class Credentials(NamedTuple):
    """The process at the other end of a local socket, when it connected."""

    process: int
    user: int
    group: int


def peer_credentials(connection: socket.socket) -> Credentials:
    """Who is at the other end of a local socket, where the system names him."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Credentials(*_CREDENTIALS.unpack(content))


def peer_user(connection: socket.socket) -> int | None:
    """The user of the process at the other end of a local socket; None where the system does not tell."""
    return peer_credentials(connection).user if names_socket_peers() else None


def uninherited_descriptors_flag() -> int:
    """The flag of recvmsg(2) for descriptors that no child inherits; 0 where the system has none (macOS)."""
    return getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def has_tcp_info() -> bool:
    """True if the kernel counts the bytes that a tcp connection receives (TCP_INFO, tcp(7))."""
    return sys.platform == "linux"


def are_sockets_files() -> bool:
    """True if a socket is a descriptor of the C library; on Windows it is a handle."""
    return sys.platform != "win32"


def can_shut_down_foreign_sockets() -> bool:
    """True if libzmq survives that somebody else shuts one of its connections down.

    On Windows it ends the process: "Assertion failed: Can't send after socket shutdown [10058]" in tcp.cpp of 4.3.5.
    """
    return sys.platform != "win32"


def has_epoll() -> bool:
    return hasattr(select, "epoll")


def has_poll() -> bool:
    """True if poll(2) exists. select(2) takes no descriptor from 1024 on, except on Windows."""
    return hasattr(select, "poll")


def has_eventfd() -> bool:
    """True for Linux with Python 3.10 or newer (eventfd(2))."""
    return hasattr(os, "eventfd")


def port_release_s() -> float:
    """Seconds for which a port may be in use after the process that listened was killed; 0 except on Windows.

    libzmq sets SO_EXCLUSIVEADDRUSE there: the port is free once the connections of the old process are inactive.
    https://learn.microsoft.com/windows/win32/winsock/using-so-reuseaddr-and-so-exclusiveaddruse
    """
    return 5.0 if sys.platform == "win32" else 0.0


# Memory and processes.


def has_memory_files() -> bool:
    """True if memory can be shared by a descriptor, and sealed (memfd_create(2))."""
    return hasattr(os, "memfd_create")


def can_fork() -> bool:
    """True if a process can go on as two, with the open files and locks of the first."""
    return hasattr(os, "register_at_fork")


def has_process_files() -> bool:
    """True if /proc describes processes and /sys the machine, as on Linux (proc(5))."""
    return sys.platform == "linux"


def process_space() -> str:
    """An id of the processes that this one sees: a container has its own (pid_namespaces(7)); "-" without one."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "-"


def max_pool_processes() -> int:
    """Max processes of a pool: Windows waits for 63 handles at once, of which Python's pool needs two."""
    return 61 if sys.platform == "win32" else sys.maxsize


def has_niceness() -> bool:
    """True if a priority is a nice value; Windows has priority classes."""
    return sys.platform != "win32"


def has_descriptor_limit() -> bool:
    """True if the open descriptors of a process have a limit that can be raised (getrlimit(2))."""
    return sys.platform != "win32"


def address_limit_bytes() -> int | None:
    """Max address space of this process (RLIMIT_AS); None if it has no limit."""
    if not has_descriptor_limit():
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def has_terminate_signal() -> bool:
    """True if a process can be asked to end by SIGTERM; Windows would kill it."""
    return sys.platform != "win32"


def interrupting_signals() -> tuple[signal.Signals, ...]:
    """Signals that ask a program to end: of the terminal, of a manager, of a closed terminal."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


# Files and users.


def has_drives() -> bool:
    """True if a colon in a name stands for a drive or a stream of a file (Windows)."""
    return os.name == "nt"


def max_path_characters() -> int:
    """Max length of a path that every program sees; Windows hides longer ones from most, unless told otherwise."""
    return sys.maxsize if sys.platform != "win32" or has_long_paths() else 259


def has_folder_links() -> bool:
    """True if every user may make a link to a folder; on Windows that takes a privilege (CreateSymbolicLinkW)."""
    return sys.platform != "win32"


def is_junction(status: os.stat_result) -> bool:
    """True if os.lstat describes a junction: a link of Windows that Python reports as the folder where it leads."""
    return getattr(status, "st_reparse_tag", 0) == 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT


def user_id() -> int:
    """The real user; 0 where users have no numbers (Windows)."""
    return os.getuid() if hasattr(os, "getuid") else 0


def effective_user_id() -> int | None:
    """The user whose rights this process has; None where users have no numbers (Windows)."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def group_ids() -> frozenset[int] | None:
    """The groups whose rights this process has; None where groups have no numbers (Windows)."""
    return frozenset((os.getegid(), *os.getgroups())) if hasattr(os, "getgroups") else None


def needs_display_variable() -> bool:
    """True if a window needs DISPLAY or WAYLAND_DISPLAY in the environment."""
    return sys.platform == "linux"


# The page cache, and what is written past it.


def gathers_writes() -> bool:
    """True if pieces of memory are written by one request (pwritev(2)); Windows gets one for each piece."""
    return hasattr(os, "pwritev")


def sync_all() -> None:
    """Let the system write all it has in memory to its disks; nothing on Windows."""
    if hasattr(os, "sync"):
        os.sync()


def drop_from_cache(path: Path) -> None:
    """Take a file out of the page cache where the system can; what is not yet on the disk stays. Raises OSError."""
    if not hasattr(os, "posix_fadvise"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
