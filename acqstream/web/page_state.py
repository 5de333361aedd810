"""What the routes of the page share: its files, the pictures, and the texts of the last look at the daemon."""

from __future__ import annotations

import json
import socket
from typing import Any

from acqstream.web.dataset_shelf import DatasetShelf
from acqstream.web.page_files import PageFiles, load_page_files
from acqstream.web.page_texts import page_texts
from acqstream.web.previews import Previews
from acqstream.web.web_context import WebContext


class PageState:
    """One per server. Used by the loop's thread."""

    def __init__(self, context: WebContext) -> None:
        self._feed = context.feed
        self.host = socket.gethostname()
        self.files: PageFiles = load_page_files()
        self.shelf = DatasetShelf()
        self.previews = Previews(self.shelf, context.run, context.gate.pace)
        self._texts: tuple[int, dict[str, Any], str] = (-1, {}, "")

    @property
    def texts(self) -> dict[str, Any]:
        """All texts of the page, of the last look at the daemon."""
        return self._made()[1]

    @property
    def event(self) -> str:
        """The texts as the data of an event; made once for all pages."""
        return self._made()[2]

    def history(self) -> dict[str, Any]:
        """Steps of the last hour: seconds before now, bytes and frames per second, waiting frames, and late seconds."""
        now_s = self._feed.view.at_s
        steps = [
            [round(now_s - one.at_s, 1), one.bytes_per_s, one.frames_per_s, one.queue_frames, one.publish_p99_s]
            for one in self._feed.history.steps
        ]
        return {"steps": steps}

    def close(self) -> None:
        self.shelf.close()

    def _made(self) -> tuple[int, dict[str, Any], str]:
        feed, n_reports = self._feed, self._feed.n_reports
        if self._texts[0] != n_reports:
            texts = page_texts(feed.view, feed.run_rates(), self.host, feed.silence_s)
            self._texts = n_reports, texts, json.dumps(texts, separators=(",", ":"))
        return self._texts
