"""Output that nobody takes: it is dropped and counted, and never waited for."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from acqstream.storage.patient_output import MAX_PIECE_BYTES, MAX_PIECES, PatientOutput
from tests.waiting import in_time, until

PROGRAM = """
import logging, sys
from acqstream.storage.patient_output import never_wait_for_output
never_wait_for_output()
logging.basicConfig(level=logging.INFO)
for number in range(int(sys.argv[1])):
    logging.info("line %d", number)
    print("on stdout", "x" * 200)
sys.stdin.readline()
raise ValueError("the end, \\u00b5")
"""


def test_what_a_blocked_file_does_not_take_is_dropped_and_told_when_it_works_again() -> None:
    may_write, written = threading.Event(), []

    def write(data: bytes) -> int:
        assert may_write.wait(in_time(30.0))
        written.append(data[:7])
        return len(data[:7])  # as a pipe that is nearly full

    output = PatientOutput("test", write)
    for number in range(MAX_PIECES + 11):
        output.write(b"line %d\n" % number)
    output.write(b"x" * (MAX_PIECE_BYTES + 1))
    assert output.n_dropped in (11, 12)  # the thread may have taken one
    assert not output.drain(0.01)
    may_write.set()
    until(lambda: b"dropped" in b"".join(written), "the number of dropped lines")
    lines = b"".join(written).decode().splitlines()
    assert lines[:-1] == [f"line {number}" for number in range(len(lines) - 1)]
    assert lines[-1] == f"{output.n_dropped} messages were dropped: they could not be written here in time"
    output.write(b"after\n")
    assert output.drain(in_time(30.0))
    assert b"".join(written).endswith(b"in time\nafter\n")


def test_a_file_that_fails_costs_its_lines_only() -> None:
    def write(_data: bytes) -> int:
        raise OSError(5, "a closed terminal")

    output = PatientOutput("test", write)
    output.write(b"a line\n")
    assert output.drain(in_time(30.0))
    assert output.n_dropped == 1


@pytest.mark.promise("session-ends")
@pytest.mark.parametrize("is_read", [False, True])
def test_a_program_whose_pipes_nobody_reads_goes_on_and_ends(is_read: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "400" if is_read else "5000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    if is_read:
        out, errors = process.communicate(b"end\n")
        assert errors.count(b"INFO:root:line ") == 400
        assert errors.decode().replace("\r", "").endswith("ValueError: the end, \u00b5\n")
        assert out.startswith(b"on stdout xx")
    else:
        process.stdin.write(b"end\n")
        process.stdin.flush()
    assert process.wait(in_time(30.0)) == 1
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
