"""Names of datasets: folders of that name can be made, and found again, on every system.

"anna/2026-11-29/embryo" is the dataset `embryo` in folders of the data directory.

Names are kept in Unicode's composed form (NFC): the two forms of "é" look the same, and people type either.
"""

from __future__ import annotations

import re
import unicodedata

MAX_FOLDERS = 5  # in a name
MAX_CHARACTERS = 100  # of the dataset, and of each folder
MAX_BYTES = 180  # in UTF-8; leaves 75 of the 255 that file systems allow to numbers, mirrors and temporary names

_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.IGNORECASE | re.DOTALL)
_LEVEL = re.compile(r"full resolution|downsampled_x[0-9]+", re.IGNORECASE)  # in a dataset
_PUNCTUATION = frozenset("._- ")
_INVISIBLE = re.compile(  # letters and marks by their category, but nothing is seen of them
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def normal_name(name: str) -> str:
    """The name in composed form, as it is stored and looked for."""
    return unicodedata.normalize("NFC", name)


def name_key(name: str) -> str:
    """Equal for names that some file system takes for one: those of Windows and macOS ignore case and form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def name_problem(name: str) -> str:
    """Why no dataset can have this name (in composed form), as the end of a sentence; "" if one can."""
    parts = name.split("/")
    if len(parts) == 1:
        return _part_problem(name)
    if len(parts) > MAX_FOLDERS + 1:
        return f"it names {len(parts) - 1} folders, and {MAX_FOLDERS} are possible"
    if not all(parts):
        return "there is no name before or behind a '/'"
    problems = ((part, _part_problem(part)) for part in parts)
    return next((f"in its part {part!r:.60}, {problem}" for part, problem in problems if problem), "")


def _part_problem(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_CHARACTERS or len(name.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return f"it has more than {MAX_CHARACTERS} characters, or {MAX_BYTES} bytes in UTF-8"
    for character in name:
        if not _is_allowed(character):
            return f"{_shown(character)} is not a letter, digit, space, '.', '_' or '-'"
    if unicodedata.category(name[0])[0] not in "LN" and name[0] != "_":
        return f"it begins with {_shown(name[0])}, not with a letter, a digit or '_'"
    if name[-1] in ". ":
        return f"it ends with {_shown(name[-1])}, which Windows drops"
    if _DEVICE.fullmatch(name):
        return "Windows keeps it for a device"
    if _LEVEL.fullmatch(name):
        return "NDTiff keeps it for a level of a dataset"
    return ""


def _is_allowed(character: str) -> bool:
    if character in _PUNCTUATION:
        return True
    return unicodedata.category(character)[0] in "LMN" and not _INVISIBLE.match(character)


def _shown(character: str) -> str:
    name = unicodedata.name(character, "")
    return f"{character!a} ({name.lower()})" if name else f"{character!a}"
