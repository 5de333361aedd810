"""A signal at a moment that is seldom met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """if True:
    import os, signal, sys
    from pathlib import Path
    from acqstream.bench.child_process import cleaned_up_if_interrupted, temporary_folder

    def delete(*arguments, call=getattr(os, sys.argv[2]), **how):
        setattr(os, sys.argv[2], call)
        if sys.argv[3] == "late":
            call(*arguments, **how)
        signal.raise_signal(signal.SIGTERM)
        if sys.argv[3] == "early":
            call(*arguments, **how)

    with cleaned_up_if_interrupted(), temporary_folder("bench-", Path(sys.argv[1])) as folder:
        if sys.argv[2] == "unlink":
            (folder / "a").touch()
            (folder / "b").touch()
        setattr(os, sys.argv[2], delete)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("call", ["unlink", "rmdir"])
def test_a_signal_while_the_folder_is_deleted_leaves_nothing_of_it(tmp_path: Path, call: str, when: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), call, when]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (143, "")
    assert list(tmp_path.iterdir()) == []
