"""How a run reaches its daemon, and what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acqstream.client.keys import CurveKeys
from acqstream.errors import AcqStreamError

SILENCE_S = 3.0
"""A daemon that says nothing for so long is contacted anew (or a third of the patience, if that is less)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How to reach the daemon, and what to ask for: request holds the fields of `open`, without id and epoch."""

    endpoint: str
    transport: str
    name: str
    dataset_id: str
    request: Mapping[str, Any]
    patience_s: float
    on_error: Callable[[AcqStreamError], None] | None
    keys: CurveKeys | None = None
    locate: Callable[[], str] | None = None  # where the caller named no endpoint

    @property
    def silence_s(self) -> float:
        return min(SILENCE_S, self.patience_s / 3)
