"""The attributes of all folders of a container that our writer makes. Pure.

They are the set that BigDataViewer, n5-viewer, the Fiji plug-ins, neuroglancer and Paintera each find theirs in;
keys that some reader refuses are not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.n5 import notes, space
from acqstream.formats.n5.attributes import VERSION, VERSION_KEY, dtype_name, to_json
from acqstream.formats.n5.layouts import Numbering, folder_axes, group_folder, level_folder
from acqstream.formats.n5.options import N5Options

Document = tuple[tuple[str, ...], bytes]
"""Folders from the container on, and the content of the attributes.json there."""


@dataclass(frozen=True, slots=True)
class Documents:
    """datasets are the attributes by level, group those of the folder that holds the levels, setup those above it."""

    datasets: tuple[bytes, ...]
    group: bytes
    setup: bytes
    root: bytes

    def of_member(self, group: tuple[str, ...]) -> list[Document]:
        """What stands in the folders of a member: its levels last, so that they are found complete."""
        found: list[Document] = [((*group, level_folder(n)), content) for n, content in enumerate(self.datasets)]
        if group:
            found.insert(0, (group, self.group))
        if self.setup:
            found.insert(0, (group[:1], self.setup))
        return found


def make_documents(
    levels: Sequence[ArraySpec], options: N5Options, numbering: Numbering = "rows", *, complete: bool
) -> Documents:
    """All documents of a container with these levels."""
    layout, full = options.layout, levels[0]
    leading = folder_axes(layout, full.axes)
    parts = [_part(level, leading) for level in levels]
    group = space.group_attributes(parts)
    if layout == "multiscale":
        datasets = [
            {"path": level_folder(number), "transform": space.cosem_transform(part)}
            for number, part in enumerate(parts)
        ]
        group["multiscales"] = [{"datasets": datasets}]
    root: dict[str, Any] = {
        VERSION_KEY: VERSION,
        notes.KEY: notes.to_json(notes.make_notes(full, layout, numbering, complete=complete)),
    }
    if not group_folder(layout, full.axes, full.shape, (0,) * leading):
        root |= group
    setup = {"downsamplingFactors": group["downsamplingFactors"], "dataType": dtype_name(full.dtype)}
    return Documents(
        tuple(to_json(_dataset(part, parts[0], options)) for part in parts),
        to_json(group),
        to_json(setup) if layout == "bdv" else b"",
        to_json(root),
    )


def mandatory_attributes(part: ArraySpec, options: N5Options) -> dict[str, Any]:
    """The four keys of a dataset, and nothing else."""
    return {
        "dimensions": [*reversed(part.shape)],
        "blockSize": [*reversed(part.chunk_shape)],
        "dataType": dtype_name(part.dtype),
        "compression": options.compression.to_json(),
    }


def _dataset(part: ArraySpec, full: ArraySpec, options: N5Options) -> dict[str, Any]:
    attributes = mandatory_attributes(part, options)
    if options.layout == "array":
        return attributes | space.array_attributes(part)
    attributes |= space.level_attributes(part, full)
    if options.layout == "multiscale":
        attributes["transform"] = space.cosem_transform(part)
    return attributes


def _part(spec: ArraySpec, leading: int) -> ArraySpec:
    """A member of a level: the axes that are no folders."""
    return replace(
        spec,
        axes=spec.axes[leading:],
        shape=spec.shape[leading:],
        chunk_shape=spec.chunk_shape[leading:],
        factors=spec.factors[leading:],
        scale=spec.scale[leading:],
        units=spec.units[leading:],
        translation=spec.translation[leading:],
    )
