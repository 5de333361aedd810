"""Checks a dataset against NDTiff, in every byte that the format fixes; all levels, finished or growing.

Source: NDTiff specification 3.3, TIFF 6.0 section 2, and files of the reference writers. Their differences are legal:
16 bits claimed for uint8 (Python), 16 bits for the rows per strip (Java), a NUL after the metadata that the tag counts
and the index does not (ours). The format cannot prove the content of pixels, nor of metadata beyond its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DatasetError, StorageError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.formats.ndtiff.completion import LevelsFile
from acqstream.formats.ndtiff.entry_walk import FRAMES, IndexCheck, MetadataCheck
from acqstream.formats.ndtiff.folders import find_folders, has_ndtiff_mark, level_of, parse_stack_name, stack_paths
from acqstream.formats.ndtiff.frame_lookup import RowLookup
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import BLOCK_BYTES, DISPLAY_SETTINGS_NAME, align_up
from acqstream.formats.ndtiff.page_walk import PageChain, PageColumns
from acqstream.formats.ndtiff.pages import DIRECTORY_BYTES, TAGS
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES, is_raw, payload_bytes
from acqstream.formats.ndtiff.stack_header import StackHeader, parse_stack_header
from acqstream.model.units import count_text
from acqstream.storage.files.read_file import ReadFile

_KNOWN_MINOR = 3
_MAX_OPEN = 64
_OFFSET_BITS = 40  # more than offsets in a stack file have

_SHORT, _LONG, _RATIONAL, _ASCII = 3, 4, 5, 2
_SIZE = (_SHORT, _LONG)
_TYPES = (
    *(_SIZE, _SIZE, (_SHORT,), (_SHORT,), (_SHORT,), _SIZE, (_SHORT,)),
    *(_SIZE, _SIZE, (_RATIONAL,), (_RATIONAL,), (_SHORT,), (_ASCII,)),
)
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _STRIP, _SAMPLES = range(7)  # positions in TAGS
_ROWS, _STRIP_BYTES, _X, _Y, _UNIT, _METADATA = range(7, 13)
_RGB_CODE = 2
_SAMPLE_BITS = np.array([8 * PIXEL_TYPES[code].sample_bytes for code in sorted(PIXEL_TYPES)])


def check_dataset(
    container: Path, report: CheckReport, growing: bool, most_rows: int | None = None
) -> Iterator[FrameColumns]:
    """Check all levels of the dataset in `container`; the frames of the full resolution.

    most_rows bounds the memory: the frames come in parts of about that many. What is right may then be reported where
    they do not lie in the order of the index. None: all frames at once. The caller takes all parts.

    Raises UnsupportedFeature for versions 0 and 1, UnknownFormat if this is not an NDTiff dataset, StorageError.
    """
    try:
        folders = find_folders(container)
        levels = folders.levels
        if folders.is_old:
            raise UnsupportedFeature(f"{container}: NDTiff versions 0 and 1 can be read, but not checked")
    except CorruptDataset as error:  # the index is lost
        report.add_error(error)
        levels = (Path(error.path),)
    report.own_files.add(container / DISPLAY_SETTINGS_NAME)
    is_made = _levels_are_made(container, report)
    _look_for_hidden_levels(container, levels, report)
    checks = [
        _LevelCheck(folder, report, growing=growing or (level > 0 and is_made), level=level)
        for level, folder in enumerate(levels)
    ]
    yield from checks[0].run(len(levels), most_rows)
    numbers = report.frame_numbers
    report.frame_numbers = np.empty(0, np.uint64)  # lower levels count by themselves
    for check in checks[1:]:
        for _ in check.run(len(levels), None):
            pass
    report.frame_numbers = numbers


def _look_for_hidden_levels(container: Path, levels: Sequence[Path], report: CheckReport) -> None:
    """Levels that readers do not find: their index is lost, or that of one above them."""
    for folder in sorted(container.iterdir()):
        if folder in levels or not level_of(folder) or not folder.is_dir():
            continue
        if any(map(has_ndtiff_mark, stack_paths(folder))):
            what = "a level above" if (folder / INDEX_NAME).is_file() else "its index"
            text = f"no reader sees this level: {what} is missing; `acqstream repair` rebuilds indexes"
            report.add_problem(folder, text)


def _levels_are_made(container: Path, report: CheckReport) -> bool:
    """Return True if the ends of the lower levels may be unfinished, by the state of the view that makes them."""
    file = LevelsFile(container)
    try:
        file.refresh()
        state = file.state
    except CorruptDataset as error:
        report.add_error(error)
        return False
    if state.failure:
        report.add_note(f"the lower levels are incomplete: the view that makes them failed {state.failure}")
    elif state.is_unfinished:
        report.add_note("the lower levels are incomplete: they are still being made, or the daemon will resume them")
    return state.is_unfinished


class _PageCheck:
    """Walks the page chain of one stack file and compares every page with its index entry."""

    def __init__(self, file: ReadFile, header: StackHeader, report: CheckReport) -> None:
        self._file = file
        self._order = header.byte_order
        self._size = file.size()
        self._report = report
        self._chain = PageChain(file, header.first_directory, header.byte_order)
        self.unnamed_end = 0  # where the last page ends that no entry names
        if self._chain.is_shifted:
            report.add_note(f"{file.path.name}: the first directory's offset is 4 too small")

    def check(self, entries: NDArray[np.void], *, growing: bool, has_index: bool, until: int | None = None) -> None:
        """Check the pages that follow those checked before: all, or up to the first with pixels after byte `until`.

        entries (dtype FRAMES) get the fields of their pages. While the file grows, pages without an entry and an
        unfinished chain are not problems.
        """
        offsets = entries["pixel_offset"].astype(np.int64)
        order = np.append(np.argsort(offsets, kind="stable"), -1)  # so that there is always something to point at
        sorted_offsets = np.append(offsets[order[:-1]], -1)
        for batch in self._chain.batches(until):
            position = np.searchsorted(sorted_offsets[:-1], batch.values[:, _STRIP])
            named = sorted_offsets[position] == batch.values[:, _STRIP]
            found = order[position][named]
            batch.rows[named] = entries["row"][found]
            self._check_tags(batch)
            self._check_behind(batch)
            self._check_entries(batch.take(named), entries[found])
            self._tell(batch.take(named), entries["directory"][found] >= 0, lambda _: "two pages have the same pixels")
            if not growing and has_index:
                known = named | self._are_refused(batch.values[:, _STRIP])
                self._tell(batch, ~known, lambda _: "a page that no index entry names")
                unnamed = batch.take(~named)
                pixels_end = unnamed.values[:, _STRIP] + unnamed.values[:, _STRIP_BYTES]
                metadata_end = unnamed.values[:, _METADATA] + unnamed.raw["tags"]["count"][:, _METADATA]
                self.unnamed_end = max(self.unnamed_end, pixels_end.max(initial=0), metadata_end.max(initial=0))
            entries["directory"][found] = batch.at[named]
            entries["strip_bytes"][found] = batch.values[named, _STRIP_BYTES]
            entries["text_bytes"][found] = batch.raw["tags"]["count"][named, _METADATA]
            self._report.on_progress(f"pages of {self._file.path.name}", int(batch.at.max(initial=0)), self._size)
        if not growing and until is None:
            self._check_end()
        lost = "no page in the stack's chain has these pixels"
        lacking = entries["directory"] < 0
        self._report.add_problems(self._file.path, lacking, entries["row"], lambda i: (lost, int(offsets[i])))

    def _are_refused(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        stack = (parse_stack_name(self._file.path.name) or ("", -1))[1]
        places = [offset for number, offset in self._report.refused_places if number == stack]
        return np.isin(offsets, places)

    def _tell(self, batch: PageColumns, wrong: NDArray[np.bool_], text: Callable[[int], str]) -> None:
        self._report.add_problems(self._file.path, wrong, batch.rows, lambda i: (text(i), int(batch.at[i])))

    def _check_end(self) -> None:
        chain = self._chain
        if chain.next == 0 or (chain.next_at == 4 and chain.next >= self._size):
            return  # the second: a file without any page, as the reference writers leave it
        text = f"the chain of pages continues at byte {chain.next}, where no page of 13 tags is"
        self._report.add_problem(self._file.path, text, offset=chain.next_at)

    # Pages by themselves.

    def _check_tags(self, batch: PageColumns) -> None:
        tags, values = batch.raw["tags"], batch.values
        tell = partial(self._tell, batch)
        known = (tags["tag"] == np.array(TAGS)).all(axis=1)
        tell(~known, lambda i: f"the page has the tags {tags['tag'][i].tolist()}, NDTiff has {list(TAGS)}")
        samples = values[:, _SAMPLES]
        for column, (tag, types) in enumerate(zip(TAGS, _TYPES, strict=True)):
            kinds, counts = tags["type"][:, column], tags["count"][:, column]
            self._tell_tag(batch, known & ~np.isin(kinds, types), f"tag {tag} has type", kinds)
            if column != _METADATA:
                expected = np.where(samples == 3, 3, 1) if column == _BITS else 1
                self._tell_tag(batch, known & (counts != expected), f"tag {tag} has a number of values of", counts)
        height, strip_rows = values[:, _HEIGHT], values[:, _ROWS]
        wraps = (tags["type"][:, _ROWS] == _SHORT) & (strip_rows == (height & 0xFFFF))
        self._tell_tag(batch, (strip_rows != height) & ~wraps, "rows per strip are not the height, but", strip_rows)
        photometric, unit = values[:, _PHOTOMETRIC], values[:, _UNIT]
        self._tell_tag(batch, photometric != np.where(samples == 3, 2, 1), "photometric interpretation", photometric)
        self._tell_tag(batch, unit != 3, "resolution unit is not 3 (cm), but", unit)

    def _tell_tag(self, batch: PageColumns, wrong: NDArray[np.bool_], text: str, found: NDArray[Any]) -> None:
        self._tell(batch, wrong, lambda i: f"{text} {found[i]}")

    def _check_behind(self, batch: PageColumns) -> None:
        """Values that directories refer to, besides pixels and metadata: two equal resolutions, and 8, 8, 8 for RGB."""
        x, y = batch.pieces(self._file.read, _X, 8), batch.pieces(self._file.read, _Y, 8)
        wrong = (x != y).any(axis=1) | (x[:, 4:] == 0).all(axis=1)
        wrong |= np.abs(batch.values[:, _X] - batch.values[:, _Y]) < 8
        self._tell(batch, wrong, lambda _: "X and Y resolution are not two equal numbers")
        rgb = batch.take(batch.values[:, _SAMPLES] == 3)
        eights = np.full(3, 8, self._order + "u2").view(np.uint8)
        wrong = (rgb.pieces(self._file.read, _BITS, 6) != eights).any(axis=1)
        self._tell(rgb, wrong, lambda _: "RGB samples are not 8, 8 and 8 bits")

    # Pages against entries.

    def _check_entries(self, batch: PageColumns, entries: NDArray[np.void]) -> None:
        lengths, values = entries["length"], batch.values
        for name, column in (("width", _WIDTH), ("height", _HEIGHT), ("metadata_offset", _METADATA)):
            self._compare(batch, name.replace("_", " "), values[:, column], entries[name].astype(np.int64))
        told = entries["metadata_length"].astype(np.int64)
        in_page = batch.raw["tags"]["count"][:, _METADATA].astype(np.int64)
        in_page -= (in_page == told + 1) & entries["has_nul"]
        self._compare(batch, "metadata length", in_page, told)
        self._compare(batch, "length of the pixels", values[:, _STRIP_BYTES], lengths, lengths >= 0)
        compression = values[:, _COMPRESSION]
        wrong = (compression == 1) != (lengths >= 0)
        self._tell_tag(batch, wrong, "the index states another compression, the page has TIFF compression", compression)
        code = entries["pixel_type"].astype(np.int64)
        known = (code >= 0) & (code < len(_SAMPLE_BITS))
        sample_bits = _SAMPLE_BITS[np.where(known, code, 0)]
        bits, samples, rgb = values[:, _BITS], values[:, _SAMPLES], code == _RGB_CODE
        right = rgb | (bits == sample_bits) | ((code == 0) & (bits == 16))  # ndstorage claims 16 for uint8
        right &= samples == np.where(rgb, 3, 1)
        text = "{} samples of {} bits in the page, pixel type {} in the index"
        self._tell(batch, known & ~right, lambda i: text.format(samples[i], bits[i], code[i]))

    def _compare(
        self,
        batch: PageColumns,
        what: str,
        page: NDArray[np.int64],
        told: NDArray[np.int64],
        where: NDArray[np.bool_] | bool = True,
    ) -> None:
        self._tell(batch, (page != told) & where, lambda i: f"{what}: {page[i]} in the page, {told[i]} in the index")


class _Stack(NamedTuple):
    file: ReadFile
    header: StackHeader


class _LevelCheck:
    """One folder: index, stack files, and how they fit."""

    def __init__(self, folder: Path, report: CheckReport, *, growing: bool, level: int) -> None:
        self._folder = folder
        self._report = report
        self._growing = growing
        self._table = FrameTable(str(folder / INDEX_NAME))  # numbers of the entries are dropped again
        self._stacks: dict[str, _Stack | None] = {}
        self._seen: set[str] = set()  # stack files whose header was checked
        self._first_header: StackHeader | None = None
        self._metadata = MetadataCheck(self._file_of, report, is_lower=level > 0)
        self._has_index = (folder / INDEX_NAME).is_file()
        self._pages: dict[str, _PageCheck] = {}
        self._ends: dict[str, int] = {}  # of what was checked in a stack file
        self._first_stack = 0  # the ones before are finished

    def run(self, levels: int, most_rows: int | None) -> Iterator[FrameColumns]:
        """Check everything, in parts of about `most_rows` frames."""
        first, without = 0, 0
        for rows, is_last in self._read_index(most_rows):
            yield self._check_rows(first, rows, levels, is_last=is_last)
            first += len(rows)
            without += int(np.count_nonzero(~rows["has_axes"]))
        repeats = RowLookup(self._table).repeats(0, len(self._table))
        if repeats.any():
            repeated = count_text(int(repeats.sum()), "frame", "have")
            text = f"{repeated} the axes of an earlier one; readers show the later one"
            self._report.add_note(f"{self._folder}: {text}")
        if without:
            self._report.add_note(
                f"{self._folder}: {count_text(without, 'frame', 'do')} not have their axes in their metadata"
            )

    def _check_rows(self, first: int, found: NDArray[np.void], levels: int, *, is_last: bool) -> FrameColumns:
        names = [*self._table.stack_names, *self._others()] if is_last else self._table.stack_names
        stacks = self._table.all_stacks[first : first + len(found)]
        found["length"] = self._lengths(found)
        # The last one of a part may go on in the next.
        last = len(names) if is_last else int(stacks[-1])
        for position in range(self._first_stack, min(last + 1, len(names))):
            name, is_final = names[position], position < last
            stack = self._stack_of(name)
            if stack is None:
                continue
            entries = found[stacks == position]
            is_growing = position == int(self._table.all_stacks[-1]) if len(self._table) else True
            growing = self._growing and (is_growing or position >= len(self._table.stack_names))
            if name not in self._pages:
                self._pages[name] = _PageCheck(stack.file, stack.header, self._report)
            check = self._pages[name]
            until = None if is_final else int(entries["pixel_offset"].max())
            check.check(entries, growing=growing, has_index=self._has_index, until=until)
            self._ends[name] = end = self._check_room(stack, entries)
            found[stacks == position] = entries
            if not is_final:
                continue
            if self._has_index and not growing:
                self._check_tail(stack.file, max(end, check.unnamed_end))
            self._stacks[name] = None  # closed: there may be many
            del self._pages[name]
        self._first_stack = last
        return FrameColumns(
            files=[self._folder / name for name in names],
            file_numbers=[(parse_stack_name(name) or ("", -1))[1] for name in names],
            file=stacks,
            offset=found["pixel_offset"].astype(np.int64),
            length=np.where(found["length"] < 0, found["strip_bytes"], found["length"]),
            directory=found["directory"].copy(),
            pixel_type=found["pixel_type"].astype(np.int32),
            metadata_checksum=found["checksum"].copy(),
            has_axes=found["has_axes"].copy(),
            levels=levels,
        )

    # The index.

    def _read_index(self, most_rows: int | None) -> Iterator[tuple[NDArray[np.void], bool]]:
        """The entries in parts (dtype FRAMES), and whether a part is the last one."""
        path, parts, first = self._folder / INDEX_NAME, [np.empty(0, FRAMES)], 0
        self._report.own_files.add(path)
        if self._has_index:
            for batch in IndexCheck(ReadFile(path), self._table, self._report, growing=self._growing).batches():
                before = len(self._table) - len(batch.names)
                self._table.forget_numbers()
                stacks = self._table.all_stacks[before:].tolist()
                parts.append(self._metadata.check(batch, [self._table.stack_names[stack] for stack in stacks], before))
                if most_rows is not None and len(self._table) - first >= most_rows:
                    rows = np.concatenate(parts)
                    stop = _last_break(rows, self._table.all_stacks[first:])
                    parts = [rows[stop:]]
                    if stop:
                        first += stop
                        yield rows[:stop], False
        yield np.concatenate(parts), True

    def _lengths(self, numbers: NDArray[np.void]) -> NDArray[np.int64]:
        """Bytes of every frame's raw pixels, -1 where they are compressed; unknown pixel types are reported."""
        code, lengths = numbers["pixel_type"], payload_bytes(numbers)
        path, rows = self._folder / INDEX_NAME, np.arange(len(code))
        self._report.add_problems(path, lengths < 0, rows, lambda i: (f"pixel type {code[i]}; 0 to 6 are known", None))
        lengths[~is_raw(numbers["pixel_compression"])] = -1
        if (lengths < 0).any():
            self._report.add_note(f"{self._folder}: {np.count_nonzero(lengths < 0)} frames are compressed or unknown")
        for field in ("pixel_compression", "metadata_compression"):
            # 0 is none, and so is TIFF's 1 that some writers put; no writer puts both.
            wrong = (numbers[field] == 1) & ((numbers[field] == 0).any())
            if field == "metadata_compression":
                wrong |= (numbers[field] != 0) & (numbers[field] != 1)
            text = f"{field.replace('_', ' ')} {{}} in the index, elsewhere it is 0"
            self._report.add_problems(path, wrong, rows, partial(_field_text, text, numbers[field]))
        return lengths

    # The stack files.

    def _others(self) -> list[str]:
        """Stack files of this dataset that no index entry names; where it names none, all there are."""
        named = self._table.stack_names
        stems = {found[0] for found in map(parse_stack_name, named) if found}
        others = [path.name for path in stack_paths(self._folder) if path.name not in named]
        return [name for name in others if not named or (parse_stack_name(name) or ("",))[0] in stems]

    def _file_of(self, name: str) -> ReadFile | None:
        stack = self._stack_of(name)
        return stack.file if stack is not None else None

    def _stack_of(self, name: str) -> _Stack | None:
        """The open stack file, None if it has no good header: reported when first asked for."""
        if name not in self._stacks:
            open_ones = [one for one, stack in self._stacks.items() if stack is not None]
            if len(open_ones) >= _MAX_OPEN:
                del self._stacks[open_ones[0]]
            self._stacks[name] = self._open(name)
        return self._stacks[name]

    def _open(self, name: str) -> _Stack | None:
        path = self._folder / name
        self._report.own_files.add(path)
        try:
            file = ReadFile(path)
            if file.size() == 0:
                self._report.add_problem(path, "is empty: its writer died before it wrote the header", offset=0)
                return None
            header = parse_stack_header(file.read, file.size(), str(path))
        except DatasetError as error:  # damaged, another version, or a pipe
            self._report.add_error(error, path)
            return None
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self._report.add_problem(path, "the index names this stack file, but it is missing")
            return None
        if name not in self._seen:
            self._seen.add(name)
            self._check_header(file, header)
        return _Stack(file, header)

    def _check_header(self, file: ReadFile, header: StackHeader) -> None:
        path = file.path
        if file.read(header.end - 1, 1) == b"\0":
            self._report.add_problem(path, "the length of the summary counts zeros after its text", offset=24)
        if header.minor is not None and header.minor > _KNOWN_MINOR:
            self._report.add_note(f"{path.name}: NDTiff {header.major}.{header.minor}, checked as {header.major}.3")
        first = self._first_header = self._first_header or header
        if (first.major, first.minor) != (header.major, header.minor):
            self._report.add_problem(path, "the NDTiff version is not that of the other stack files", offset=12)
        if first.summary_metadata != header.summary_metadata:
            self._report.add_problem(path, "the summary metadata is not that of the other stack files", offset=28)

    def _check_room(self, stack: _Stack, entries: NDArray[np.void]) -> int:
        """Check that no items share bytes and that all lie in the file. Returns the end of the last one so far."""
        file, size = stack.file, stack.file.size()
        pixels = entries["pixel_offset"].astype(np.int64)
        # The index has no length of compressed pixels; the page has.
        lengths = np.where(entries["length"] < 0, np.maximum(entries["strip_bytes"], 0), entries["length"])
        beyond = pixels + lengths > size
        self._report.add_problems(
            file.path,
            beyond,
            entries["row"],
            lambda i: (f"pixels of {lengths[i]} bytes end beyond the end of the file at {size}", int(pixels[i])),
        )
        end = self._check_overlaps(stack, entries, (pixels, lengths))
        has_frames = len(entries) or file.path.name in self._ends
        return end if has_frames else align_up(end, BLOCK_BYTES)  # our writer ends a lone header with a block

    def _check_tail(self, file: ReadFile, end: int) -> None:
        size = file.size()
        if size > end:
            what = "of zeros " if not file.read(end, 2**20).strip(b"\0") else ""
            self._report.add_problem(file.path, f"{size - end} bytes {what}after the last frame", offset=end)

    def _check_overlaps(
        self, stack: _Stack, entries: NDArray[np.void], pixels: tuple[NDArray[Any], NDArray[Any]]
    ) -> int:
        """End of the last item in the file. pixels are offsets and lengths."""
        directories, text_bytes = entries["directory"], np.maximum(entries["metadata_length"], entries["text_bytes"])
        starts = np.concatenate((pixels[0], entries["metadata_offset"].astype(np.int64), directories))
        ends = np.concatenate((pixels[1], text_bytes, np.where(directories >= 0, DIRECTORY_BYTES, 0)))
        ends += starts
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        has_bytes = ends > starts
        end = self._ends.get(stack.file.path.name, stack.header.end)  # of the part before
        np.maximum.accumulate(np.maximum(ends, end), out=ends)  # a long item may reach over several that follow
        before = np.append(end, ends[:-1])[: len(starts)]
        wrong = (starts < before) & has_bytes  # an item without bytes lies nowhere, so it shares none
        text = "pixels, metadata or directory share bytes with what stands before them"
        rows = entries["row"][order[wrong] % max(1, len(entries))]
        places = starts[wrong]
        self._report.add_problems(stack.file.path, wrong[wrong], rows, lambda i: (text, int(places[i])))
        return int(max(ends.max(initial=0), end))


def _last_break(numbers: NDArray[np.void], stacks: NDArray[np.int32]) -> int:
    """The last row that nothing of the rows before it reaches beyond; 0 without one. Frames come in order."""
    at = stacks.astype(np.int64) << _OFFSET_BITS
    ends = np.maximum(numbers["metadata_offset"], numbers["pixel_offset"]) + at
    is_break = numbers["pixel_offset"][1:] + at[1:] > np.maximum.accumulate(ends)[:-1]
    found = np.flatnonzero(is_break)
    return int(found[-1]) + 1 if len(found) else 0


def _field_text(text: str, values: NDArray[Any], position: int) -> tuple[str, None]:
    return text.format(values[position]), None
