"""The words and numbers of the page, made of a view of the daemon. Pure.

The page that the server renders and the events that change it later show the same texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from acqstream.model.daemon_note import STARTING
from acqstream.model.receipt import Receipt
from acqstream.model.run_summary import BAD, WARN, Alarm, is_silent, run_summary, space_alarm
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, DaemonStatus, ViewStatus
from acqstream.model.units import count_text, duration_text, numbers_text, shell_word, size_text
from acqstream.monitor.daemon_watch import DaemonView, EndedRun

DAEMON_SILENT_S = 3.0  # without an answer, while asked once a second
MAX_WARNINGS = 6
MAX_GAPS = 5
_WRITING = frozenset({AcquisitionState.OPENING, AcquisitionState.RUNNING, AcquisitionState.CLOSING})


def page_texts(view: DaemonView, host: str, now: datetime, silence_s: float | None = None) -> dict[str, Any]:
    """All texts of the page. now: with the zone of texts that name a time.

    silence_s: since the last answer of the daemon; None: it has not answered yet.
    """
    is_away = view.status is None or (silence_s or 0.0) >= DAEMON_SILENT_S
    data = view.status.data if view.status is not None else ""
    runs = [run_texts(one, now, not is_away, data) for one in view.running]
    trouble = [_silence_alarm(view, silence_s)] if is_away else [*daemon_trouble(view)]
    trouble += [Alarm(one["alarm_level"], one["alarm"], one["alarm_do"]) for one in runs if one["alarm"]]
    trouble.sort(key=lambda one: one.level != BAD)  # the worst first
    recording = [one for one in runs if one["state"] in (*_WRITING, AcquisitionState.PAUSED)]
    summary = f"recording {count_text(len(recording), 'run')}" if recording else "idle"
    return {
        "host": host,
        "alarm": "  ·  ".join(one.text for one in trouble),
        "alarm_level": trouble[0].level if trouble else "",
        "alarm_why": "  ·  ".join(dict.fromkeys(one.action for one in trouble)),
        "is_away": is_away,
        "title": f"{_title(trouble, summary)} · {host}",
        "summary": "no word from the daemon" if is_away else summary,
        "is_recording": bool(recording) and not is_away,
        **_daemon_texts(view.status),
        "runs": runs,
        "ended": [ended_texts(one, data) for one in reversed(view.ended)],
        "is_idle": not runs,
    }


def daemon_trouble(view: DaemonView) -> Iterator[Alarm]:
    """What is wrong with the daemon as a whole, where no alarm of a run says it."""
    if view.status is None:
        return
    alarm = space_alarm(view.status)
    if alarm.level and not any(one.paused if alarm.level == BAD else one.short_bytes for one in view.running):
        yield alarm


def name_below(data: str, path: str, name: str) -> str:
    """The name of a folder below the data directory, as addresses have it; of a run that began as `name`."""
    parts, top = (text.replace("\\", "/").rstrip("/").split("/") for text in (path, data))
    is_below = bool(data) and parts[: len(top)] == top
    return "/".join(parts[len(top) if is_below else -1 - name.count("/") :])


def run_texts(run: AcquisitionStatus, now: datetime, is_known: bool, data: str = "") -> dict[str, Any]:
    """Texts of a running acquisition. is_known: the daemon answers, so that the numbers are those of now.

    data: the data directory, "" if it is not known.

    sentence has the end in the zone of `now`; a script makes it of the three parts before it, in the reader's own.
    """
    words = run_summary(run if is_known else replace(run, seconds_to_end=None))
    alarm, end = words.alarm if is_known else Alarm(), words.ends_at(now)
    return {
        "id": run.dataset_id,
        "name": run.name,
        "folder": name_below(data, run.path, run.name),
        "path": run.path,
        "state": run.state,
        "is_paused": run.state == AcquisitionState.PAUSED,
        "age": clock_text(run.running_s),
        "how": ", ".join(part for part in (_transport(run), f"{run.io} writes" if run.io else "") if part),
        "sent": "" if run.sent is None else f"{run.sent:,}",
        "received": f"{run.received:,}",
        "published": f"{run.published:,}",
        "durable": f"{run.durable:,}",
        "size": size_text(run.payload_bytes),
        "last_safe": f"last safe frame {run.durable - 1:,}" if run.durable else "no frame is safe yet",
        "safe_text": words.safe_text,
        "ends_at": "" if end is None else end.astimezone(UTC).isoformat(timespec="seconds"),
        "to_come_text": words.to_come_text,
        "sentence": words.sentence(now),
        "planned": words.planned,
        "safe": words.safe,
        "safe_share": words.safe_share,
        "to_come_bytes": run.to_come_bytes,
        "fits": words.fits,
        "skipped": words.skipped_text,
        "rate": words.rate_text,
        "frame_rate": words.frame_rate_text,
        "queue": f"queue {count_text(run.queue_frames, 'frame')}, {size_text(run.queue_bytes)}",
        "since_frame": _since_text(run.seconds_since_frame) if is_known else "age of the last frame not known",
        "is_stale": not is_known or is_silent(run, words.frames_per_s),
        "mirrors": [mirror_texts(name, one, run.published) for name, one in run.mirrors.items()],
        "warnings": [
            {"time": time, "code": code, "text": text} for code, text, time in run.warnings[-MAX_WARNINGS:][::-1]
        ],
        "alarm": f"{alarm.text} ({run.name})" if alarm.text else "",
        "alarm_level": alarm.level,
        "alarm_do": alarm.action,
    }


def mirror_texts(name: str, view: ViewStatus, published: int) -> dict[str, Any]:
    """Texts of a mirror's progress."""
    behind = f"{count_text(view.behind, 'frame')} behind" if view.behind else "up to date"
    if view.state == "failed":
        behind = "failed"
    return {
        "name": name,
        "state": view.state,
        "behind": f"{behind}: {view.reason}" if view.reason else behind,
        "share": (published - view.behind) / published if published else 0.0,
        "is_failed": view.state == "failed",
    }


def ended_texts(run: EndedRun, data: str = "") -> dict[str, Any]:
    """Texts of a run that has ended."""
    receipt = run.receipt
    texts = receipt_texts(receipt, run.last.path) if receipt is not None else _no_receipt()
    return {
        "id": run.last.dataset_id,
        "name": run.last.name,
        "folder": name_below(data, run.last.path, run.last.name),
        **texts,
    }


def receipt_texts(receipt: Receipt, path: str) -> dict[str, Any]:
    """Texts of a receipt. is_good only if every frame that was sent is stored, or was declared as skipped.

    path: where the run lies now; it may have been copied or moved since.
    """
    sent = "" if receipt.sent is None else f" of {receipt.sent:,} sent"
    gaps = [
        f"frame{'s' * (gap.count > 1)} {numbers_text(gap.first, gap.count)} missing{gap.reason and ': '}{gap.reason}"
        for gap in receipt.missing[:MAX_GAPS]
    ]
    if len(receipt.missing) > MAX_GAPS:
        gaps.append(f"and {len(receipt.missing) - MAX_GAPS:,} more gaps")
    return {
        "status": receipt.status,
        "stored": f"{count_text(receipt.stored, 'frame')} stored{sent}",
        "size": size_text(receipt.payload_bytes),
        "gaps": [{"text": text} for text in gaps],
        "root": receipt.root_sha256[:16],
        "finished_at": receipt.finished_at,
        "is_good": receipt.complete,
        "verdict": receipt.sentence,
        "verify": f"acqstream verify {shell_word(path)}",
    }


def clock_text(seconds: float | None) -> str:
    """Hours, minutes and seconds: "00:41:07"; "" if unknown."""
    if seconds is None:
        return ""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def time_text(time: str) -> str:
    """The hour, minute and second of a time in ISO 8601, with its zone if that is UTC."""
    clock = time.partition("T")[2]
    return f"{clock[:8]} UTC" if clock.endswith("+00:00") else clock[:8]


def _daemon_texts(status: DaemonStatus | None) -> dict[str, Any]:
    if status is None:
        return dict.fromkeys(("version", "data", "endpoint", "disk", "forecast", "uptime", "memory"), "")
    free = "free space unknown" if status.free_bytes is None else f"{size_text(status.free_bytes)} free"
    used, budget = size_text(status.memory_used_bytes), size_text(status.memory_budget_bytes)
    lasting = status.seconds_left
    return {
        "version": status.version,
        "data": status.data,
        "endpoint": status.endpoint,
        "disk": free,
        "forecast": f"full in {duration_text(lasting)}" if lasting is not None else "",
        "uptime": f"up {duration_text(status.uptime_s)}",
        "memory": f"memory {used} of {budget}",
    }


def _title(trouble: list[Alarm], summary: str) -> str:
    if not trouble:
        return f"● {summary}" if summary != "idle" else summary
    return f"⚠ {trouble[0].text}"


def _silence_alarm(view: DaemonView, silence_s: float | None) -> Alarm:
    if view.is_starting:
        return Alarm(WARN, STARTING, view.why)
    if silence_s is None:
        return Alarm(BAD, "no daemon answers", view.why)
    duration = f"{int(silence_s)} s" if silence_s < 60 else duration_text(silence_s)
    return Alarm(BAD, f"no word from the daemon for {duration}: these numbers are old", view.why)


def _transport(run: AcquisitionStatus) -> str:
    return {"shm": "shared memory", "messages": "sockets"}.get(run.transport, run.transport)


def _since_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "last frame just now" if seconds < 1 else f"last frame {duration_text(seconds)} ago"


def _no_receipt() -> dict[str, Any]:
    return {
        "status": "unknown",
        "stored": "its receipt cannot be read",
        "size": "",
        "gaps": [],
        "root": "",
        "finished_at": "",
        "is_good": False,
        "verdict": "ended without a receipt",
        "verify": "",
    }
