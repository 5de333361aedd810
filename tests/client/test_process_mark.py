"""The mark of this process, before and after a fork."""

import os

import pytest

from acqstream.client.frame_buffer import THIS_PROCESS


def test_the_mark_is_the_id_of_this_process() -> None:
    assert THIS_PROCESS.number == os.getpid()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_mark_of_its_own() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if THIS_PROCESS.number == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert THIS_PROCESS.number == os.getpid() != child
