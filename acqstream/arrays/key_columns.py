"""Axis values of many frames at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acqstream.model.axes import AxisValue


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The values of one axis, for consecutive frames.

    values are the distinct ones in order of first appearance, None for frames that lack the axis. positions has, for
    each frame, the position of its value in `values`; shape (frames,).
    """

    values: Sequence[AxisValue | None]
    positions: NDArray[np.int32]
