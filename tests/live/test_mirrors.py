"""Mirrors of a real daemon: equal to the log in the end, whatever happens to their process or to their disk."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.client.run import Run
from acqstream.model.status import UnfinishedViewStatus
from tests.live.daemon_process import DaemonProcess
from tests.live.mirror_pair import mirror, mirrors_of, remount
from tests.live.small_disk import small_disk
from tests.live.stored import image_of, unstalled
from tests.mirrors.mirror_cases import read_plain
from tests.mirrors.wkw_cases import check_announced
from tests.waiting import until

SHAPE = (120, 200)
SIZES = {"time": 3, "channel": 2, "z": 8}
AXES = [{"name": name, "size": size} for name, size in SIZES.items()]
PLAIN: Mapping[str, Any] = {"format": "n5", "layout": "array", "compression": "raw", "blocks": [4, 64, 64]}
WKW: Mapping[str, Any] = {"format": "wkw", "cube": 64, "levels": 1}
SPACE = {"PixelSizeUm": 0.1, "z-step_um": 0.3}  # else there is a warning
BOTH: Mapping[str, Mapping[str, Any]] = {"n5": PLAIN, "wkw": WKW}


def places(sizes: Mapping[str, int] = SIZES) -> list[dict[str, int]]:
    return [dict(zip(sizes, place, strict=True)) for place in np.ndindex(*sizes.values())]


def put(
    run: Run,
    first: int = 0,
    stop: int | None = None,
    interval_s: float = 0.002,
    sizes: Mapping[str, int] = SIZES,
) -> None:
    for number, place in list(enumerate(places(sizes)))[first:stop]:
        run.put(image_of(number, SHAPE), place)
        time.sleep(interval_s)


def wait_for(daemon: DaemonProcess, name: str, mirror: str, state: str) -> UnfinishedViewStatus:
    """Until the mirror is in this state."""

    def look() -> UnfinishedViewStatus | None:
        found = mirrors_of(daemon, daemon.data / name).get(mirror)
        return found if found is not None and found.state == state else None

    found: UnfinishedViewStatus = until(look, f"the mirror {mirror} of {name} is {state}")
    return found


def wait_until_done(daemon: DaemonProcess, name: str, *, but: Sequence[str] = ()) -> None:
    """Until the mirrors are complete: they are not listed any more. but: those that will not be."""
    until(lambda: [*mirrors_of(daemon, daemon.data / name)] == [*but], f"the mirrors of {name} are complete")


def right_array(sizes: Mapping[str, int] = SIZES) -> NDArray[Any]:
    """(time, channel, z, y, x)."""
    images = np.stack([image_of(number, SHAPE) for number in range(len(places(sizes)))])
    return images.reshape(*sizes.values(), *SHAPE)


def check(container: Path) -> None:
    if container.suffix == ".n5":
        assert np.array_equal(read_plain(container), right_array())
        return
    there = check_announced(container, right_array())
    assert there == {
        (time, channel, SIZES["z"]) for time in range(SIZES["time"]) for channel in range(SIZES["channel"])
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("mirrors") / "data") as daemon:
        yield daemon


@pytest.mark.parametrize("victim", BOTH)
@pytest.mark.parametrize("how", ["removed", "read-only"])
def test_its_disk_goes_away_in_mid_run_and_one_command_makes_it_again(
    shared: DaemonProcess, how: str, victim: str
) -> None:
    name = f"gone-{how}-{victim}"
    container = shared.data / f"{name}.{victim}"
    with small_disk(container, 32) as place:
        with acqstream.create(
            name, endpoint=shared.endpoint, axes=AXES, summary=SPACE, mirrors=[*BOTH.values()]
        ) as run:
            put(run, 0, 16)
            until(lambda: any(path.is_dir() and any(path.rglob("*0")) for path in place.iterdir()), "chunks are stored")
            if how == "removed":
                for entry in place.iterdir():
                    shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
                for blocked in ("s0", "time0000", "time0001", "time0002"):
                    until(lambda path=place / blocked: is_blocked(path), f"{blocked} is a file")  # type: ignore[misc]
            else:
                remount(place, "ro")
            put(run, 16)
            failed = wait_for(shared, name, victim, "failed")
        assert run.receipt is not None
        assert run.receipt.complete
        assert unstalled(run.warnings) == []
        assert failed.reason in run.receipt.mirrors[victim]
        wait_until_done(shared, name, but=[victim])
        remount(place, "rw")
        for entry in list(place.iterdir()):
            if entry.is_file() and entry.read_bytes() == b"something else":
                entry.unlink()
    assert not any(container.iterdir())
    told = mirror(str(shared.data / name), "--to", victim, "--rebuild", *options(BOTH[victim]))
    assert told == 0
    for other in BOTH:
        check(shared.data / f"{name}.{other}")


def is_blocked(path: Path) -> bool:
    """Put a file where a folder is to be; False if the mirror has made the folder meanwhile."""
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.write_text("something else")
    except IsADirectoryError:
        return False
    return True


def options(settings: Mapping[str, Any]) -> Sequence[str]:
    given = {name: value for name, value in settings.items() if name != "format"}
    return [word for name, value in given.items() for word in ("--option", f"{name}={json.dumps(value)}")]


def test_live_readers_never_see_a_torn_block(shared: DaemonProcess) -> None:
    """Ours and tensorstore in N5, ours and the wkw library in WKW; the camera waits for them between two stacks only.

    Within one it would be stored as it is, and completed in place.
    """
    sizes = {"time": 3, "channel": 2, "z": 40}
    n5, wkw = shared.data / "read.n5", shared.data / "read.wkw"
    right = right_array(sizes)
    stacks = range(0, len(places(sizes)), sizes["z"])
    looks = (
        lambda: check_whole(read_plain(n5), right, PLAIN["blocks"]),
        lambda: check_whole(full_resolution(n5), right, PLAIN["blocks"]),
        lambda: check_whole(full_resolution(wkw), right, (32, 32, 32)),
        lambda: bool(check_announced(wkw, right)),
    )

    def look() -> bool:
        return min([one() for one in looks])

    settings = [{**PLAIN, "compression": "zstd"}, WKW]
    axes = [{"name": name, "size": size} for name, size in sizes.items()]
    with (
        ThreadPoolExecutor(1) as pool,
        acqstream.create("read", endpoint=shared.endpoint, axes=axes, mirrors=settings) as run,
    ):
        for first in stacks:
            sending = pool.submit(put, run, first, first + sizes["z"], 0.01, sizes)
            until((wkw / "acqstream-array.json").exists, "the container is there")
            until((n5 / "s0" / "attributes.json").exists, "the container is there")
            if first == stacks[2]:
                until(look, "all see something, and see more come")
            while not sending.done():
                look()
            sending.result()
            look()
    while mirrors_of(shared, shared.data / "read"):
        look()
    for complete in (read_plain(n5), full_resolution(n5), full_resolution(wkw)):
        assert np.array_equal(complete, right)
    assert check_announced(wkw, right) == {(time, channel, 40) for time in range(3) for channel in range(2)}


def full_resolution(container: Path) -> NDArray[Any]:
    with acqstream.open(container) as found:
        return found.levels[0].read()


def check_whole(found: NDArray[Any], right: NDArray[Any], sides: Sequence[int]) -> bool:
    """Check that each block is right or all zeros; `sides` along z, y, x. Return True if one has pixels.

    A live level shows the values noted so far, so `found` may be smaller than `right` along the outer axes.
    """
    count = 0
    counts = (-(-size // side) for size, side in zip(right.shape[2:], sides, strict=True))
    for at in np.ndindex(*right.shape[:2], *counts):
        block = tuple(slice(n * side, (n + 1) * side) for n, side in zip(at, (1, 1, *sides), strict=True))
        shown = found[block]
        if shown.any():
            assert np.array_equal(shown, right[block][tuple(map(slice, shown.shape))]), at
            count += 1
    return count > 0


def test_mirrors_of_the_configuration(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", mirrors=["n5"], mirror_memory_mb=64) as daemon:
        with acqstream.create("one", endpoint=daemon.endpoint, axes=AXES) as run:
            put(run, interval_s=0.0)
        with acqstream.create("none", endpoint=daemon.endpoint, mirrors=[]) as plain:
            put(plain, interval_s=0.0)
        with pytest.raises(acqstream.AcquisitionRefused, match="N5 has no option 'level'"):
            acqstream.create("wrong", endpoint=daemon.endpoint, mirrors=[{"format": "n5", "level": 3}])
        with pytest.raises(acqstream.AcquisitionRefused, match="'n6' is not known; pyramid, n5"):
            acqstream.create("unknown", endpoint=daemon.endpoint, mirrors=["n6"])
        wait_until_done(daemon, "one")
    assert run.receipt is not None
    assert set(run.receipt.mirrors) == {"n5"}
    assert plain.receipt is not None
    assert plain.receipt.mirrors == {}
    with acqstream.open(tmp_path / "data" / "one.n5") as found:
        right = np.stack([image_of(number, SHAPE) for number in range(len(places()))])
        assert np.array_equal(found.levels[0].read(), right.reshape(*SIZES.values(), *SHAPE))
    assert mirror(str(tmp_path / "data" / "one"), "--to", "n5") == 0


def test_a_mirror_that_cannot_fit_into_memory_is_refused_when_the_run_is_opened(tmp_path: Path) -> None:
    frame = ((1024, 1024), "uint16")
    with DaemonProcess(tmp_path / "data", mirror_memory_mb=16) as daemon:
        with pytest.raises(acqstream.AcquisitionRefused) as caught:
            acqstream.create("large", endpoint=daemon.endpoint, axes=AXES, frame=frame, mirrors=["n5", "null"])
        assert caught.value.code == "no_memory"
        assert re.search(r"mirror 'n5': .* need at least [0-9]+ MiB: .* mirror_memory_mb allows 16", str(caught.value))
        assert [path for path in daemon.data.iterdir() if path.name.startswith("large")] == []
        smaller = [{"format": "n5", "blocks": [1, 256, 256], "levels": 1, "compression": "raw"}]
        with acqstream.create("small", endpoint=daemon.endpoint, frame=frame, mirrors=smaller) as run:
            run.put(np.full((1024, 1024), 7, "uint16"), time=0)
        wait_until_done(daemon, "small")
    assert run.receipt is not None
    assert run.receipt.complete


def test_who_did_not_ask_for_the_mirror_that_cannot_fit_records_without_it(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", mirror_memory_mb=16, mirrors=["n5"]) as daemon:
        frame = ((1024, 1024), "uint16")
        with acqstream.create("large", endpoint=daemon.endpoint, axes=AXES, frame=frame) as run:
            run.put(np.full((1024, 1024), 7, "uint16"), time=0, channel=0, z=0)
            failed = wait_for(daemon, "large", "n5", "failed")
    assert run.receipt is not None
    assert run.receipt.complete
    assert "mirror_memory_mb allows 16" in failed.reason
    assert failed.reason in run.receipt.mirrors["n5"]
    (warning,) = unstalled(run.warnings)
    assert (warning.code, "mirror_memory_mb allows 16" in warning.text) == ("no_mirror", True)
    told = mirror(str(tmp_path / "data" / "large"), "--to", "n5", "--memory-mb", "512")
    assert told == 0
