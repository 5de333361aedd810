"""Smart microscopy: a process follows a run, measures its frames, and sends events to the acquisition.

    python smart_microscopy.py --data /data [--config MMConfig.cfg] [--property Camera Mode Noise] [--surveys 10] ...

Every `--interval` seconds a survey image is taken. The other process counts the bright spots of each as soon as it is
stored. Where they are MIN_SPOTS or more it asks for an image with a longer exposure, which is taken before the next
survey. Both are frames of one dataset: `frame` 0 is the survey at a time, `frame` 1 the answer to it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import statistics
import time

import numpy as np
import useq
from pymmcore_plus import CMMCorePlus

import acqstream
from acqstream.client.pymmcore import streaming

MIN_SPOTS = 3
NOISE_S = 4  # a spot is so many standard deviations above the mean
LONGER = 5  # times the exposure of a survey


def count_spots(image):
    """Local maxima far above the background: put your own measurement here."""
    image = image.astype(float)
    inner = image[1:-1, 1:-1]
    beside = (image[:-2, 1:-1], image[2:, 1:-1], image[1:-1, :-2], image[1:-1, 2:])
    is_bright = inner > image.mean() + NOISE_S * image.std()
    return int(np.count_nonzero(is_bright & np.all([inner > other for other in beside], axis=0)))


def watch(path, requests):
    """The other process: each frame of the dataset at `path`, as it is published; ends when the run has ended."""
    with acqstream.open(path, wait_s=60) as dataset:
        requests.put(None)  # it is ready
        for key in dataset.follow():
            if key["frame"]:
                continue  # an answer
            spots = count_spots(dataset.read_frame(**key))
            if spots >= MIN_SPOTS:
                put_ns = dataset.read_metadata(**key)["time_ns"]
                requests.put({"time": key["time"], "spots": spots, "put_ns": put_ns})


class Plan:
    """The events of the acquisition: surveys at their times, and between them what the other process asks for."""

    def __init__(self, surveys, interval_s, exposure_ms):
        self.surveys, self.interval_s, self.exposure_ms = surveys, interval_s, exposure_ms
        self.requests = multiprocessing.get_context("spawn").Queue()
        self.delays_ms = []

    def events(self, on_first):
        """Yield them; on_first is called when the first image was taken, and there is a dataset to follow."""
        for number in range(self.surveys):
            began_s = time.monotonic()
            yield useq.MDAEvent(index={"t": number}, exposure=self.exposure_ms)
            if number == 0:
                on_first()
                self.requests.get(timeout=60)  # until the other process is ready
                began_s = time.monotonic()
            yield from self._answers(began_s + self.interval_s)

    def _answers(self, until_s):
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                request = self.requests.get(timeout=left_s)
            except queue.Empty:
                return
            delay_ms = (time.time_ns() - request["put_ns"]) / 1e6
            if request["time"]:  # the first image waits for the start of the other process
                self.delays_ms.append(delay_ms)
            print(f"time {request['time']}: {request['spots']} spots, {delay_ms:.1f} ms from put to event", flush=True)
            yield useq.MDAEvent(
                index={"t": request["time"]}, exposure=LONGER * self.exposure_ms, metadata={"spots": request["spots"]}
            )


def main():
    parser = argparse.ArgumentParser(description="Take surveys, and more where they have spots.")
    parser.add_argument("--data", required=True, help="data directory; its daemon is started if none runs")
    parser.add_argument("--config", default="MMConfig_demo.cfg", help="of Micro-Manager")
    parser.add_argument("--property", nargs=3, action="append", default=[], metavar=("DEVICE", "PROPERTY", "VALUE"))
    parser.add_argument("--surveys", type=int, default=10)
    parser.add_argument("--interval", type=float, default=0.2, help="seconds from survey to survey")
    options = parser.parse_args()
    core = CMMCorePlus()
    core.loadSystemConfiguration(options.config)
    for device, name, value in options.property:
        core.setProperty(device, name, value)
    core.mda.engine.use_hardware_sequencing = False  # else the engine waits for the next event before it takes this one
    plan = Plan(options.surveys, options.interval, exposure_ms=10)
    with streaming(core, "smart", data=options.data, counter=True) as streamer:
        watchers = []

        def start_watching():
            arguments = (streamer.last_run.path, plan.requests)
            watchers.append(multiprocessing.get_context("spawn").Process(target=watch, args=arguments, daemon=True))
            watchers[0].start()

        core.mda.run(plan.events(start_watching))
    watchers[0].join()
    print(f"{streamer.last_run.path}: {streamer.last_receipt.stored} frames")
    if plan.delays_ms:
        median_ms, max_ms = statistics.median(plan.delays_ms), max(plan.delays_ms)
        print(f"{len(plan.delays_ms)} events, {median_ms:.1f} ms from put to event (median), {max_ms:.1f} ms at most")


if __name__ == "__main__":
    main()
