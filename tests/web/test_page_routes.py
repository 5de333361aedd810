"""The page's routes at a real server: texts, events, pictures, and the rules that hold for them, too."""

from __future__ import annotations

import http.client
import io
import json
import math
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

import acqstream
from acqstream.cli.main import main
from acqstream.web.app import layout_of
from acqstream.web.page.dataset_list import DatasetCatalog
from acqstream.web.web_settings import WebLimits
from tests.live.daemon_process import DaemonProcess
from tests.log.make_frames import frame_of, write_log
from tests.waiting import WAIT_S, until
from tests.web.web_process import Reply, Site, web_process, web_thread

FRAMES = [
    frame_of(number, (96, 128), axes={"time": time, "channel": channel}, bits=12)
    for number, (time, channel) in enumerate((time, channel) for time in range(3) for channel in ("DAPI", "G<b>P"))
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "data"
    folder.mkdir()
    write_log(folder / "cells", FRAMES)
    (folder / "not a dataset").mkdir()
    (folder / "cells.n5.view").mkdir()
    return folder


@pytest.fixture(scope="module")
def site(data: Path) -> Iterator[Site]:
    with web_thread(data, endpoint="tcp://127.0.0.1:9") as site:
        yield site


def document(reply: Reply) -> Any:
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json"), reply.body
    return json.loads(reply.body)


def pixels_of(reply: Reply) -> NDArray[np.uint8]:
    assert (reply.status, reply.headers["content-type"]) == (200, "image/jpeg"), reply.body
    with Image.open(io.BytesIO(reply.body)) as image:
        return np.asarray(image)


def grey(frame: NDArray[Any], low: float, high: float) -> NDArray[Any]:
    return np.clip((frame.astype(float) - low) * 255 / (high - low), 0, 255)


def test_the_page_and_its_files(site: Site) -> None:
    page = site.ask("/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert b"no daemon answers" in page.body
    script = site.ask("/page/main.js")
    assert (script.status, script.headers["content-type"]) == (200, "text/javascript")
    assert site.ask("/page/main.js", headers={"If-None-Match": script.headers["etag"]}).status == 304
    for path in ("/page/index.html", "/page/..%2fmetrics.py", "/page/", "/page/none.js"):
        assert site.ask(path).status == 404, path


def test_the_page_obeys_the_rules_of_the_server(site: Site) -> None:
    for path in ("/", "/page/page.css", "/api/status", "/api/events", "/metrics", "/readyz"):
        assert site.ask(path, "POST").status == 405, path
        assert site.ask(path, headers={"Host": "evil.example"}).status == 421, path


def test_a_token_in_the_path_becomes_a_cookie(data: Path) -> None:
    with web_thread(data, token="secret-token", endpoint="tcp://127.0.0.1:9") as site:
        assert site.ask("/").status == 401
        assert site.ask("/t/wrong/").status == 401
        moved = site.ask("/t/secret-token/")
        assert (moved.status, moved.headers["location"]) == (303, "/")
        cookie = moved.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert site.ask("/", headers={"Cookie": cookie.split(";")[0]}).status == 200
        lines = document(site.ask("/api/datasets/cells", headers={"Authorization": "Bearer secret-token"}))["lines"]
        assert any("/t/secret-token/data/cells/" in line.get("line", "") for line in lines)


def test_the_list_of_datasets(site: Site) -> None:
    (entry,) = document(site.ask("/api/datasets"))["datasets"]
    assert (entry["name"], entry["format"], entry["state"]) == ("cells", "ndtiff", "complete")
    assert entry["receipt"]["is_good"]
    assert entry["receipt"]["stored"] == "6 frames stored"


def test_what_is_in_a_dataset(site: Site) -> None:
    found = document(site.ask("/api/datasets/cells"))
    assert (found["shape"], found["dtype"], found["bits"], found["count"]) == ([96, 128], "uint16", 12, 6)
    assert found["axes"]["time"] == {"count": 3, "values": [0, 1, 2]}
    assert [one["name"] for one in found["channels"]] == ["DAPI", "G<b>P"]
    by_label = {one["label"]: one.get("href") or one["line"] for one in found["lines"]}
    assert by_label["Neuroglancer"] == "/view/cells"
    assert site.ask("/view/cells/state.json").status == 200
    assert by_label["Python here"].endswith(f"acqstream.open({str(site.context.settings.data / 'cells')!r})")  # type: ignore[union-attr]
    zarr = by_label["Python elsewhere"].split('"')[1]
    assert zarr == f"{site.url}/data/cells/ome.zarr"
    assert site.ask(zarr.removeprefix(site.url) + "/zarr.json").status == 200  # the address exists
    n5 = next(value for label, value in by_label.items() if label.startswith("Fiji"))
    assert site.ask(n5.removeprefix(site.url) + "/attributes.json").status == 200


def test_names_that_are_no_dataset(site: Site) -> None:
    for name in ("none", "..", "%2e%2e", "cells%2f..", "not%20a%20dataset"):
        for path in (f"/api/datasets/{name}", f"/api/datasets/{name}/preview.jpg"):
            assert site.ask(path).status == 404, path


@pytest.mark.parametrize(
    ("query", "number"),
    [("", 5), ("channel=DAPI", 4), ("channel=G%3Cb%3EP&time=1", 3), ("time=0&channel=DAPI", 0)],
)
def test_a_preview_has_the_pixels_of_its_frame(site: Site, query: str, number: int) -> None:
    reply = site.ask(f"/api/datasets/cells/preview.jpg?{query}&low=0&high=4095")
    expected = grey(FRAMES[number].image, 0, 4095)
    assert np.abs(pixels_of(reply) - expected).mean() < 12  # noise, as JPEG keeps it
    facts = json.loads(reply.headers["acqstream-picture"])
    assert (facts["number"], facts["axes"], facts["count"]) == (number, FRAMES[number].axes, 6)
    assert (facts["low"], facts["high"]) == (0, 4095)
    errors = [np.abs(pixels_of(reply) - grey(one.image, 0, 4095)).mean() for one in FRAMES]
    assert np.argmin(errors) == number


def test_a_small_preview_is_made_of_means(site: Site) -> None:
    pixels = pixels_of(site.ask("/api/datasets/cells/preview.jpg?max=64&low=0&high=4095"))
    assert pixels.shape == (48, 64)
    means = FRAMES[5].image.reshape(48, 2, 64, 2).mean((1, 3))
    assert np.abs(pixels - grey(means, 0, 4095)).mean() < 12


def test_a_part_of_a_frame(site: Site) -> None:
    """One pixel of the picture is one of the frame, however large the frame."""
    path = "/api/datasets/cells/preview.jpg?max=64&low=0&high=4095&crop=20,100,64,64"
    reply = site.ask(path)
    assert np.abs(pixels_of(reply) - grey(FRAMES[5].image[20:84, 100:], 0, 4095)).mean() < 12
    facts = json.loads(reply.headers["acqstream-picture"])
    assert (facts["start"], facts["steps"]) == ([20, 100], [1, 1])
    assert site.ask(path.replace("20,100", "96,0")).status == 404


def test_a_preview_is_not_sent_twice(site: Site) -> None:
    path = "/api/datasets/cells/preview.jpg?time=1"
    tag = site.ask(path).headers["etag"]
    assert site.ask(path, headers={"If-None-Match": tag}).status == 304
    assert site.ask(path.replace("time=1", "time=2")).headers["etag"] != tag
    assert site.ask(f"{path}&low=1&high=5").headers["etag"] != tag
    head = site.ask(path, "HEAD")
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize(
    "query",
    [
        "max=63",
        "max=2049",
        "max=x",
        "low=5",
        "low=5&high=5",
        "low=9&high=5",
        "low=nan&high=5",
        "low=1&high=inf",
        "&".join(f"axis{number}=1" for number in range(17)),
        "crop=",
        "crop=0,0,5",
        "crop=0,0,0,5",
        "crop=-1,0,5,5",
        "crop=0,0,5,1e3",
    ],
)
def test_a_query_that_names_no_picture(site: Site, query: str) -> None:
    assert site.ask(f"/api/datasets/cells/preview.jpg?{query}").status == 400


def test_an_axis_that_is_missing(site: Site) -> None:
    for query in ("z=1", "channel=Cy5", "time=9"):
        assert site.ask(f"/api/datasets/cells/preview.jpg?{query}").status == 404, query


def values_path(*frames: Any, y: object = 3, x: object = 5) -> str:
    query = [("y", y), ("x", x), *(("frame", json.dumps(one)) for one in frames)]
    return f"/api/datasets/cells/values?{urlencode(query)}"


def test_values_are_those_that_are_stored(site: Site) -> None:
    absent = {"time": 9, "channel": "DAPI"}
    found = document(site.ask(values_path(FRAMES[3].axes, absent, FRAMES[4].axes, {"z": 1}, y=95, x=127)))
    values = [[FRAMES[3].image[95, 127]], [], [FRAMES[4].image[95, 127]], []]
    assert found == {"y": 95, "x": 127, "values": values}
    assert document(site.ask(values_path(FRAMES[3].axes, y=96, x=0)))["values"] == [[]]
    facts = json.loads(site.ask("/api/datasets/cells/preview.jpg?max=64").headers["acqstream-picture"])
    assert facts["steps"] == [2, 2]


@pytest.mark.parametrize(
    "path",
    [
        values_path(),
        values_path(*[{}] * 7),
        values_path({}, y=-1),
        values_path({}, y="01"),
        values_path({}, x=""),
        values_path({}, x="9" * 11),
        values_path([]),
        values_path({"time": 1.5}),
        values_path({"time": True}),
        values_path({"time": [1]}),
        values_path({f"axis{number}": 1 for number in range(17)}),
        values_path() + "&frame=" + "[" * 3000,
        values_path() + "&frame={",
    ],
)
def test_a_query_that_names_no_pixel(site: Site, path: str) -> None:
    assert site.ask(path).status == 400


def test_values_of_what_is_missing(site: Site) -> None:
    assert site.ask(values_path({}).replace("cells", "none")).status == 404
    for axes in ({"time": 10**30}, {"channel": 5}, {"": ""}):
        assert document(site.ask(values_path(axes)))["values"] == [[]]


def test_a_mirror_has_pictures_too(data: Path, site: Site) -> None:
    with pytest.raises(SystemExit) as end:
        main(["mirror", str(data / "cells"), "--to", "n5"])
    assert end.value.code in (0, None)
    try:
        reply = until(
            lambda: _found(site.ask("/api/datasets/cells.n5/preview.jpg?time=1&channel=DAPI&low=0&high=4095")), "listed"
        )
        assert np.abs(pixels_of(reply) - grey(FRAMES[2].image, 0, 4095)).mean() < 12
        values = document(site.ask(values_path(FRAMES[2].axes).replace("cells", "cells.n5")))["values"]
        assert values == [[FRAMES[2].image[3, 5]]]
    finally:
        for name in ("cells.n5", "cells.xml"):
            path = data / name
            path.rename(data.parent / name)


def _found(reply: Reply) -> Reply | None:
    return reply if reply.status == 200 else None


def test_health_and_readiness_without_a_daemon(site: Site) -> None:
    assert site.ask("/healthz").status == 200
    until(lambda: b"not been asked" not in site.ask("/readyz").body, "the daemon was asked")
    ready = site.ask("/readyz")
    assert ready.status == 503
    assert ready.body.startswith(b"no daemon answers: ")
    assert b"acqstream_up 0.0" in site.ask("/metrics").body


def counted(site: Site, layout: str, code: int) -> float:
    families = text_string_to_metric_families(site.ask("/metrics").body.decode())
    wanted = {"layout": layout, "code": str(code)}
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "acqstream_web_requests_total" and sample.labels == wanted
    )


def test_requests_are_counted_by_layout(site: Site) -> None:
    before = counted(site, "ome.zarr", 200), counted(site, "other", 404)
    site.ask("/data/cells/ome.zarr/zarr.json")
    site.ask("/nowhere/at/all")
    assert (counted(site, "ome.zarr", 200), counted(site, "other", 404)) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize(
    ("path", "layout"),
    [
        ("/", "page"),
        ("/page/main.js", "page"),
        ("/api/status", "api"),
        ("/metrics", "metrics"),
        ("/data/a/ome.zarr/zarr.json", "ome.zarr"),
        ("/data/a@g=3/v2.ome.zarr/0/0", "v2.ome.zarr"),
        ("/data/anna/day/a@g=3/n5/s0/0/0", "n5"),
        ("/data/1/2/3/4/5/a/n5", "n5"),
        ("/data/a.n5/s0/0/0", "files"),
        ("/data", "files"),
        ("/data/a/whatever", "files"),
        ("/x/y", "other"),
        ("", "page"),
    ],
)
def test_layouts_are_of_a_fixed_list(path: str, layout: str) -> None:
    assert layout_of(path) == layout


@pytest.fixture
def live_site(daemon: DaemonProcess) -> Iterator[Site]:
    with web_thread(daemon.data, endpoint=daemon.endpoint) as site:
        yield site


class Events:
    """The event stream of a server, read line by line."""

    def __init__(self, site: Site) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=WAIT_S)
        self._connection.request("GET", "/api/events")
        self.answer = self._connection.getresponse()

    def next_texts(self) -> dict[str, Any]:
        """The texts of the next event."""
        while True:
            line = self.answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                found: dict[str, Any] = json.loads(line[len(b"data: ") :])
                return found

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


def test_events_follow_a_run(daemon: DaemonProcess, live_site: Site) -> None:
    events = Events(live_site)
    assert events.answer.status == 200
    assert events.answer.headers["Content-Type"] == "text/event-stream"
    assert events.answer.headers["Cache-Control"] == "no-store"
    image = np.zeros((16, 16), np.uint16)
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(image, time=0)
        until(lambda: [one["received"] for one in events.next_texts()["runs"]] == ["1"], "the frame is shown")
        assert document(live_site.ask("/api/status"))["status"]["acquisitions"][0]["received"] == 1
        assert live_site.ask("/readyz").body == b"ok\n"
        assert b'acqstream_acquisition_state{acquisition="cells",state="RUNNING"} 1.0' in live_site.ask("/metrics").body
    texts = until(lambda: (now := events.next_texts())["ended"] and now, "its end is shown")
    assert (texts["ended"][0]["name"], texts["ended"][0]["is_good"]) == ("cells", True)
    assert texts["runs"] == []
    events.close()
    assert live_site.context is not None
    until(lambda: live_site.context.gate.streams == 0, "the stream has ended at the server, too")  # type: ignore[union-attr]


def test_one_question_a_second_however_many_pages(live_site: Site) -> None:
    assert live_site.context is not None
    feed = live_site.context.feed
    streams = [Events(live_site) for _ in range(8)]
    before = feed.n_reports
    for stream in streams:
        for _ in range(3):
            stream.next_texts()
    assert feed.n_reports - before <= 8
    for stream in streams:
        stream.close()


def test_streams_that_nobody_reads_are_cut(data: Path) -> None:
    """They end after a time as all do, and a page opens its next one: so nobody takes all places for ever."""
    with web_thread(data, limits=WebLimits(streams=2, stream_s=1.0)) as site:
        assert site.context is not None
        unread = []
        for _ in range(2):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", site.port))
            one.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            unread.append(one)
        until(lambda: site.context.gate.streams == 2, "both are open")  # type: ignore[union-attr]
        assert site.ask("/api/events").status == 503
        events = until(lambda: _opened(site), "a place for another one")
        assert events.next_texts()
        while events.answer.readline():  # a whole answer, which a browser takes for a reason to ask again
            pass
        events.close()
        for one in unread:
            one.close()


def _opened(site: Site) -> Events | None:
    """A stream of events; None while there is no place."""
    events = Events(site)
    if events.answer.status == 200:
        return events
    events.close()
    return None


def test_a_picture_is_rendered_once_for_all_who_look(daemon: DaemonProcess, live_site: Site) -> None:
    frame = FRAMES[0].image
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:
        run.put(frame, time=0)
        until(lambda: live_site.ask("/api/datasets/cells/preview.jpg").status == 200, "the picture is there")
        tags = {live_site.ask("/api/datasets/cells/preview.jpg").headers["etag"] for _ in range(5)}
        assert len(tags) == 1
        run.put(FRAMES[1].image, time=1)
        newest = until(
            lambda: (reply := live_site.ask("/api/datasets/cells/preview.jpg")).headers["etag"] not in tags and reply,
            "the new frame is shown",
        )
        assert json.loads(newest.headers["acqstream-picture"])["number"] == 1


def test_history_is_a_document(live_site: Site) -> None:
    steps = document(live_site.ask("/api/history"))["steps"]
    assert all(len(step) == 5 and not math.isnan(step[0]) for step in steps)


def test_a_killed_face_costs_the_run_nothing(daemon: DaemonProcess) -> None:
    with (
        web_process(daemon.data, "--endpoint", daemon.endpoint) as site,
        acqstream.create("cells", endpoint=daemon.endpoint) as run,
    ):
        run.put(FRAMES[0].image, time=0)
        until(lambda: site.ask("/api/datasets/cells/preview.jpg").status == 200, "the face reads the run")
        assert site.process is not None
        site.process.kill()
        site.process.wait()
        for number in range(1, 30):
            run.put(FRAMES[number % 6].image, time=number)
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.complete, run.warnings) == (30, True, ())


def test_parts_of_the_list(site: Site) -> None:
    found = document(site.ask("/api/datasets?search=CEL%20ls&limit=1"))
    assert (found["total"], found["next"], [one["name"] for one in found["datasets"]]) == (1, None, ["cells"])
    assert document(site.ask("/api/datasets?search=none"))["datasets"] == []
    assert document(site.ask("/api/datasets?offset=5000"))["datasets"] == []
    for query in ("limit=0", "limit=201", "limit=x", "offset=-1", f"search={'a' * 201}"):
        assert site.ask(f"/api/datasets?{query}").status == 400, query


def test_a_dataset_that_changes_is_read_again(tmp_path: Path) -> None:
    """Also one that nobody has looked at for long, once a name comes or goes."""
    catalog, folders = DatasetCatalog(), {}
    for name in ("a", "b"):
        write_log(tmp_path / name, FRAMES[:1])
        folders[name] = tmp_path / name
    (first, _) = catalog.page(folders, "", 0, 50).entries
    assert first.receipt is not None
    os.utime(tmp_path / "a", (10, 10))
    assert [one.run.name for one in catalog.page(folders, "", 0, 50).entries] == ["b", "a"]
    (tmp_path / "a" / "receipt.json").unlink()
    (changed, _) = catalog.page(folders, "", 0, 50).entries
    assert (changed.run.name, changed.receipt) == ("a", None)
    assert catalog.page({"a": tmp_path / "a"}, "", 0, 50).total == 1
