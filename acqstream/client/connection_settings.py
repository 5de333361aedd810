"""Settings of a run's connection to its daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acqstream.client.keys import CurveKeys
from acqstream.errors import AcqStreamError

SILENCE_S = 3.0
"""A daemon that is silent for this time, or for a third of the patience if that is less, is contacted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The way to the daemon and the request to it. request has the fields of `open`, without id and epoch.

    relocates: `locate` is asked again after a lost contact. release: ends what `locate` keeps. log: the daemon's log
    file, empty if not known; log_advice: the end of an error message, with its last lines.
    """

    endpoint: str
    transport: str
    name: str
    dataset_id: str
    request: Mapping[str, Any]
    patience_s: float
    on_error: Callable[[AcqStreamError], None] | None
    keys: CurveKeys | None = None
    locate: Callable[[], str] | None = None  # for a caller that named no endpoint
    relocates: bool = False
    release: Callable[[], object] = bool
    log: str = ""
    log_advice: Callable[[], str] = str

    @property
    def silence_s(self) -> float:
        return min(SILENCE_S, self.patience_s / 3)
