"""Arguments of wrong types: errors of this package that name the argument, and nothing is opened."""

from __future__ import annotations

import inspect
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acqstream.client.producer import create
from acqstream.errors import AcqStreamError, ConfigError, FrameRefused, ProtocolError
from acqstream.model.acquisition_spec import AxisSpec

GRAY = np.arange(6, dtype="<u2").reshape(2, 3)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


NAN, INFINITE = float("nan"), float("inf")
NO_TEXT = [None, 3, 2.5, True, b"x", ["x"], object(), np.arange(3), Unshowable(), "\ud800"]
NO_NUMBER = ["3", b"3", [3], object(), np.arange(3), 1j, Decimal(3), True, NAN, INFINITE, -1, 0, 10**400]
NO_FLAG = [None, 2, 0.0, "yes", b"x", [], object(), np.arange(3)]
NO_CHOICE = [3, True, b"error", ["error"], object(), np.arange(3), "ERROR", ""]
NO_LIST = [3, 2.5, True, "time", b"x", {"name": "time"}, object(), np.array(3)]
WRONG: dict[str, list[Any]] = {
    "name": NO_TEXT,
    "endpoint": [*NO_TEXT[1:], "tcp://[::1", "nonsense", ""],  # None: the first daemon that is found
    "data": [3, 2.5, True, b"x", [], object(), "\0", "", "missing", __file__],
    "summary": [3, 2.5, True, "x", b"x", [], [("a", 1)], object(), np.arange(3)],
    "mirrors": [*NO_LIST, [3], [None], [b"n5"], [["n5"]]],
    "expect": ["3", b"3", [3], object(), np.arange(3), 2.5, NAN, INFINITE, True, np.True_, -1, 2**63],
    "axes": [*NO_LIST, [3], [None], [b"t"], [{"size": 3}], [AxisSpec(3)], [AxisSpec("t", labels=3)], [{"name": 3}]],  # type: ignore[arg-type]
    "durability": [*NO_NUMBER, "never", 3601],
    "patience_s": [None, *NO_NUMBER],
    "buffer_mb": [None, *NO_NUMBER, 1e6],
    "on_exists": [None, *NO_CHOICE],
    "micromanager": NO_FLAG,
    "duplicates": NO_CHOICE,
    "tiles": [3, 2.5, True, "x", b"x", [3, 4], object(), {}, {"overlap": 3}, {"overlap": object()}, {3: 4, "x": 1}],
    "levels": [None, 2.5, NAN, True, "all", b"x", [2], object(), np.arange(3), 2],
    "on_error": [3, "x", [], object(), True],
    "frame": [3, 2.5, True, "x", b"x", object(), [[1, 2], [3]], (GRAY, GRAY), ((2.5, NAN), "u2"), ((2, 3), "<u2,")],
    "resume": NO_FLAG,
    "transport": [None, *NO_CHOICE, "udp"],
    "server_key": [3, 2.5, True, b"x", [], object(), "\0"],
    "keys": [3, 2.5, True, b"x", [], object(), "\0"],
}
CASES = [
    pytest.param(argument, value, id=f"{argument}-{position}")
    for argument, values in WRONG.items()
    for position, value in enumerate(values)
]


def test_every_argument_of_create_is_in_the_table():
    assert set(WRONG) == set(inspect.signature(create).parameters)


@pytest.mark.parametrize(("argument", "value"), CASES)
def test_a_wrong_argument_of_create_is_named(daemon, argument, value):
    arguments = {"name": "cells", "endpoint": daemon.endpoint, "buffer_mb": 1, argument: value}
    if argument == "data":
        del arguments["endpoint"]
    if argument in ("server_key", "keys"):
        arguments = {"server_key": "x" * 40, "keys": "missing.key_secret", **arguments}
    with pytest.raises(ConfigError) as caught:
        create(**arguments)
    assert argument in str(caught.value)
    assert len(str(caught.value)) < 300
    assert not daemon.requests


GOOD: dict[str, Any] = {
    "name": np.str_("cells"),
    "summary": {},
    "mirrors": np.array(["n5"]),
    "expect": np.int64(3),
    "axes": (name for name in ("time", "z")),
    "durability": np.float32(0.5),
    "patience_s": np.float64(20),
    "buffer_mb": np.int32(1),
    "on_exists": np.str_("number"),
    "micromanager": np.False_,
    "frame": GRAY,
    "resume": 0,
    "transport": np.str_("auto"),
}


@pytest.mark.parametrize("argument", GOOD)
def test_values_from_numpy_are_what_they_stand_for(daemon, argument):
    arguments = {"name": "cells", "endpoint": daemon.endpoint, "buffer_mb": 1, argument: GOOD[argument]}
    create(**arguments).close()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(argument=st.sampled_from(sorted(WRONG)), value=ANYTHING)
def test_no_value_of_any_type_is_another_error(argument, value, tmp_path_factory):
    """The endpoint is one that nobody listens at: what is not refused here finds no daemon."""
    assume(argument != "endpoint" or value is not None)  # that could be a daemon of the developer's own
    folder = tmp_path_factory.getbasetemp()
    arguments = {"name": "cells", "endpoint": f"ipc://{folder}/none.sock", "buffer_mb": 1, "patience_s": 0.01}
    arguments[argument] = value
    if argument in ("patience_s", "buffer_mb") and isinstance(value, int | float) and not isinstance(value, bool):
        arguments[argument] = min(value, 0.01)  # the test is not to wait, nor to take all memory
    with pytest.raises(AcqStreamError):
        create(**arguments)  # type: ignore[arg-type]


# --- run.put ----------------------------------------------------------------------------------------------------------

PUT: dict[str, dict[str, Any]] = {
    "axes of a list": {"axes": [("time", 1)]},
    "axes of a number": {"axes": 3},
    "axes of text": {"axes": "time"},
    "axis of a list": {"axes": {"time": [1]}},
    "axis of None": {"axes": {"time": None}},
    "axis of NaN": {"axes": {"time": NAN}},
    "axis of bytes": {"axes": {"time": b"1"}},
    "axis named by a number": {"axes": {3: 1}},
    "axis named by bytes": {"axes": {b"time": 1}},
    "axis of an array": {"axes": {"time": np.arange(3)}},
    "axis of an object": {"axes": {"time": object()}},
    "meta of a list": {"meta": [1]},
    "meta of nothing": {"meta": []},
    "meta of a number": {"meta": 0},
    "meta of an array": {"meta": np.arange(3)},
    "meta of text": {"meta": "x"},
    "bits of a list": {"bits": [12]},
    "bits of NaN": {"bits": NAN},
    "bits of infinity": {"bits": INFINITE},
    "bits of text": {"bits": "12"},
    "bits of True": {"bits": True},
    "time of a list": {"time_ns": [1]},
    "time of NaN": {"time_ns": NAN},
    "time of infinity": {"time_ns": INFINITE},
    "time of text": {"time_ns": "1"},
    "time of an array": {"time_ns": np.arange(3)},
    "no image": {"image": None},
    "image of text": {"image": "x"},
    "image of bytes": {"image": b"xx"},
    "image of ragged lists": {"image": [[1, 2], [3]]},
    "image of an object": {"image": object()},
    "image of a number": {"image": 3},
    "image of complex numbers": {"image": np.zeros((2, 2), complex)},
    "image of records": {"image": np.zeros((2, 2), [("a", "u1"), ("b", "u1")])},
    "shape of a float": {"image": None, "shape": 2.5},
}


@pytest.mark.parametrize("case", PUT)
def test_a_wrong_argument_of_put_leaves_the_run_as_it_was(daemon, case):
    with create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
        arguments = {"image": GRAY, "axes": None, **PUT[case]}
        image, axes, _ = arguments.pop("image"), arguments.pop("axes"), arguments.pop("shape", None)
        with pytest.raises((ProtocolError, FrameRefused)):
            run.put(image, axes, **arguments)
        with pytest.raises((ProtocolError, FrameRefused)):
            if "image" in PUT[case]:
                with run.reserve(image, image, axes, **arguments):
                    pass
            else:
                with run.reserve((2, 3), "u2", axes, **arguments):
                    pass
        assert run.next == 0
        run.put(GRAY, time=0)
    assert run.receipt is not None
    assert run.receipt.stored == 1


def test_other_methods_refuse_wrong_types_too(daemon):
    with create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
        for count in (None, 1.0, "1", True, -1, np.arange(2)):
            with pytest.raises(ProtocolError, match="count"):
                run.skip(count, reason="x")
        for values in (3, "x", [1], np.arange(3)):
            with pytest.raises(ProtocolError, match="mapping"):
                run.patch(summary=values)
        for status in (None, 3, np.arange(3), ["completed"]):
            with pytest.raises(ConfigError, match="status="):
                run.close(status)
        run.skip(1, reason=None)  # type: ignore[arg-type]
        assert run.close("canceled", reason=3).reason == "3"  # type: ignore[arg-type]


# --- masks ------------------------------------------------------------------------------------------------------------


class Masked(np.ndarray):
    """As that of astropy: an array with another one, `mask`."""

    mask = np.array([[False, True, False], [True, False, False]])


def test_masked_pixels_are_refused_and_the_error_says_what_to_do(daemon):
    with create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
        run.put(GRAY, time=0)
        masked = np.ma.masked_less(GRAY, 2)
        for image in (masked, GRAY.view(Masked)):
            with pytest.raises(FrameRefused, match=r"frame 1: 2 pixels are masked.*filled\(value\)") as caught:
                run.put(image, time=1)
            assert caught.value.number == 1
        run.put(masked.filled(9), time=1)
        for time, mask in enumerate((False, np.zeros(GRAY.shape, bool)), 2):
            run.put(np.ma.MaskedArray(GRAY, mask), time=time)
    pixels = [np.frombuffer(daemon.frames[number][1], "<u2").tolist() for number in range(4)]
    assert pixels == [[0, 1, 2, 3, 4, 5], [9, 9, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


def test_other_arrays_lose_nothing(daemon, tmp_path: Path):
    file = np.memmap(tmp_path / "image", "<u2", "w+", shape=GRAY.shape)
    file[:] = GRAY
    with create("cells", endpoint=daemon.endpoint, buffer_mb=1) as run:
        for time, image in enumerate((file, GRAY.view(np.recarray), GRAY.data)):
            run.put(image, time=time)
    assert [pixels for _, pixels in daemon.frames.values()] == 3 * [GRAY.tobytes()]
