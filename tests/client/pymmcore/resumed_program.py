"""A microscope's program in a process of its own, to be killed in mid acquisition and started again."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from typing import Any

import mm_test_adapters
import numpy as np
import useq
from pymmcore_plus import CMMCorePlus

from acqstream.client.pymmcore import streaming
from tests.waiting import until

CHANNELS = ["DAPI", "FITC"]
GRID = {"rows": 2, "columns": 3, "overlap": (10, 25), "mode": "row_wise_snake"}
PLANS: dict[str, dict[str, Any]] = {
    "plain": {
        "time_plan": {"interval": 0, "loops": 3},
        "channels": CHANNELS,
        "z_plan": {"range": 2, "step": 1},
        "stage_positions": [(10, 20, 5)],
    },
    "longer": {
        "time_plan": {"interval": 0, "loops": 4},
        "channels": CHANNELS,
        "z_plan": {"range": 2, "step": 1},
        "stage_positions": [(10, 20, 5)],
    },
    "shorter": {
        "time_plan": {"interval": 0, "loops": 1},
        "channels": CHANNELS,
        "z_plan": {"range": 2, "step": 1},
        "stage_positions": [(10, 20, 5)],
    },
    "burst": {"time_plan": {"interval": 0, "loops": 40}},
    "tiles": {"grid_plan": GRID, "channels": CHANNELS, "stage_positions": [(0, 0, 0), (900, 900, 1)]},
    "cameras": {"time_plan": {"interval": 0, "loops": 6}, "channels": CHANNELS},
    "slow": {"time_plan": {"interval": 3600, "loops": 4}},  # cannot be waited for: times must move
}


class Core(CMMCorePlus):
    """Counts what is done to the hardware; snapped pixels tell stage, channel and camera, so that they can be told."""

    def __init__(self, folder: str) -> None:
        super().__init__(mm_path=folder)
        self.calls = {"snap": 0, "burst": 0, "move": 0}

    def snapImage(self):
        self.calls["snap"] += 1
        super().snapImage()

    def setXYPosition(self, *arguments):
        self.calls["move"] += 1
        super().setXYPosition(*arguments)

    def startSequenceAcquisition(self, *arguments):
        self.calls["burst"] += arguments[0] if len(arguments) == 3 else arguments[1]
        super().startSequenceAcquisition(*arguments)

    def getImage(self, camera=0, **more):
        image = super().getImage(camera, **more)
        x, y = self.getXYPosition()
        words = (round(x), round(y), round(self.getZPosition(), 2), self.getCurrentConfig("Channel"), camera)
        seed = int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:4], "little")
        return np.random.default_rng(seed).integers(0, 2**16, image.shape, np.uint16)


def make_core(plan: str) -> Core:
    folder = str(mm_test_adapters.device_adapter_path())
    core = Core(folder)
    core.loadSystemConfiguration(f"{folder}/MMConfig_demo.cfg")
    if plan == "cameras":
        core.loadDevice("Camera2", "DemoCamera", "DCam")
        core.initializeDevice("Camera2")
        core.loadDevice("Both", "Utilities", "Multi Camera")
        core.initializeDevice("Both")
        core.setProperty("Both", "Physical Camera 1", "Camera")
        core.setProperty("Both", "Physical Camera 2", "Camera2")
    for camera in ("Camera", "Camera2") if plan == "cameras" else ("Camera",):
        core.setProperty(camera, "OnCameraCCDXSize", 64)
        core.setProperty(camera, "OnCameraCCDYSize", 32)
        core.setProperty(camera, "PixelType", "16bit")
        core.setProperty(camera, "Mode", "Noise")
    if plan == "cameras":
        core.setCameraDevice("Both")
    core.setExposure(1)
    return core


def tell(**values):
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main(endpoint, plan, way, last, slack):
    """Run the plan; wait to be killed after `last` frames, of which all but `slack` are published."""
    core = make_core(plan)
    core.mda.engine.use_hardware_sequencing = plan == "burst"
    seen = 0

    def take(image, event):
        nonlocal seen
        seen += 1
        tell(sha=hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest())
        if seen == last:
            run = streamer.last_run
            until(lambda: run.progress.published >= run.next - slack, "they are published")
            tell(paused=seen)
            signal.pause()

    core.mda.events.frameReady.connect(take)
    sequence = useq.MDASequence(**PLANS[plan])
    events = {"sequence": sequence, "list": list(sequence), "iterator": iter(list(sequence))}[way]
    core.calls.update(dict.fromkeys(core.calls, 0))
    options = {"levels": 0} if plan == "tiles" else {}
    with streaming(core, "cells", endpoint=endpoint, buffer_mb=8, resume=True, **options) as streamer:
        core.mda.run(events)
        tell(calls=core.calls)
    receipt = streamer.last_receipt
    tell(
        status=receipt.status,
        complete=receipt.complete,
        stored=receipt.stored,
        skipped_events=streamer.last_skipped,
        seen=seen,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
