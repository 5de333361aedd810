"""The physical space of a mirror's levels, as the frames so far show it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from acqstream.arrays.array_spec import ArraySpec
from acqstream.arrays.mosaic import Canvas
from acqstream.formats.chunk_format import SpaceWriter
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_description import ArraySpace
from acqstream.frames.frame_indices import FramePlaces
from acqstream.model.axes import Z

_MAX_SHARE = 0.02  # of the time: with thousands of positions, looking and writing take long


class MirrorSpace:
    """Levels with the space of the frames of `reader`, which is a function of the dataset alone.

    container is the mirror's name in warnings; "" for a format that needs no distances. mosaic: the picture of tiles,
    whose pixels count from (0, 0) of its canvas.
    """

    def __init__(
        self, reader: NDTiffReader, places: FramePlaces, container: str = "", mosaic: Canvas | None = None
    ) -> None:
        self.warning = ""
        self._mosaic = mosaic
        self._container = container
        self._next_s = 0.0
        self._reader = reader
        self._places = places
        self._space = ArraySpace(reader, places)
        self._may_change = not reader.complete  # else the witnesses see the last frame of each place

    def renew(self, levels: tuple[ArraySpec, ...], writer: SpaceWriter, *, is_final: bool) -> tuple[ArraySpec, ...]:
        """As `look`; the writer gets what is new. Sets `warning` for distances that nothing shows. Raises StorageError.

        is_final: no frame will come. If some came since, all places are looked at again: the last frame of each counts.
        """
        began_s = time.monotonic()
        if is_final and self._may_change:
            self._space.forget()
            self._may_change = not self._reader.complete
        elif not is_final and began_s < self._next_s:
            return levels
        spaced = self.look(levels)
        if spaced != levels:
            writer.set_space(spaced)
        has_depth = len(self._reader.axis_values().get(Z, ())) > 1  # one plane has no distance
        unknown = [axis for axis in spaced[0].unknown_distances if axis != Z or has_depth]
        if self._container and (is_final or self._space.is_shown) and not self.warning:
            texts = [_warning(self._container, unknown)] if unknown else []
            self.warning = "; ".join([*texts, *(f"{self._container}: {text}" for text in self._space.warnings)])
        now_s = time.monotonic()
        self._next_s = now_s + (now_s - began_s) / _MAX_SHARE
        return spaced

    def note_values(self, levels: tuple[ArraySpec, ...], writer: SpaceWriter) -> tuple[ArraySpec, ...]:
        """Write the values of places into our note: readers put places in order by them. Raises StorageError.

        Call it before places are announced.
        """
        valued = self._places.with_values(levels)
        if valued != levels:
            writer.set_space(valued)
        return valued

    def look(self, levels: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
        """These levels with all that is known of their space now. Raises StorageError."""
        return self._space.look(levels, self._mosaic)


def _warning(container: str, unknown: Sequence[str]) -> str:
    axes = " and ".join(unknown)
    return (
        f"{container}: the distance of items along {axes} is not known: not declared, not in the summary, and stage "
        "positions of the frames do not show it. The files state 1 of their unit instead"
    )
