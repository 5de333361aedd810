"""Threads of a log have names and end with the interpreter."""

from __future__ import annotations

from acqstream.log.threads import make_thread


def test_a_thread_has_a_name_and_keeps_no_interpreter_alive() -> None:
    thread = make_thread("write", "cells", lambda: None)
    assert (thread.name, thread.daemon, thread.is_alive()) == ("write-cells", True, False)
