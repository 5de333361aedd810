"""Memory that is taken before a run begins: as much as the configured mirrors need to keep up."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.errors import ConfigError, DatasetError
from acqstream.mirrors import view_kinds
from acqstream.mirrors.mirror_plan import Budget, options_of, plan_chunks, plan_request
from acqstream.mirrors.slab import SlabBuffers
from acqstream.mirrors.view_kinds import UNKNOWN_BYTES, mirror_bytes, mirror_format, ready_bytes
from acqstream.mirrors.view_worker import HEADS_BYTES
from acqstream.model.view_spec import ViewSpec
from acqstream.protocol.requests import parse_views
from acqstream.storage.memory_reserve import MemoryReserve

MIB, GIB = 2**20, 2**30
BUDGET = Budget.of(2048, threads=3)


def views(*names: str | dict[str, Any]) -> tuple[ViewSpec, ...]:
    return parse_views(list(names))


@pytest.mark.parametrize(
    ("mirror", "mib"),
    [
        ("n5", 4 * 128 + 32 + 8),  # chunks of 512 x 512 x 16, three levels
        ({"format": "n5", "levels": 1}, 4 * 128),
        ("ome-zarr", 4 * 64 + 16 + 4),
        ("wkw", 2 * 512 + 128 + 32),  # slabs of 64 frames: the budget holds two
    ],
)
def test_a_mirror_gets_a_slab_for_each_thread_one_to_fill_and_one_of_each_lower_level(
    mirror: str | dict[str, Any], mib: int
) -> None:
    (spec,) = views(mirror)
    assert mirror_bytes(spec, BUDGET) == mib * MIB
    assert ready_bytes([spec], BUDGET, 64 * GIB) == mib * MIB


def test_mirrors_add_up_to_a_sixteenth_of_the_ram() -> None:
    both = views("n5", "wkw")
    assert ready_bytes(both, BUDGET, 64 * GIB) == (552 + 1184) * MIB
    assert ready_bytes(both, BUDGET, 24 * GIB) == 1536 * MIB


@pytest.mark.parametrize(("ram_gib", "mib"), [(64, 768), (16, 512), (8, 256)])
@pytest.mark.parametrize("mirrors", [[], ["pyramid"], ["hsds"]])
def test_where_nothing_is_known_it_is_a_thirty_second_of_the_ram_but_not_more_than_768_mib(
    mirrors: list[str | dict[str, Any]], ram_gib: int, mib: int
) -> None:
    """Without mirrors, for levels of tiles, and beside a mirror that keeps no frames."""
    assert ready_bytes(views(*mirrors), BUDGET, ram_gib * GIB) == mib * MIB


def test_levels_of_tiles_and_mirrors_add_up() -> None:
    assert ready_bytes(views("pyramid", "ome-zarr"), BUDGET, 64 * GIB) == (768 + 276) * MIB


def test_a_mirror_that_keeps_no_frames_needs_none() -> None:
    (spec,) = views("hsds")
    assert mirror_bytes(spec, BUDGET) == 0


def test_one_that_cannot_be_made_of_such_frames_gets_what_is_taken_for_unknown_ones() -> None:
    """Cubes of 128 with LZ4: one slab of 2048 x 2048 takes more than the budget, so other frames will come."""
    (deep,) = views({"format": "wkw", "compression": "lz4"})
    assert mirror_bytes(deep, Budget.of(512, threads=3)) is None
    assert ready_bytes([deep], Budget.of(512, threads=3), 64 * GIB) == UNKNOWN_BYTES


@pytest.mark.parametrize("error", [ValueError, ConfigError, DatasetError, ZeroDivisionError])
def test_a_format_that_cannot_plan_such_frames_does_no_harm(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon must start, whatever a format of another package raises."""

    def plan_nothing(*given: object) -> None:
        raise error("only pictures of 8 bit")

    monkeypatch.setattr(view_kinds, "plan_chunks", plan_nothing)
    assert ready_bytes(views("n5"), BUDGET, 64 * GIB) == UNKNOWN_BYTES


@pytest.mark.parametrize("mirror", ["n5", "wkw"])
def test_so_many_slabs_fit_into_it(mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is taken of the system while they are all in use, also behind heads of 16 bytes."""
    frame = {"shape": [256, 256], "dtype": "uint16"}
    monkeypatch.setattr(view_kinds, "_REQUEST", {**view_kinds._REQUEST, "frame": frame})
    (spec,) = views(mirror)
    budget = Budget.of(600, threads=3)
    found = mirror_format(spec)
    array = plan_request(view_kinds._REQUEST)
    assert array is not None
    plan = plan_chunks(found, options_of(found, spec.mirror_settings), array, {}, budget)
    memory = MemoryReserve()
    ready = mirror_bytes(spec, budget)
    assert ready is not None
    memory.prepare(ready + HEADS_BYTES)
    buffers = SlabBuffers(plan.grids, "<", head_bytes=16, memory=memory)
    count = min(plan.need.slabs, 4)
    assert count >= 2
    taken = [buffers.take(level) for level in [0] * count + list(range(1, len(plan.grids)))]
    assert memory.fresh_count == 0
    assert sum(one.nbytes for buffer in taken for one in buffer.memory) == ready
