"""Acquisitions of Pycro-Manager with a real core, read back from the disk."""

from __future__ import annotations

import hashlib
import importlib.util

import pytest

import acqstream
from acqstream.model.state import AcquisitionState
from tests.client.pycromanager import microscope
from tests.log.read_back import open_pyramid

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("pycromanager") and importlib.util.find_spec("mm_test_adapters")),
        reason="needs pycromanager and mm-test-adapters",
    ),
]

THREE_WAYS = """
import tempfile

BURST = [{"axes": {"time": t}} for t in range(60)]
PLANES = pycromanager.multi_d_acquisition_events(
    num_time_points=3, channel_group="Channel", channels=["DAPI", "FITC"], z_start=0, z_end=2, z_step=1, order="tcz"
)


def submit(acq, kind):
    if kind == "burst":
        acq.acquire(BURST)
    else:
        for event in PLANES:  # one by one: snapped
            acq.acquire(event)


for kind in ("burst", "snapped"):
    for way in ("divert", "tee", "sink"):
        seen, name, local = [], f"{kind}-{way}", 0

        def look(image, metadata):
            seen.append([metadata["Axes"], sha(image)])
            return image, metadata

        if way == "sink":
            with Acquisition(name, image_process_fn=look, **options) as acq:
                submit(acq, kind)
            run = acq.run
        else:
            with acqstream.create(name, **options) as run, tempfile.TemporaryDirectory() as folder:
                put = forward(run, keep_local=way == "tee")
                hook = lambda image, metadata, events: put(*look(image, metadata), events)
                with pycromanager.Acquisition(folder, "local", image_process_fn=hook) as acq:
                    submit(acq, kind)
                local = len(acq.get_dataset().get_image_coordinates_list())
                acq.get_dataset().close()
        tell(name=name, seen=seen, path=run.path, complete=run.receipt.complete, local=local)
"""


@pytest.mark.timeout_s(90)
def test_divert_tee_and_sink_store_what_the_hook_saw(shared_daemon):
    told = microscope.run(THREE_WAYS, endpoint=shared_daemon.endpoint)
    assert [result["name"] for result in told] == [
        f"{kind}-{way}" for kind in ("burst", "snapped") for way in ("divert", "tee", "sink")
    ]
    for result in told:
        count = 60 if result["name"].startswith("burst") else 18
        assert result["complete"]
        assert result["local"] == (count if result["name"].endswith("tee") else 0)
        assert len({sha for _, sha in result["seen"]}) == count
        with acqstream.open(result["path"]) as dataset:
            keys = list(dataset.keys())
            stored = [[key, hashlib.sha256(dataset.read_frame(key).tobytes()).hexdigest()] for key in keys]
            assert stored == result["seen"]
            metadata = [dataset.read_metadata(key) for key in keys]
            assert ("Core-Camera" in dataset.summary_metadata) == result["name"].endswith("sink")
        for key, entry in zip(keys, metadata, strict=True):
            assert (entry["Width"], entry["Height"], entry["PixelType"]) == (64, 32, "GRAY16")
            assert (entry["Axes"], entry["Camera"]) == (key, "Camera")
        elapsed = [entry["ElapsedTime-ms"] for entry in metadata]
        assert elapsed == sorted(elapsed)
        assert len(set(elapsed)) == count


ENDS = """
def forever():
    number = 0
    while True:
        yield {"axes": {"time": number}}
        number += 1
        time.sleep(0.002)


def refuse(*arguments):
    raise ValueError("a callback's own error")


def in_sink(events, **hooks):
    with Acquisition("cells", on_exists="number", **options, **hooks) as acq:
        ends.append(acq)
        acq.acquire(events() if callable(events) else events)
        if events is later:
            while acq.run.next < 1:
                time.sleep(0.005)
            acq.abort()


ends = []
later = [{"axes": {"time": 0}}, {"axes": {"time": 1}, "min_start_time": 600}]
events = [{"axes": {"time": number}} for number in range(200)]
for hook in ("image_saved_fn", "notification_callback_fn", "pre_hardware_hook_fn", "image_process_fn"):
    function = {"image_saved_fn": lambda axes, dataset: refuse(), "image_process_fn": lambda image, meta: refuse()}
    tell(**error_of(lambda: in_sink(events, **{hook: function.get(hook, lambda event: refuse())})))
tell(**error_of(lambda: in_sink(forever, image_process_fn=lambda image, meta: refuse())))
tell(**error_of(lambda: in_sink([{"axes": {"time": 0}, "exposure": "long"}, {"axes": {"time": 1}, "tags": {"a": 1}}])))
tell(**error_of(lambda: in_sink(later)))
tell(statuses=[acq.receipt.status for acq in ends])


def in_block():
    with Acquisition("cells", on_exists="number", **options) as acq:
        ends.append(acq)
        acq.acquire(forever())
        raise KeyError("the user's own")


tell(**error_of(in_block))
tell(**error_of(lambda: in_sink(events[:3])))
tell(status=ends[-2].receipt.status, reason=ends[-2].receipt.reason, stored=ends[-1].receipt.stored)
"""


@pytest.mark.timeout_s(90)
def test_every_failing_callback_ends_the_acquisition_with_its_error(shared_daemon):
    told = microscope.run(ENDS, endpoint=shared_daemon.endpoint)
    failing = told[:5]
    unreadable, canceled, statuses, block, after, last = told[5:]
    assert [(one["kind"], one["text"]) for one in failing] == [("ValueError", "a callback's own error")] * 5
    assert unreadable["kind"] == "ConfigError"
    assert canceled["kind"] is None
    assert canceled["took_s"] < 5
    assert statuses == {"statuses": ["error"] * 6 + ["canceled"]}
    assert block["kind"] == "KeyError"
    assert after["kind"] is None
    assert last["status"] == "error"
    assert "the user's own" in last["reason"]
    assert last["stored"] == 3


NO_DAEMON = """
before = threading.active_count()
tell(**error_of(lambda: Acquisition("cells", **options)))
tell(threads=threading.active_count() - before)
"""


def test_without_a_daemon_nothing_starts(free_endpoint):
    error, threads = microscope.run(NO_DAEMON, endpoint=free_endpoint, patience_s=1.0)
    assert error["kind"] == "DaemonUnavailable"
    assert threads == {"threads": 0}


REFUSED = """
tell(**error_of(lambda: Acquisition("set-up", image_saved_fn=lambda: None, **options)))
core.set_property("Camera", "PixelType", "32bitRGB")  # which Pycro-Manager itself cannot take
tell(**error_of(lambda: Acquisition("colours", **options)))
"""


def test_a_failing_set_up_ends_its_run_and_lets_the_interpreter_exit(shared_daemon):
    parameters, colours = microscope.run(REFUSED, endpoint=shared_daemon.endpoint)
    assert "parameters" in parameters["text"]
    assert colours["kind"] == "ConfigError"
    with acqstream.open(shared_daemon.data / "set-up") as dataset:
        assert dataset.state is AcquisitionState.ERRORED
    assert not (shared_daemon.data / "colours").exists()


TILED = """
events = [
    {"axes": {"row": row, "column": column, "time": 0}, "x": 20.0 * column, "y": 10.0 * row}
    for row in range(-1, 1)
    for column in range(3)
]
with Acquisition("tiles", tile_overlap=(10, 6), max_multi_res_index=0, show_display=False, **options) as acq:
    for event in events:
        acq.acquire(event)
tell(path=acq.run.path, stored=acq.receipt.stored)
"""


def test_tiles_in_the_words_of_pycromanager(shared_daemon):
    [told] = microscope.run(TILED, endpoint=shared_daemon.endpoint)
    assert told["stored"] == 6
    with open_pyramid(told["path"]) as pyramid:
        assert pyramid.overlap.tolist() == [6, 10]
        assert pyramid.read_image(row=-1, column=2, time=0).shape == (32, 64)
        tags = pyramid.read_metadata(row=0, column=2, time=0)
    assert (tags["XPositionUm"], tags["YPositionUm"]) == (40.0, 0.0)
    assert tags["PixelSizeUm"] > 0
