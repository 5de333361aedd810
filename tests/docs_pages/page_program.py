"""Runs in namespaces of its own and types what a page shows, in a root that only looks like the machine's.

The argument is a JSON file: "root" (an empty folder), "folders" (path inside -> folder outside), "environment", and
"steps". A step has "label", "language" ("python" or "shell") and "text"; "codes" are the exit codes that are right.
"until" makes it run beside the next ones, which begin when that shell command succeeds; "output" are words that it
prints. All Python of a page shares its names, all shell its folder and its variables. Ends with 1 and the reason at
the first step that fails.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

STEP_S = 120.0
ELSEWHERE = "10.99.0.1"  # the other machines of the pages
POLL_S = 0.1
_STATE = 'if [ -f /tmp/state ]; then . /tmp/state; cd "$(cat /tmp/folder)"; fi\n'
_SAVE = "\nexport -p > /tmp/state; pwd > /tmp/folder"


def enter(scene: dict[str, Any]) -> None:
    """A copy-on-write root: what a page writes to /etc or / is gone with the process."""
    top = scene["root"]
    mount("-t", "tmpfs", "tmpfs", top)
    for name in ("upper", "work", "root"):
        os.mkdir(f"{top}/{name}")
    root = f"{top}/root"
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={top}/upper,workdir={top}/work", root)
    for inside, outside in {**scene["folders"], "/dev": "/dev", "/sys": "/sys"}.items():
        os.makedirs(root + inside, exist_ok=True)
        mount("--rbind", outside, root + inside)
    mount("-t", "proc", "proc", f"{root}/proc")
    os.chroot(root)
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{ELSEWHERE} scope1 cluster detector\n", encoding="utf-8")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{ELSEWHERE}/32", "dev", "lo"], check=True)
    os.environ.update(scene["environment"])
    os.chdir(os.environ["HOME"])


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


class Typist:
    """Takes one step after the other."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__", "_shown": _shown}
        self._beside: list[tuple[dict[str, Any], subprocess.Popen[bytes]]] = []

    def take(self, step: dict[str, Any]) -> None:
        if step["language"] == "python":
            tree = _AxisEvidence(step["text"]).visit(ast.parse(step["text"], step["label"]))
            exec(compile(ast.fix_missing_locations(tree), step["label"], "exec"), self._names)  # noqa: S102 - ours
        elif "until" in step:
            self._start(step)
        else:
            self._run(step)

    def _run(self, step: dict[str, Any]) -> None:
        command = ["bash", "-ec", f"{_STATE}{step['text']}{_SAVE}"]
        with open("/tmp/printed", "w+b") as printed:
            done = subprocess.run(command, stdout=printed, stderr=printed, timeout=STEP_S, check=False)
        text = Path("/tmp/printed").read_text(encoding="utf-8", errors="replace")
        sys.stdout.write(f"{step['label']}\n{text}\n")
        sys.stdout.flush()
        assert done.returncode in step["codes"], f"ended with {done.returncode}, not {step['codes']}"
        missing = [words for words in step.get("output", []) if words not in text]
        assert not missing, f"does not print {missing}"

    def _start(self, step: dict[str, Any]) -> None:
        process = subprocess.Popen(["bash", "-c", _STATE + "exec " + step["text"]], start_new_session=True)
        self._beside.append((step, process))
        end = time.monotonic() + STEP_S
        while subprocess.run(["bash", "-c", step["until"]], check=False, capture_output=True).returncode != 0:
            assert process.poll() in (None, 0), f"ended with {process.returncode}"
            assert time.monotonic() < end, f"{step['until']!r} is not so after {STEP_S} s"
            time.sleep(POLL_S)

    def end(self) -> None:
        """Ctrl-C for what runs for ever; the others end by themselves."""
        for step, process in reversed(self._beside):
            if not step["ends"]:
                process.send_signal(signal.SIGINT)
            code = process.wait(STEP_S)
            assert code in step["codes"], f"{step['label']} ended with {code}, not {step['codes']}"


class _AxisEvidence(ast.NodeTransformer):
    """`ds.axes  # ("time", "y", "x")`: what the comment shows is compared."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        comment = self._lines[(node.end_lineno or 1) - 1].partition("#")[2].strip()
        try:
            ast.literal_eval(comment)
        except (SyntaxError, ValueError):
            return node
        call = ast.Call(ast.Name("_shown", ast.Load()), [node.value, ast.Constant(comment)], [])
        return ast.copy_location(ast.Expr(call), node)


def _shown(value: Any, comment: str) -> None:
    """Words as they are, of a mapping its keys; numbers depend on the data."""
    shown = ast.literal_eval(comment)
    assert type(value) is type(shown), f"{value!r}, not {shown!r}"
    assert list(value) == list(shown), f"{value!r}, not {shown!r}"


def main() -> int:
    scene = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    enter(scene)
    child = os.fork()
    if child:  # the first process of a namespace adopts all orphans
        while (ended := os.wait())[0] != child:
            pass
        return os.waitstatus_to_exitcode(ended[1])
    typist = Typist()
    step: dict[str, Any] = {"label": "the end"}
    try:
        for step in scene["steps"]:
            typist.take(step)
        step = {"label": "the end"}
        typist.end()
    except BaseException:  # noqa: BLE001 - whatever a page raises
        sys.stdout.write(f"FAILED at {step['label']}\n{step.get('text', '')}\n{traceback.format_exc()}")
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # an open run of the page would wait


if __name__ == "__main__":
    sys.exit(main())
