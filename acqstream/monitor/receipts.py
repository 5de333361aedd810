"""Receipts of runs, read from their folders."""

from __future__ import annotations

import logging
import os

from acqstream.errors import AcqStreamError
from acqstream.log.state_file import read_receipt
from acqstream.model.receipt import Receipt
from acqstream.model.status import AcquisitionStatus

logger = logging.getLogger("acqstream.monitor")


def receipt_in(folder: str | os.PathLike[str]) -> Receipt | None:
    """Return the receipt in a folder; None if it has none, or it cannot be read from this machine."""
    try:
        return read_receipt(os.fspath(folder))
    except (AcqStreamError, OSError) as error:
        logger.warning("cannot read the receipt in %s: %s", folder, error)
        return None


def receipt_of(run: AcquisitionStatus) -> Receipt | None:
    """Return the receipt of a run; None if its folder has none of this run."""
    receipt = receipt_in(run.path) if run.path else None
    return receipt if receipt is not None and receipt.dataset_id == run.dataset_id else None
