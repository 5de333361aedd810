"""A child process that ends with its parent, and the socket between them."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from acqstream.storage.handover import OrderSender
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import child_process
from tests.waiting import until

ROOT = os.getcwd()

ECHO = """
import sys
from acqstream.storage.handover import receive_orders
from acqstream.storage.platform import child_process
child_process.follow_parent(sys.argv[2])
child_process.yield_to_parent()
with child_process.adopt_connection(sys.argv[1]) as connection:
    for order, maps in receive_orders(connection):
        connection.sendall(bytes(maps[0][:order["length"]]))
"""

DEAF = """
import sys, time
from acqstream.storage.platform import child_process
child_process.follow_parent(sys.argv[2])
time.sleep(600)
"""

PARENT = """
import os, sys
from acqstream.storage.platform import child_process
child = child_process.ChildProcess([sys.executable, "-c", sys.argv[1]], os.environ)
print(child.pid, flush=True)
sys.stdin.read()
"""

STARTER = """
import subprocess, sys
null = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **null)
sys.stderr.write(f"{child.pid}\\n")
sys.stderr.flush()
if sys.argv[1] == "stay":
    sys.stdin.read()
"""


def test_orders_reach_it_with_memory_and_it_ends_with_the_connection() -> None:
    memory = PageMemory(8192, shared=True)
    memory.view[:5] = b"hello"
    child = child_process.ChildProcess([sys.executable, "-c", ECHO], {**os.environ, "PYTHONPATH": ROOT})
    with child.connection as connection:
        sender = OrderSender(connection, child.pid)
        handles = [memory.descriptor] if memory.descriptor is not None else []
        assert handles
        sender.add({"length": 5}, *handles)
        sender.send()
        connection.settimeout(60)
        assert connection.recv(100) == b"hello"
        assert psutil.Process(child.pid).ppid() == os.getpid()
    assert child.wait(60) == 0
    child.release()
    child.release()


def test_it_is_killed_with_a_parent_that_is_killed() -> None:
    """Although it takes no notice of its connection."""
    command = [sys.executable, "-c", PARENT, DEAF]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert psutil.pid_exists(child)
        parent.kill()
    until(lambda: not is_running(child), "the child has ended")


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_that_is_missing_leaves_nothing() -> None:
    before = psutil.Process().num_fds() if hasattr(psutil.Process, "num_fds") else psutil.Process().num_handles()
    for _ in range(20):
        try:
            child_process.ChildProcess(["/no/such/program"], os.environ)
        except OSError:
            continue
        raise AssertionError("it was started")
    after = psutil.Process().num_fds() if hasattr(psutil.Process, "num_fds") else psutil.Process().num_handles()
    assert after - before < 10


def test_a_group_lives_on_without_its_program() -> None:
    program = child_process.GroupProcess([sys.executable, "-c", STARTER, "end"], os.environ)
    assert program.stdin is not None
    assert program.stderr is not None
    with program.stdin, program.stderr:  # not to its end: under Wine the child has it open, too
        child = int(program.stderr.readline())
    program.wait()
    program.release()
    assert is_running(child)
    psutil.Process(child).kill()


def test_a_group_is_killed_with_its_program() -> None:
    program = child_process.GroupProcess([sys.executable, "-c", STARTER, "stay"], os.environ)
    assert program.stderr is not None
    child = int(program.stderr.readline())
    program.kill_all()
    program.communicate()
    program.release()
    until(lambda: not is_running(child), "what it has started has ended")
