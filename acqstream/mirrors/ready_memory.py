"""How much memory views should find when their run begins: that of the mirrors which the configuration names."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from acqstream.mirrors.chunk_plan import Budget, options_of, plan_chunks, plan_request
from acqstream.mirrors.memory_need import MIB
from acqstream.mirrors.view_kinds import mirror_format
from acqstream.model.view_spec import ViewSpec

UNKNOWN_BYTES = 768 * MIB  # at most, where it is not known what will come
_UNKNOWN_SHARE = 32  # at most a thirty-second of the RAM then,
_KNOWN_SHARE = 16  # and a sixteenth for mirrors that are certain to come
_STACK = 1024  # planes: longer than slabs usually are
# The whole picture of an sCMOS camera. The kind of frames that will come is not known when the daemon starts.
_REQUEST = {
    "frame": {"shape": [2048, 2048], "dtype": "uint16"},
    "axes": [{"name": "time", "kind": "index", "size": 1}, {"name": "z", "kind": "index", "size": _STACK}],
}
_LOG = logging.getLogger("acqstream.mirrors")


def ready_bytes(specs: Sequence[ViewSpec], budget: Budget, ram_bytes: int) -> int:
    """Bytes to take before a run needs them. specs: the mirrors and levels of the configuration; budget: of a mirror.

    The sum of what the mirrors need, and of UNKNOWN_BYTES where that cannot be said: for levels of tiles, and without
    mirrors.
    """
    unknown = min(UNKNOWN_BYTES, ram_bytes // _UNKNOWN_SHARE)
    needs = [mirror_bytes(spec, budget) if spec.is_mirror else None for spec in specs]
    needed = sum(unknown if one is None else one for one in needs)
    return min(needed, ram_bytes // _KNOWN_SHARE) or unknown


def mirror_bytes(spec: ViewSpec, budget: Budget) -> int | None:
    """Bytes of the slabs of a mirror that keeps up, for frames of 2048 x 2048 uint16; 0 if it keeps no frames.

    A slab of the frames for each thread and one that is being filled, and one of each lower level: these are small, and
    leave soon after the slab that they are made of. A mirror of which the budget holds fewer slabs writes one while it
    fills the next. None if no mirror of such frames can be planned: then others will come.
    """
    try:
        found = mirror_format(spec)
        options = options_of(found, spec.mirror_settings)
        if found.is_by_reference(options):
            return 0
        plan = plan_request(_REQUEST)
        assert plan is not None  # only pictures of tiles can have no size yet
        chunks = plan_chunks(found, options, plan, {}, budget)
    except Exception as error:  # noqa: BLE001 - a format of another package must not keep the daemon from starting
        _LOG.info("memory of mirror %s is not known before its frames: %s", spec.name, error)
        return None
    full, *lower = (grid.slab_bytes for grid in chunks.grids)
    return min(chunks.need.slabs, budget.threads + 1) * full + sum(lower)
