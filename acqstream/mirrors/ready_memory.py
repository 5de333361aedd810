"""How much memory views should find when their run begins: that of the mirrors which the configuration names."""

from __future__ import annotations

from collections.abc import Sequence

from acqstream.errors import ConfigError, DatasetError
from acqstream.mirrors.chunk_plan import Budget, options_of, plan_chunks, plan_request
from acqstream.mirrors.memory_need import MIB
from acqstream.mirrors.view_kinds import mirror_format
from acqstream.model.view_spec import ViewSpec

UNKNOWN_BYTES = 768 * MIB  # while nothing is configured, for levels of tiles, and for frames of another kind
LEAST_BYTES = 64 * MIB  # for mirrors that keep no frames: the process stays, and has its formats loaded
_RAM_SHARE = 32  # at most one part of so many for what is not known,
_CONFIGURED_SHARE = 16  # and of so many for mirrors that are certain to come
_STACK = 1024  # planes: longer than the slabs of any format
# The whole picture of an sCMOS camera. The kind of frames that will come is not known when the daemon starts.
_REQUEST = {
    "frame": {"shape": [2048, 2048], "dtype": "uint16"},
    "axes": [{"name": "time", "kind": "index", "size": 1}, {"name": "z", "kind": "index", "size": _STACK}],
}


def ready_bytes(specs: Sequence[ViewSpec], budget: Budget, ram_bytes: int) -> int:
    """Bytes to take before a run needs them. specs: the mirrors and levels of the configuration; budget: of a mirror.

    So much that no mirror waits for memory: a slab for each thread, one that waits for them, and one that is being
    filled (see `Assembly`). A mirror of which the budget holds fewer slabs writes one while it fills the next.
    """
    if not specs:
        return min(UNKNOWN_BYTES, ram_bytes // _RAM_SHARE)
    needed = sum(mirror_bytes(spec, budget) if spec.is_mirror else UNKNOWN_BYTES for spec in specs)
    return min(needed, ram_bytes // _CONFIGURED_SHARE)


def mirror_bytes(spec: ViewSpec, budget: Budget) -> int:
    """Bytes of the slabs of a mirror that keeps up, for frames of 2048 x 2048 uint16.

    UNKNOWN_BYTES for one that cannot be made of such frames within the budget: it will get others.
    """
    found = mirror_format(spec)
    options = options_of(found, spec.mirror_settings)
    if found.is_by_reference(options):
        return LEAST_BYTES
    plan = plan_request(_REQUEST)
    assert plan is not None  # only pictures of tiles can have no size yet
    try:
        need = plan_chunks(found, options, plan, {}, budget).need
    except (ConfigError, DatasetError):
        return UNKNOWN_BYTES
    return min(need.slabs, budget.threads + 2) * need.slab_bytes
