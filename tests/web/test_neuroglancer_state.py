"""States for Neuroglancer, and how a viewer takes new ones over."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from acqstream.web.data import neuroglancer_follower
from acqstream.web.data.neuroglancer_follower import Follower, fetch, merged
from acqstream.web.data.neuroglancer_state import state_url
from acqstream.web.neuroglancer_routes import ViewerProcesses
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import frames_at, places_of
from tests.waiting import until
from tests.web.web_process import web_thread

SIZES = {"time": 3, "channel": 2, "z": 4}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    frames = frames_at(places_of(tuple(SIZES), SIZES, {"channel": ["DAPI", "GFP"]}), (21, 26))
    write_log(folder / "cells", frames, summary={"PixelSize_um": 0.5, "z-step_um": 2.0})
    return folder


def test_a_state_shows_the_newest_time(data):
    with web_thread(data) as site:
        state = json.loads(site.ask("/view/cells/state.json").body)
    assert state["dimensions"] == {"x": [0.5e-6, "m"], "y": [0.5e-6, "m"], "z": [2e-6, "m"], "t": [1.0, ""]}
    assert state["position"] == [12, 10, 1, 2]
    assert (state["prefetch"], state["concurrentDownloads"]) == (False, 4)
    assert [layer["name"] for layer in state["layers"]] == ["cells DAPI", "cells GFP"]
    assert [layer["localPosition"] for layer in state["layers"]] == [[0], [1]]
    source = state["layers"][0]["source"]
    assert source == f"{site.url}/data/cells@id=000000000000,g=24/ome.zarr/|zarr3:"


def test_a_link_leads_to_the_built_client_or_the_public_one(data, tmp_path):
    client = tmp_path / "client"
    (client / "sub").mkdir(parents=True)
    (client / "index.html").write_text("<html>")
    (client / "sub" / "main.js").write_text("1")
    with web_thread(data, neuroglancer=client) as site:
        reply = site.ask("/view/cells")
        address, _, fragment = reply.headers["location"].partition("#!")
        assert (reply.status, address) == (302, f"{site.url}/neuroglancer/index.html")
        assert json.loads(unquote(fragment))["layout"] == "xy"
        assert site.ask("/neuroglancer/").body == b"<html>"
        script = site.ask("/neuroglancer/sub/main.js")
        assert (script.body, script.headers["content-type"]) == (b"1", "text/javascript")
        assert site.ask("/neuroglancer/../data").status == 404
        assert site.ask("/neuroglancer/%2e%2e/data").status == 404
    with web_thread(data) as site:
        assert site.ask("/view/cells").headers["location"].startswith("https://neuroglancer-demo.appspot.com/#!")
        assert site.ask("/neuroglancer/").status == 404
        assert site.ask("/view/none").status == 404
        assert site.ask("/view/none/state.json").status == 404


def test_a_token_stays_in_the_addresses(data):
    token = "a-token-of-some-length"
    with web_thread(data, token=token) as site:
        state = json.loads(site.ask(f"/t/{token}/view/cells/state.json").body)
        assert state["layers"][0]["source"].startswith(f"{site.url}/t/{token}/data/cells@")


@pytest.mark.parametrize("name", ["a b@c#ü", "anna/day 1/c"])
def test_a_follower_learns_from_the_server_whether_a_source_is_loaded(data, name):
    token = "a-token-of-some-length"
    (data / name).parent.mkdir(parents=True, exist_ok=True)
    (data / "cells").rename(data / name)
    with web_thread(data, token=token) as site:
        url = f"{site.url}/t/{token}/view/{quote(name, safe='')}/state.json"
        follower, state = Follower(None, url), fetch(url)
        place = state["layers"][0]["source"].removeprefix(site.url).removesuffix("|zarr3:")
        assert site.ask(f"{place}zarr.json").status == 200
        assert follower._is_loaded(state) is None
        assert site.ask(f"{place}0/c/0/0/0/0/0").status == 200
        until(lambda: follower._is_loaded(state), "the chunk was sent a while ago")
        assert fetch(f"{site.url}/t/{token}/view/none/loaded/..%2f..") == {"loaded": None}
        assert site.ask(f"/view/{quote(name, safe='')}/loaded/x").status == 401


FOLLOWER = """
import sys, time
open({told!r}, "w").write(sys.stdin.readline() + open("/proc/self/cmdline").read() + "\\n")
print("http://127.0.0.1:1/viewer", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_viewer_asks_this_server_with_the_token_and_no_other_user_reads_it(data, tmp_path, monkeypatch):
    """Also for a page that has the token in its cookie, and whatever a client calls the server."""
    token, told = "a-token-of-some-length", tmp_path / "told"
    program = tmp_path / "follower.py"
    program.write_text(FOLLOWER.format(told=str(told)))
    monkeypatch.setattr(neuroglancer_follower, "__file__", str(program))
    monkeypatch.setattr(ViewerProcesses, "is_possible", True)
    with web_thread(data, token=token) as site:
        headers = {"Cookie": f"acqstream_token={token}", "Host": "127.0.0.1:9"}
        reply = site.ask("/view/cells", headers=headers)
        assert (reply.status, reply.headers["location"]) == (302, "http://127.0.0.1:1/viewer")
        address, command = told.read_text().splitlines()
        assert token not in command
        assert address == f"{site.url}/t/{token}/view/cells/state.json"
        assert site.ask(address.removeprefix(site.url)).status == 200


def state(count: int, position: list[float], **more: object) -> dict[str, object]:
    return {
        "dimensions": {"x": [1, ""], "y": [1, ""], "t": [1, ""]},
        "position": position,
        "layers": [{"name": "cells", "source": f"http://a/g={count}", "shader": "new"}],
        **more,
    }


def test_a_viewer_that_shows_the_newest_frame_follows():
    current = state(3, [7.0, 8.0, 2.0], layout="4panel")
    current["layers"][0]["shader"] = "mine"  # type: ignore[index]
    found = merged(current, state(5, [1.0, 1.0, 4.0]), state(3, [1.0, 1.0, 2.0]))
    assert found["position"] == [7.0, 8.0, 4.0]
    assert found["layout"] == "4panel"
    assert found["layers"] == [{"name": "cells", "source": "http://a/g=5", "shader": "mine"}]


def test_a_viewer_whose_shader_was_not_changed_gets_the_new_contrast():
    new = state(5, [1.0, 1.0, 4.0])
    new["layers"][0]["shader"] = "better"  # type: ignore[index]
    found = merged(state(3, [7.0, 8.0, 2.0]), new, state(3, [1.0, 1.0, 2.0]))
    assert found["layers"] == [{"name": "cells", "source": "http://a/g=5", "shader": "better"}]


def test_a_viewer_that_was_moved_stays_where_it_is():
    found = merged(state(3, [7.0, 8.0, 0.0]), state(5, [1.0, 1.0, 4.0]), state(3, [1.0, 1.0, 2.0]))
    assert found["position"] == [7.0, 8.0, 0.0]
    assert found["layers"][0]["source"] == "http://a/g=5"


def test_the_first_state_is_taken_as_it_is():
    assert merged({}, state(3, [1.0, 1.0, 2.0]), None) == state(3, [1.0, 1.0, 2.0])
    assert merged({"layers": []}, state(3, [1.0, 1.0, 2.0]), state(1, [1.0, 1.0, 0.0])) == state(3, [1.0, 1.0, 2.0])


def test_links_can_be_read_back():
    assert json.loads(unquote(state_url("http://a/", {"b": [1, "ü#&"]}).partition("#!")[2])) == {"b": [1, "ü#&"]}
