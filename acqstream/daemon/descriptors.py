"""Raises the limit of open files and connections of this process."""

from __future__ import annotations

import logging

from acqstream.storage.platform.capabilities import has_descriptor_limit

logger = logging.getLogger("acqstream.daemon")

MAX_DESCRIPTORS = 65536
C_LIBRARY_DESCRIPTORS = 8192
"""On Windows, fixed: files that Python opens. Sockets of libzmq and files by handle do not count."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors up to MAX_DESCRIPTORS, or the hard limit; return the new limit."""
    if not has_descriptor_limit():
        return C_LIBRARY_DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (ValueError, OSError) as error:
        logger.warning("the limit of %d open descriptors cannot be raised to %d: %s", soft, target, error)
        return soft
    return target
