"""Chooses the layout of a container: of a new one from the options, of an existing one from its note. Pure."""

from __future__ import annotations

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.precomputed.layout import PrecomputedLayout, encoding_memory
from acqstream.formats.precomputed.members import is_single, member_count
from acqstream.formats.precomputed.notes import ContainerNote
from acqstream.formats.precomputed.options import PrecomputedOptions
from acqstream.formats.precomputed.shard_layout import ShardedPrecomputedLayout, choose_shards, max_packed_bytes


def create_layout(plan: Plan, options: PrecomputedOptions) -> PrecomputedLayout:
    """The layout of a new container; plan is that of `plan`. Raises ConfigError for shards that are too small."""
    full = plan.full
    common = (plan, options.encoding, full.shape[-3], is_single(full.axes, full.shape))
    if options.shards is None:
        return PrecomputedLayout(*common, jpeg_quality=options.jpeg_quality)
    return ShardedPrecomputedLayout(*common, choose_shards(plan, options.shards), options.jpeg_quality)


def noted_layout(note: ContainerNote) -> PrecomputedLayout:
    """The layout of an existing container."""
    axes = note.levels[0].axes
    plan = Plan(levels=note.levels, member_axes=axes[: member_count(axes)])
    kind = ShardedPrecomputedLayout if note.shards else PrecomputedLayout
    return kind(plan, note.encoding, note.depth, note.is_single, note.shards)


def max_encode_memory(spec: ArraySpec, options: PrecomputedOptions) -> int:
    """Bytes that encoding a chunk takes at most: its part inside the scale, and what encoding and packing need."""
    return encoding_memory(spec, options) + max_packed_bytes(spec, options.shards)
