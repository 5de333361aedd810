"""What each page takes for granted, and what of it cannot run here, with the reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.docs_pages.blocks import ROOT


@dataclass(frozen=True)
class Excuse:
    """Statements of a page (of any, if empty) that begin with `start`; how many there are, and why they do not run.

    They are checked all the same: options, extras and files of the checkout that they name exist, Python compiles.
    """

    reason: str
    count: int
    start: str = ""
    page: str = ""


EXCUSES = (
    Excuse("needs the package index", 10, "pip install"),
    Excuse("needs the package index", 1, "pip download"),
    Excuse("needs the package index", 2, "pipx install"),
    Excuse("needs the package index", 1, "python3 -m venv try"),
    Excuse("needs the package index", 1, "mmcore install"),
    Excuse("minutes; .ci/run calls the second, which runs the first", 2, "python3 tools/run.py"),
    Excuse("minutes to hours, and disks of its own; tests/faults runs each fault", 6, page="docs/faults.md"),
    Excuse(
        "needs a booted systemd; tests/live/test_booted_service.py types them there", 23, page="docs/system-service.md"
    ),
    Excuse("needs Windows", 4, page="docs/windows.md"),
    Excuse("needs an environment of its own; tests/oracles/hsds_server.py types it there", 1, "BUCKET_NAME"),
    Excuse("needs an environment of its own; tests/oracles/hsds_program.py does it there", 1, "import h5pyd"),
    Excuse("needs napari's window, which is open until somebody closes it", 1, "napari --plugin"),
    Excuse("needs napari's window, which is open until somebody closes it", 1, "import napari, dask.array"),
    Excuse("needs a bucket and a server elsewhere; tests/dataset opens URLs of local ones", 1, 'acqstream.open("s3://'),
)

# Blocks that are no language: files of a folder, drawings, bytes. Outputs are compared (OUTPUTS).
TEXTS = {
    "docs/command-line.md": 2,
    "docs/dataset-folder.md": 2,
    "docs/hsds.md": 2,
    "docs/install.md": 1,
    "docs/ome-zarr.md": 1,
    "docs/protocol.md": 6,  # hex, dialogue and hand-over: tests/protocol/test_protocol_page.py reads them
    "docs/views.md": 3,
    "docs/wkw.md": 1,
}

# Blocks that show the output of the statement before them: the words that stand before a colon.
OUTPUTS = {"docs/doctor.md", "docs/verify.md"}

# Commands that run for ever, or beside the next ones; these begin when the second command succeeds.
SERVE_ANSWERS = "(</dev/tcp/127.0.0.1/5271) 2>/dev/null"
WEB_ANSWERS = "(</dev/tcp/127.0.0.1/5280) 2>/dev/null"
BESIDE = {
    "acqstream serve": SERVE_ANSWERS,
    "acqstream web": WEB_ANSWERS,
    "acqstream receive --stream tcp://detector": "test -e /data/scan/NDTiff.index",
    "acqstream receive --stream tcp://127.0.0.1": "test -e /data/scan_1/NDTiff.index",
    "acqstream receive --format dectris": "test -e /data/scan_2/NDTiff.index",
    "acqstream simulate --data data": "test -e data/first/NDTiff.index",
}
ENDS = ("acqstream simulate --data data",)

CODES = {"acqstream doctor": [0, 1]}  # 1: this PC has a problem


def served(options: str) -> str:
    """A daemon that was started before the page is read."""
    return f"acqstream serve {options} > ~/serve.log 2>&1 &\nuntil {SERVE_ANSWERS}; do sleep 0.1; done"


@dataclass(frozen=True)
class Page:
    """What a reader of a page has already.

    data are options of the daemon that runs, where one has to. shell and python come before all else. before: the
    beginning of a statement -> shell that comes before it, or Python that begins with `# python`. apart: beginnings of
    blocks that stand for themselves; if such a block has several commands they are alternatives, each tried on fresh
    data. deep: datasets have stacks along z. needs: a library that no test environment shares with acqstream.
    """

    data: str = "--data /data"
    shell: str = ""
    python: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    deep: bool = False
    needs: str = ""


_CORE = """
import mm_test_adapters, pymmcore_plus, useq
from acqstream.client.pymmcore import streaming
core = pymmcore_plus.CMMCorePlus(mm_path=str(mm_test_adapters.device_adapter_path()))
core.loadSystemConfiguration("MMConfig_demo.cfg")
sequence = useq.MDASequence(channels=["DAPI"], time_plan={"interval": 0, "loops": 3})
"""
_PYCROMANAGER = """
import mm_test_adapters, pycromanager
from acqstream.client.pycromanager import Acquisition
folder = str(mm_test_adapters.device_adapter_path())
config = f"{folder}/MMConfig_demo.cfg"
events = pycromanager.multi_d_acquisition_events(num_time_points=3)
pycromanager.start_headless(folder, config_file=config, python_backend=True)
pycromanager.start_headless = lambda *words, **options: None  # it runs already
"""
_OPEN = """
import time, napari, npe2, xarray as xr
npe2.PluginManager.instance().discover()  # as napari does when it starts
ds = acqstream.open("/data/cells")
viewer = napari.components.ViewerModel()
"""
_LIVE = """# python
import threading, numpy as np
growing = acqstream.create("live", data="/data")
growing.put(np.zeros((64, 64), "u2"), time=0)
while growing.progress.published < 1:
    time.sleep(0.1)
viewer.open("/data/live", plugin="acqstream")
threading.Timer(5, growing.close).start()  # after the page's next line
"""
_SENDERS = """
import json, os, sys, threading, time, cbor2, numpy as np, zmq
sys.path.insert(0, os.environ["PYTHONPATH"])
from tests.receive import dectris_sender
def send(kind, endpoint, connects, messages):
    socket = zmq.Context.instance().socket(kind)
    (socket.connect if connects else socket.bind)(endpoint)
    for message in messages:
        socket.send_multipart(message)
        time.sleep(0.05)
def frames(count):
    for number in range(count):
        header = {"htype": "array-1.0", "type": "uint16", "shape": [64, 64], "frame": number}
        yield [json.dumps(header).encode(), bytes(8192)]
def series():
    yield [dectris_sender.start(1, ["a"], 5)]
    for number in range(5):
        yield [dectris_sender.image(1, number, {"a": np.zeros((20, 30), "u2")})]
for arguments in [
    (zmq.PUSH, "tcp://detector:5500", False, frames(20)),
    (zmq.PUB, "tcp://127.0.0.1:5500", True, frames(5000)),
    (zmq.PUSH, "tcp://detector:31001", False, series()),
]:
    threading.Thread(target=send, args=arguments, daemon=True).start()
""".replace("tcp://detector", "tcp://10.99.0.1")  # a socket binds an address
_CLUSTER = """
dask scheduler --host cluster --port 8786 > ~/scheduler.log 2>&1 &
dask worker tcp://cluster:8786 --nworkers 1 --nthreads 1 > ~/worker.log 2>&1 &
until (</dev/tcp/cluster/8786) 2>/dev/null; do sleep 0.1; done
"""

_ZARR = str(ROOT / ".venv-webknossos/lib" / f"python3.{sys.version_info[1]}" / "site-packages")

PAGES: Mapping[str, Page] = {
    "README.md": Page(python='import numpy as np\ncamera = [np.zeros((64, 64), "u2")] * 3'),
    "docs/export.md": Page(apart=("acqstream export",)),
    "docs/hsds.md": Page(
        shell="mkdir -p /srv/hsds && cp -r $PYTHONPATH/tests/golden/hsds/hsds_1.0.2/bkt /srv/hsds/bucket",
        apart=("acqstream.create",),
        deep=True,
    ),
    "docs/mirrors.md": Page(
        apart=('with acqstream.create("cells", mirrors=["n5"]) as run: ...\nacqstream', "run =", "acqstream mirror"),
        before={
            "acqstream mirror /data/cells --to n5 --scheduler": _CLUSTER,
            "acqstream mirror /data/stitch": "cp -r /data/slide /data/stitch",
        },
    ),
    "docs/n5.md": Page(deep=True),
    "docs/ome-zarr.md": Page(apart=("with acqstream",)),
    "docs/precomputed.md": Page(apart=("acqstream",), deep=True),
    "docs/pycromanager.md": Page(python=_PYCROMANAGER, apart=("from", "import", "with")),
    "docs/pymmcore.md": Page(python=_CORE, apart=("from", "with")),
    "docs/reading.md": Page(python='ds = acqstream.open("/data/cells")', apart=("for",)),
    "docs/remote.md": Page(
        shell="groupadd acqstream",
        before={
            "install -m": "cp ~/.acqstream/alice.key .",
            "run =": "cp ~/.acqstream/alice.key_secret /etc/acqstream/keys/server.key .; cp server.key ~/.acqstream\n"
            + served("--data /data --config acqstream.toml"),
        },
    ),
    "docs/repair.md": Page(
        before={"mv cells": "cd /data; truncate -s -100 cells/NDTiff.index; acqstream repair /data/cells"}
    ),
    "docs/smart-microscopy.md": Page(
        shell="cp $PYTHONPATH/docs/smart_microscopy.py .\n"
        "export MICROMANAGER_PATH=$(python -c 'import mm_test_adapters as m; print(m.device_adapter_path())')"
    ),
    "docs/streams.md": Page(python=_SENDERS),
    "docs/tutorial-micro-manager.md": Page(data="--data data", shell="mkdir data"),
    "docs/verify.md": Page(before={"tail": "cd /data/cells"}),
    "docs/viewing.md": Page(
        python=_OPEN,
        before={"from acqstream.dataset.napari_live": _LIVE},
        deep=True,
    ),
    "docs/views.md": Page(apart=("with acqstream",)),
    "docs/web.md": Page(python=f"import sys, xarray, dask.array\nsys.path.append({_ZARR!r})", needs=_ZARR),
    "docs/wkw.md": Page(deep=True),
}
