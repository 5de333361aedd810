"""The page's list: runs, and no part of one."""

from __future__ import annotations

import shutil
from pathlib import Path

from acqstream.web.page.dataset_list import DatasetCatalog
from tests.dataset.made_runs import make_run


def test_a_mirror_is_listed_only_if_its_dataset_is_gone(tmp_path: Path) -> None:
    make_run(tmp_path / "cells")
    make_run(tmp_path / "cells.2", mirror=False)
    folders = {path.name: path for path in tmp_path.iterdir()}
    assert "cells.n5" in folders
    assert sorted(one.name for one in DatasetCatalog().page(folders, "", 0, 50).entries) == ["cells", "cells.2"]
    shutil.rmtree(folders.pop("cells"))
    assert sorted(one.name for one in DatasetCatalog().page(folders, "", 0, 50).entries) == ["cells.2", "cells.n5"]
