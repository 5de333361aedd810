"""What a fault run found: one row of the table, and the tries it is made of."""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger("faults")

MOST_UNDELIVERED = 3  # times the tries asked for, before a driver gives up
MOST_TOLD = 5  # frame numbers in one sentence
MOST_TEXT = 6000  # characters of an error
BATCH = 4  # runs after which it is asked whether to go on


@dataclass
class Try:
    """One fault, or several in one run, and what was found after it."""

    seed: int
    delivered: int = 0
    acknowledged: int = 0
    lost: int = 0
    wrong: int = 0
    troubles: list[str] = field(default_factory=list)

    @property
    def survived(self) -> bool:
        return not (self.lost or self.wrong or self.troubles)

    def lose(self, where: str, numbers: list[int]) -> None:
        """Note acknowledged frames that are not there."""
        if numbers:
            self.lost += len(numbers)
            self.troubles.append(f"{where}: {len(numbers)} acknowledged frames are lost: {_shown(numbers)}")

    def mistake(self, where: str, numbers: list[int]) -> None:
        """Note frames that were shown and are not what was sent."""
        if numbers:
            self.wrong += len(numbers)
            self.troubles.append(f"{where}: {len(numbers)} frames are wrong: {_shown(numbers)}")

    def expect(self, holds: bool, what: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.troubles.append(what)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Note whatever is raised inside: a broken run is a result, and the next ones go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            self.troubles.append("".join(traceback.format_exception(error))[-MOST_TEXT:].rstrip())


@dataclass
class FaultResult:
    """A row of the table. tried counts faults that were delivered; acknowledged, lost and wrong count frames.

    skipped is the number of tries that this machine cannot make, and why_skipped the reason.
    """

    fault: str
    seed: int
    tried: int = 0
    survived: int = 0
    delivered: int = 0
    acknowledged: int = 0
    lost: int = 0
    wrong: int = 0
    skipped: int = 0
    why_skipped: str = ""
    took_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def is_hopeless(self) -> bool:
        """Nothing can be delivered: something else is broken."""
        return not self.tried and len(self.failures) >= MOST_UNDELIVERED

    @property
    def all_survived(self) -> bool:
        return not self.failures and self.survived == self.tried

    @staticmethod
    def skip(fault: str, seed: int, tries: int, why: str) -> FaultResult:
        """Nothing was tried: the machine lacks what it takes."""
        return FaultResult(fault, seed, skipped=tries, why_skipped=why)

    def again(self, one: Try, faults: int) -> str:
        """The arguments of tools/faults.py that repeat this try alone."""
        return f"--only '{self.fault}' --seed {one.seed} --tries {faults}"

    def count(self, one: Try, faults: int) -> None:
        """Add a try that was to deliver so many faults. What was not delivered was not tried."""
        self.failures += [f"{trouble}\n  again: {self.again(one, faults)}" for trouble in one.troubles]
        self.tried += one.delivered
        self.survived += one.delivered if one.survived else 0  # which of several did the harm is not known
        self.delivered += one.delivered
        self.acknowledged += one.acknowledged
        self.lost += one.lost
        self.wrong += one.wrong


Action = Callable[[Try, int, Path], None]
"""Makes one try of so many faults in an empty folder, and notes what it finds. Whatever it raises is a failure."""


def repeat(
    result: FaultResult, tries: int, action: Action, folder: Path, *, faults_a_run: int = 1, at_once: int = 1
) -> FaultResult:
    """Make runs until `tries` faults were delivered, or it is hopeless; run i has the seed `result.seed` + i.

    So `--seed s --tries n` makes the run with seed s alone again. Folders of runs that survived are removed.
    """
    began_s = time.monotonic()

    def make(job: tuple[int, int]) -> tuple[Try, int]:
        seed, faults = job
        place = folder / str(seed)  # short: sockets lie below it
        place.mkdir(parents=True)
        one = Try(seed)
        with one.failing():
            action(one, faults, place)
        if one.survived:
            shutil.rmtree(place)
        return one, faults

    seed = result.seed
    with ThreadPoolExecutor(at_once, thread_name_prefix="fault") as pool:
        while result.tried < tries and not result.is_hopeless and seed < result.seed + MOST_UNDELIVERED * tries:
            missing = tries - result.tried
            sizes = [min(faults_a_run, missing - done) for done in range(0, missing, faults_a_run)][:BATCH]
            for one, faults in pool.map(make, enumerate(sizes, seed)):
                result.count(one, faults)
                said = "survived" if one.survived else "NOT SURVIVED"
                log.info("%s: %d delivered, %s (%s)", result.fault, one.delivered, said, result.again(one, faults))
            seed += len(sizes)
    result.took_s = time.monotonic() - began_s
    return result


def _shown(numbers: list[int]) -> str:
    more = " ..." if len(numbers) > MOST_TOLD else ""
    return ", ".join(map(str, numbers[:MOST_TOLD])) + more
