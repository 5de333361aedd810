"""Which tests go to which process: those of a file stay together, and so do its slow ones, which come later."""

from __future__ import annotations

import itertools
from typing import Any

from xdist.scheduler import LoadScopeScheduling


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Neighbours of one file, in the order of the tests, share a process, and with it the fixtures of their module.

    (xdist's groups by marker do not work with pytest 9.2: names of tests cannot be changed any more.)
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._scopes: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        if not self._scopes:
            runs = itertools.groupby(self.collection or (), lambda name: name.partition("::")[0])
            for number, (file, names) in enumerate(runs):
                self._scopes.update(dict.fromkeys(names, f"{number} {file}"))
        return self._scopes[nodeid]
