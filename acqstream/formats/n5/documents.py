"""The attributes of all folders of a container that our writer makes. Pure.

They are the set that BigDataViewer, n5-viewer, the Fiji plug-ins, neuroglancer and Paintera each find theirs in;
keys that some reader refuses are not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.array_members import Numbering
from acqstream.formats.n5 import notes, space
from acqstream.formats.n5.attributes import ATTRIBUTES_NAME, VERSION, VERSION_KEY, dtype_name, to_json
from acqstream.formats.n5.member_folders import N5Options, folder_axes, group_folder, level_folder


@dataclass(frozen=True, slots=True)
class MemberDocuments:
    """The attributes in the folders of a member.

    datasets has those of each level, group those of the folder that holds the levels, setup those of the folder above
    it; b"" where the layout has no such folder.
    """

    datasets: tuple[bytes, ...]
    group: bytes
    setup: bytes

    def of_group(self, folders: Sequence[str]) -> dict[str, bytes]:
        """By key; the levels come last, so that a reader finds them complete."""
        documents = {attributes_key(folders[:1]): self.setup} if self.setup else {}
        if folders:
            documents[attributes_key(folders)] = self.group
        for level, content in enumerate(self.datasets):
            documents[attributes_key((*folders, level_folder(level)))] = content
        return documents


def attributes_key(folders: Sequence[str]) -> str:
    """The document with the attributes of a folder."""
    return "/".join((*folders, ATTRIBUTES_NAME))


def member_documents(levels: Sequence[ArraySpec], options: N5Options) -> MemberDocuments:
    """Those of a container, or of a member, with these levels."""
    parts, group = _parts(levels, options), _group(levels, options)
    setup = {"downsamplingFactors": group["downsamplingFactors"], "dataType": dtype_name(levels[0].dtype)}
    return MemberDocuments(
        tuple(to_json(_dataset(part, parts[0], options)) for part in parts),
        to_json(group),
        to_json(setup) if options.layout == "bdv" else b"",
    )


def container_document(
    levels: Sequence[ArraySpec], options: N5Options, numbering: Numbering, *, complete: bool
) -> bytes:
    """The attributes of the container itself."""
    layout, full = options.layout, levels[0]
    root: dict[str, Any] = {
        VERSION_KEY: VERSION,
        notes.KEY: notes.to_json(notes.Notes(full=full, layout=layout, numbering=numbering, complete=complete)),
    }
    if not group_folder(layout, full.axes, full.shape, (0,) * folder_axes(layout, full.axes)):
        root |= _group(levels, options)
    return to_json(root)


def mandatory_attributes(part: ArraySpec, options: N5Options) -> dict[str, Any]:
    """The four keys of a dataset, and nothing else."""
    return {
        "dimensions": [*reversed(part.shape)],
        "blockSize": [*reversed(part.chunk_shape)],
        "dataType": dtype_name(part.dtype),
        "compression": options.compression.to_json(),
    }


def _parts(levels: Sequence[ArraySpec], options: N5Options) -> list[ArraySpec]:
    leading = folder_axes(options.layout, levels[0].axes)
    return [_part(level, leading) for level in levels]


def _group(levels: Sequence[ArraySpec], options: N5Options) -> dict[str, Any]:
    parts = _parts(levels, options)
    group = space.group_attributes(parts)
    if options.layout == "multiscale":
        group["multiscales"] = [
            {
                "datasets": [
                    {"path": level_folder(number), "transform": space.cosem_transform(part)}
                    for number, part in enumerate(parts)
                ]
            }
        ]
    return group


def _dataset(part: ArraySpec, full: ArraySpec, options: N5Options) -> dict[str, Any]:
    attributes = mandatory_attributes(part, options)
    if options.layout == "array":
        return attributes | space.array_attributes(part)
    attributes |= space.level_attributes(part, full)
    if options.layout == "multiscale":
        attributes["transform"] = space.cosem_transform(part)
    return attributes


def _part(spec: ArraySpec, leading: int) -> ArraySpec:
    """A member of a level: the axes that are not folders."""
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
