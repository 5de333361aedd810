"""How many files and connections this process may have open."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("acqstream.daemon")

WANTED = 65536


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors as far as the hard one allows, up to WANTED; the limit now."""
    if sys.platform == "win32":
        return WANTED
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError) as error:
        logger.warning("the limit of %d open descriptors cannot be raised to %d: %s", soft, most, error)
        return soft
    return most
