"""What a script for Pycro-Manager's own storage is told when its class is exchanged."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import ConfigError
from tests.live.daemon_process import DaemonProcess

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("pycromanager"), reason="needs pycromanager"),
    pytest.mark.filterwarnings("ignore"),  # of the library, while it is imported
]

CALLS = [
    ((), {"directory": "/mine", "name": "cells"}),
    ((), {"directory": Path("/mine"), "name": "cells"}),
    (("/mine", "cells"), {}),
    (("cells",), {"directory": "/mine"}),
    (("/mine",), {"name": "cells"}),
]


@pytest.mark.parametrize(("positional", "named"), CALLS)
def test_a_directory_is_refused_in_words_that_say_where_data_go(
    shared_daemon: DaemonProcess, positional: tuple[str, ...], named: dict[str, Any]
) -> None:
    from acqstream.client.pycromanager import Acquisition

    with pytest.raises(ConfigError) as caught:
        Acquisition(*positional, **named, endpoint=shared_daemon.endpoint)
    told = str(caught.value)
    assert told.startswith("directory='/mine': the daemon writes into its own data directory, ")
    assert f"{shared_daemon.data} at {shared_daemon.endpoint}. Leave the argument out" in told
    assert "Acquisition('cells')" in told
    assert not list(shared_daemon.data.glob("[!.]*"))


@pytest.mark.parametrize(("positional", "named"), CALLS)
@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/../data"])
def test_the_daemons_own_directory_is_taken(
    shared_daemon: DaemonProcess,
    monkeypatch: pytest.MonkeyPatch,
    positional: tuple[str, ...],
    named: dict[str, Any],
    spelling: str,
) -> None:
    from acqstream.client import producer
    from acqstream.client.pycromanager import Acquisition, acquisition

    def create(name: str, **options: Any) -> None:
        raise ConfigError(f"far enough: {name} {'directory' in options}")

    monkeypatch.setattr(producer, "create", create)
    monkeypatch.setattr(acquisition, "_engine_summary", lambda _name: {})
    own = spelling.format(shared_daemon.data)
    arguments = [own if one == "/mine" else one for one in positional]
    options: dict[str, Any] = {key: own if str(value) == "/mine" else value for key, value in named.items()}
    for place in ("endpoint", "data"):
        with pytest.raises(ConfigError, match="far enough: cells False"):
            Acquisition(*arguments, **{**options, place: str(getattr(shared_daemon, place))})


@pytest.mark.parametrize(("positional", "named"), [((), {}), (("a", "b", "c"), {}), (("a", "b"), {"name": "c"})])
def test_anything_but_a_directory_and_a_name_is_refused(positional: tuple[str, ...], named: dict[str, Any]) -> None:
    from acqstream.client.pycromanager import Acquisition

    with pytest.raises(TypeError, match="takes a name"):
        Acquisition(*positional, **named)


def test_data_is_passed_on_and_named_where_a_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from acqstream.client import producer
    from acqstream.client.pycromanager import Acquisition, acquisition

    given: dict[str, Any] = {}

    def create(name: str, **options: Any) -> None:
        given.update(options, name=name)
        raise ConfigError("far enough")

    monkeypatch.setattr(producer, "create", create)
    monkeypatch.setattr(acquisition, "_engine_summary", lambda _name: {})
    with pytest.raises(ConfigError, match="far enough"):
        Acquisition("cells", data="/mine")
    assert (given["name"], given["data"]) == ("cells", "/mine")
    with pytest.raises(ConfigError, match=re.escape("into its own data directory, /mine. Leave the argument out")):
        Acquisition(directory="/other", name="cells", data="/mine")


def test_without_a_daemon_the_error_is_the_same_but_for_the_place(free_endpoint: str) -> None:
    from acqstream.client.pycromanager import Acquisition

    with pytest.raises(ConfigError, match=re.escape("into its own data directory. Leave the argument out")):
        Acquisition(directory="/mine", name="cells", endpoint=free_endpoint)


def test_the_daemon_that_would_be_used_is_asked(shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    from acqstream.client.pycromanager import Acquisition

    monkeypatch.setenv("ACQSTREAM_ENDPOINT", shared_daemon.endpoint)
    with pytest.raises(ConfigError, match=re.escape(f"{shared_daemon.data} at {shared_daemon.endpoint}")):
        Acquisition(directory="/mine", name="cells")
