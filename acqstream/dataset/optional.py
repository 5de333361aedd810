"""Libraries that only some uses of a dataset need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from acqstream.errors import ConfigError
from acqstream.extras import install_command


def import_optional(module: str, extra: str) -> Any:
    """Import a module. Raises ConfigError with the command that installs the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        text = f"{module} is needed for this and cannot be imported ({error}): {install_command(extra)}"
        raise ConfigError(text) from error
