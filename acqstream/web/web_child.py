"""The web face as a child process of the daemon.

`acqstream.daemon.child_process` starts `python -m acqstream.web.web_child SETTINGS SOCKET PARENT`, SETTINGS in JSON.
The process ends when the socket is closed. Exit codes: 0 in order, 78 the settings cannot work.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from acqstream.errors import AcqStreamError, ConfigError
from acqstream.extras import install_command
from acqstream.storage.patient_output import never_wait_for_output
from acqstream.storage.platform import child_process
from acqstream.web.token_file import read_or_make_token
from acqstream.web.web_settings import VIEWER_ORIGINS, WebLimits, WebSettings

logger = logging.getLogger("acqstream.web")

EXIT_CONFIGURATION = 78


def settings_of(values: Mapping[str, Any]) -> WebSettings:
    """The settings that the daemon sends. Raises ConfigError, StorageError."""
    token_file, neuroglancer, rate = values["token_file"], values["neuroglancer"], values["read_mb_s"]
    return WebSettings(
        data=Path(values["data"]),
        address=values["address"],
        port=values["port"],
        endpoint=values["endpoint"],
        hosts=tuple(values["hosts"]),
        origins=(*VIEWER_ORIGINS, *values["origins"]),
        token=read_or_make_token(Path(token_file), for_group=True) if token_file else "",
        neuroglancer=Path(neuroglancer) if neuroglancer else None,
        limits=WebLimits(read_bytes_per_s=None if rate is None else int(rate * 1e6)),
    )


def main() -> None:
    """Run the process. Ctrl-C and SIGTERM go to the whole process group, but the daemon decides when to end."""
    never_wait_for_output()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in child_process.ignored_signals():
        signal.signal(number, signal.SIG_IGN)
    child_process.follow_parent(sys.argv[3])
    child_process.yield_to_parent()
    try:
        if find_spec("aiohttp") is None:
            raise ConfigError(f"web needs more packages: {install_command('web')}")
        from acqstream.web.web_server import run_server

        settings = settings_of(json.loads(sys.argv[1]))
        with child_process.adopt_connection(sys.argv[2]) as connection:
            run_server(settings, lambda url: logger.info("web: serving at %s", url), connection)
    except AcqStreamError as error:
        logger.error("%s", error)  # noqa: TRY400 - no traceback: the text says all
        sys.exit(EXIT_CONFIGURATION if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
