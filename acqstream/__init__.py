"""Stream microscope frames to disk and read them back, also while they arrive.

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acqstream.client.producer import create
    from acqstream.dataset.dataset import open_dataset as open
    from acqstream.errors import (
        AcqStreamError,
        AcquisitionFailed,
        AcquisitionRefused,
        ConfigError,
        CorruptDataset,
        DaemonUnavailable,
        DatasetError,
        DatasetExists,
        DatasetLocked,
        DiskFull,
        FrameNotFound,
        FrameRefused,
        ProtocolError,
        StorageError,
        UnknownFormat,
        UnsupportedFeature,
        WaitTimeout,
        WriterBehind,
    )

__version__ = "0.1.0"

__all__ = [
    "AcqStreamError",
    "AcquisitionFailed",
    "AcquisitionRefused",
    "ConfigError",
    "CorruptDataset",
    "DaemonUnavailable",
    "DatasetError",
    "DatasetExists",
    "DatasetLocked",
    "DiskFull",
    "FrameNotFound",
    "FrameRefused",
    "ProtocolError",
    "StorageError",
    "UnknownFormat",
    "UnsupportedFeature",
    "WaitTimeout",
    "WriterBehind",
    "__version__",
    "create",
    "open",
]

_HOMES = {
    "create": ("acqstream.client.producer", "create"),
    "open": ("acqstream.dataset.dataset", "open_dataset"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'acqstream' has no attribute {name!r}")
    module, attribute = _HOMES.get(name, ("acqstream.errors", name))
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
