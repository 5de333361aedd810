"""Notes during a run: from its own program, from a terminal, after a killed daemon, and to an old or full one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import send_note
from acqstream.client.default_endpoint import ENDPOINT_VARIABLE
from acqstream.errors import AcquisitionFailed, AcquisitionRefused, ProtocolError
from acqstream.formats.ndtiff.folders import NOTES_NAME
from acqstream.model.run_note import RunNote, new_note
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

IMAGE = np.zeros((8, 8), np.uint16)


def facts(notes: tuple[RunNote, ...]) -> list[tuple[str, int | None, str]]:
    return [(one.text, one.frame, one.source) for one in notes]


def test_notes_of_a_run_have_time_frame_and_values(shared_daemon: DaemonProcess) -> None:
    before = time.time_ns()
    with acqstream.create("timed", endpoint=shared_daemon.endpoint) as run:
        run.note("before the first frame")
        run.put(IMAGE, time=0)
        run.put(IMAGE, time=1)
        run.note("drug added", drug="DMSO", ul=np.float32(2.5))
        run.note("seen earlier", time_ns=17)
        run.put(IMAGE, time=2)
    after = time.time_ns()
    with acqstream.open(run.path) as dataset:
        notes = dataset.notes
    assert facts(notes) == [
        ("before the first frame", 0, "run"),
        ("drug added", 2, "run"),
        ("seen earlier", 2, "run"),
    ]
    assert [dict(one.values) for one in notes] == [{}, {"drug": "DMSO", "ul": 2.5}, {}]
    assert notes[2].time_ns == 17
    assert before <= notes[0].time_ns <= notes[1].time_ns <= after
    assert run.warnings == ()


def test_a_run_without_notes_has_no_file_of_them(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("silent", endpoint=shared_daemon.endpoint) as run:
        run.put(IMAGE, time=0)
    assert not Path(run.path, NOTES_NAME).exists()
    with acqstream.open(run.path) as dataset:
        assert dataset.notes == ()


def test_a_hundred_notes_at_once_are_stored_in_order(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("many", endpoint=shared_daemon.endpoint) as run:
        for number in range(100):
            run.note(f"note {number}")
            if number % 10 == 0:
                run.put(IMAGE, time=number)
    with acqstream.open(run.path) as dataset:
        assert [one.text for one in dataset.notes] == [f"note {number}" for number in range(100)]
    assert run.warnings == ()


def test_a_terminal_adds_notes_to_the_run_and_later_to_its_folder(
    shared_daemon: DaemonProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with acqstream.create("cells", endpoint=shared_daemon.endpoint) as run:
        run.put(IMAGE, time=0)
        with acqstream.open(run.path, wait_s=30) as growing:
            assert growing.notes == ()
            until(lambda: run.progress.received == 1, "the daemon has the frame")
            main_ok(["note", "cells", "drug added", "--endpoint", shared_daemon.endpoint])
            assert f"noted in {run.path}, before frame 1: drug added" in capsys.readouterr().out
            growing.refresh()
            assert facts(growing.notes) == [("drug added", 1, "terminal")]
        Path(shared_daemon.home, "cells").mkdir()  # nothing of ours
        monkeypatch.chdir(shared_daemon.home)
        main_ok(["note", "cells", "fixed", "--endpoint", shared_daemon.endpoint])
        assert f"noted in {run.path}, before frame 1: fixed" in capsys.readouterr().out
        monkeypatch.chdir(shared_daemon.data)  # no daemon answers at the usual address, but the run's folder is here
        monkeypatch.setenv(ENDPOINT_VARIABLE, "tcp://127.0.0.1:9")
        main_ok(["note", "cells", "washed out"])
        assert "before frame 1: washed out" in capsys.readouterr().out
    main_ok(["note", run.path, "cells look \N{GREEK SMALL LETTER ALPHA}"])
    assert "after the run: cells look" in capsys.readouterr().out
    monkeypatch.chdir(shared_daemon.home)
    main_ok(["note", "cells", "by its name", "--data", str(shared_daemon.data)])
    assert f"noted in {run.path}, after the run: by its name" in capsys.readouterr().out
    with acqstream.open(run.path) as dataset:
        assert facts(dataset.notes) == [
            ("drug added", 1, "terminal"),
            ("fixed", 1, "terminal"),
            ("washed out", 1, "terminal"),
            ("cells look α", None, "terminal"),
            ("by its name", None, "terminal"),
        ]
    main_ok(["info", run.path])
    shown = capsys.readouterr().out
    assert "before frame 1 (terminal): drug added" in shown
    assert "after the run (terminal): cells look" in shown
    main_ok(["info", "--json", run.path])
    assert json.loads(capsys.readouterr().out)["notes"][0]["text"] == "drug added"
    main_ok(["verify", run.path])


def main_ok(arguments: list[str]) -> None:
    assert command(*arguments) == 0


def test_an_unknown_name_and_a_folder_without_frames_are_refused(
    shared_daemon: DaemonProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command("note", "absent", "text", "--endpoint", shared_daemon.endpoint)
    assert "'absent'; a run that has ended is named by the path of its folder" in capsys.readouterr().err
    command("note", tmp_path, "text")
    assert "not an NDTiff dataset" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_note_is_refused_at_once(shared_daemon: DaemonProcess) -> None:
    with acqstream.create("wrong", endpoint=shared_daemon.endpoint) as run:
        for text, values in (("", {}), ("x" * 1001, {}), ("\x1b[2J", {}), (7, {}), ("x", {"values": "y" * 5000})):
            with pytest.raises(ProtocolError):
                run.note(text, **values)  # type: ignore[arg-type]
        with pytest.raises(ProtocolError, match="time_ns"):
            run.note("x", time_ns=-1)
        run.put(IMAGE, time=0)
    with pytest.raises(AcquisitionFailed, match="closed"):
        run.note("too late")
    assert not Path(run.path, NOTES_NAME).exists()


def test_the_wire_refuses_a_bad_note_and_names_it(shared_daemon: DaemonProcess) -> None:
    ds = new_dataset_id()
    bad: tuple[dict[str, Any], ...]
    bad = (
        {"text": ""},
        {"text": 5},
        {"values": []},
        {"n": -1},
        {"tns": 2**63},
        {"id": "x"},
    )
    with WireClient(shared_daemon.endpoint) as client, WireClient(shared_daemon.endpoint) as other:
        assert client.hello()["notes"] is True
        client.open("wire", ds)
        good: dict[str, Any] = {"id": "note-1", "ds": ds, "text": "good", "tns": 5}
        for wrong in (*bad, {"source": "\n"}):
            client.send("note", **{**good, **wrong})
            answer = client.wait_for("error")
            assert (answer["code"], answer["id"]) == ("bad_header", wrong.get("id", "note-1"))
        for unnamed in ("\ud800", "x" * 65, 7, None):
            client.send("note", **{**good, "id": unnamed})
            assert "id" not in client.wait_for("error")
        for _ in range(2):
            client.send("note", **good)
            noted = client.wait_for("noted")
            assert (noted["id"], noted["ds"], noted["n"]) == ("note-1", ds, 0)
        client.send("note", id="note-2", name="wire", text="by name")
        assert client.wait_for("noted")["id"] == "note-2"
        other.send("note", **{**good, "id": "note-3"})
        assert other.wait_for("error")["code"] == "denied"
        client.send("close", ds=ds, n=0)
        client.wait_for("closed")
    with acqstream.open(noted["path"]) as dataset:
        assert [(one.id, one.text, one.time_ns == 5) for one in dataset.notes] == [
            ("note-1", "good", True),
            ("note-2", "by name", False),
        ]


def test_a_note_is_stored_once_whoever_was_killed(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        with acqstream.create("killed", endpoint=daemon.endpoint, patience_s=60) as run:
            run.put(IMAGE, time=0)
            run.note("before")
            until(lambda: Path(run.path, NOTES_NAME).exists(), "the first note is on its way to the disk")
            daemon.kill()
            for number in range(5):
                run.note(f"while it was away {number}")
            run.put(IMAGE, time=1)
            daemon.start()
            run.note("after")
        with acqstream.open(run.path) as dataset:
            expected = ["before", *(f"while it was away {number}" for number in range(5)), "after"]
            assert [one.text for one in dataset.notes] == expected
            assert [one.frame for one in dataset.notes] == [1, *[1] * 5, 2]


def test_a_full_disk_refuses_the_note_and_takes_the_frames(tmp_path: Path) -> None:
    prelude = """
import errno
from acqstream.storage.files.append_file import AppendFile
from acqstream.errors import StorageError
append = AppendFile.append
def full(self, entries):
    if "notes" in self.path and b"refused" in entries:
        raise StorageError.wrap(OSError(errno.ENOSPC, "no space left"), self.path, "cannot append")
    append(self, entries)
AppendFile.append = full
"""
    with DaemonProcess(tmp_path / "data", prelude=prelude) as daemon:
        refused = pytest.raises(AcquisitionRefused, match="'refused' was not confirmed")
        with refused, acqstream.create("full", endpoint=daemon.endpoint) as run:
            run.note("stored")
            run.note("refused")
            run.put(IMAGE, time=0)
            until(lambda: len(run.warnings) > 0, "the refusal is reported")
            with pytest.raises(AcquisitionRefused, match="no space") as info:
                send_note("full", new_note("refused too", "terminal"), daemon.endpoint)
            assert info.value.code == "disk_full"
            run.note("stored too")
            run.put(IMAGE, time=1)
        (warning,) = run.warnings
        assert warning.code == "note_refused"
        assert "'refused'" in warning.text
        assert "no space" in warning.text
        assert run.receipt is not None
        assert run.receipt.complete
        with acqstream.open(run.path) as dataset:
            assert [one.text for one in dataset.notes] == ["stored", "stored too"]
