"""The words and numbers of the page, made of a view of the daemon. Pure.

The page that the server renders and the events that change it later show the same texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from acqstream.model.daemon_note import STARTING
from acqstream.model.receipt import Receipt
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, DaemonStatus, SpaceLevel, ViewStatus
from acqstream.model.units import count_text, duration_text, rate_text, shell_word, size_text
from acqstream.monitor.daemon_watch import DaemonView, EndedRun

SILENT_S = 5.0  # without a frame, at least, before a run counts as silent
SILENT_INTERVALS = 5
DAEMON_SILENT_S = 3.0  # without an answer, while asked once a second
MAX_WARNINGS = 6
MAX_GAPS = 5
BAD, WARN = "bad", "warn"
_WRITING = frozenset({AcquisitionState.OPENING, AcquisitionState.RUNNING, AcquisitionState.CLOSING})


def page_texts(
    view: DaemonView, frames_per_s: Mapping[str, float], host: str, silence_s: float | None = None
) -> dict[str, Any]:
    """All texts of the page. frames_per_s: rate of each run by its dataset id.

    silence_s: since the last answer of the daemon; None: it has not answered yet.
    """
    is_away = view.status is None or (silence_s or 0.0) >= DAEMON_SILENT_S
    runs = [run_texts(one, frames_per_s.get(one.dataset_id), not is_away) for one in view.running]
    trouble = [_silence_text(view, silence_s)] if is_away else [*daemon_trouble(view)]
    trouble += [(one["alarm_level"], one["alarm"]) for one in runs if one["alarm"]]
    trouble.sort(key=lambda one: one[0] != BAD)  # the worst first
    recording = [one for one in runs if one["state"] in (*_WRITING, AcquisitionState.PAUSED)]
    summary = f"recording {count_text(len(recording), 'run')}" if recording else "idle"
    return {
        "host": host,
        "alarm": "  ·  ".join(text for _, text in trouble),
        "alarm_level": trouble[0][0] if trouble else "",
        "alarm_why": view.why if is_away else "",
        "is_away": is_away,
        "title": f"{_title(trouble, summary)} · {host}",
        "summary": "no word from the daemon" if is_away else summary,
        "is_recording": bool(recording) and not is_away,
        **_daemon_texts(view.status),
        "runs": runs,
        "ended": [ended_texts(one) for one in reversed(view.ended)],
        "is_idle": not runs,
    }


def daemon_trouble(view: DaemonView) -> Iterable[tuple[str, str]]:
    """Level and text of what is wrong with the daemon as a whole."""
    if view.status is None:
        return
    if view.status.space == SpaceLevel.LOW:
        yield WARN, f"disk space is low: {size_text(view.status.free_bytes or 0)} left"
    elif view.status.space == SpaceLevel.FULL and not any(one.paused for one in view.running):
        yield BAD, f"the disk is full: {size_text(view.status.free_bytes or 0)} left"


def run_texts(run: AcquisitionStatus, frames_per_s: float | None, is_known: bool) -> dict[str, Any]:
    """Texts of a running acquisition. is_known: the daemon answers, so that the numbers are those of now."""
    level, alarm = run_alarm(run, frames_per_s) if is_known else ("", "")
    return {
        "id": run.dataset_id,
        "name": run.name,
        "folder": run.path.replace("\\", "/").rstrip("/").rpartition("/")[2],
        "path": run.path,
        "state": run.state,
        "is_paused": run.state == AcquisitionState.PAUSED,
        "age": clock_text(run.running_s),
        "how": ", ".join(part for part in (_transport(run), f"{run.io} writes" if run.io else "") if part),
        "sent": "" if run.sent is None else f"{run.sent:,}",
        "received": f"{run.received:,}",
        "published": f"{run.published:,}",
        "durable": f"{run.durable:,}",
        "last_safe": f"last safe frame {run.durable - 1:,}" if run.durable else "no frame is safe yet",
        "safe_text": run.safety,
        "ends_at": "",
        "to_come_text": (lasting := forecast_text(run.seconds_left, run.frames_left)),
        "sentence": f"{run.safety} · {lasting}",
        "planned": run.expected,
        "safe": run.durable,
        "safe_share": min(1.0, run.durable / total) if (total := run.expected or run.known) else 0.0,
        "skipped": f"{count_text(run.skipped, 'frame')} skipped" if run.skipped else "",
        "rate": rate_text(run.bytes_per_s),
        "frame_rate": "" if frames_per_s is None else f"{frames_per_s:.1f} fps",
        "queue": f"queue {count_text(run.queue_frames, 'frame')}, {size_text(run.queue_bytes)}",
        "since_frame": _since_text(run.seconds_since_frame) if is_known else "age of the last frame not known",
        "is_stale": not is_known or is_silent(run, frames_per_s),
        "mirrors": [mirror_texts(name, one, run.published) for name, one in run.mirrors.items()],
        "warnings": [
            {"time": time, "code": code, "text": text} for code, text, time in run.warnings[-MAX_WARNINGS:][::-1]
        ],
        "alarm": alarm,
        "alarm_level": level,
        "alarm_do": "",
    }


def run_alarm(run: AcquisitionStatus, frames_per_s: float | None) -> tuple[str, str]:
    """Level and text of what keeps a run from recording; empty if nothing does."""
    if run.paused or run.state == AcquisitionState.PAUSED:
        return BAD, f"PAUSED: disk full ({run.name})"
    if run.stall:
        return BAD, f"STALLED: {run.stall} ({run.name})"
    if run.state == AcquisitionState.ORPHANED:
        return BAD, f"the program that sends {run.name} is silent"
    if is_silent(run, frames_per_s):
        return WARN, f"no frame for {duration_text(run.seconds_since_frame or 0)} ({run.name})"
    return "", ""


def is_silent(run: AcquisitionStatus, frames_per_s: float | None) -> bool:
    """Return True if a run that had frames has had none for five times their usual interval.

    frames_per_s: lately. The rate of the whole run counts, too: a time lapse has minutes between its frames.
    """
    since_s, running_s = run.seconds_since_frame, run.running_s
    if run.state != AcquisitionState.RUNNING or not run.received or since_s is None or running_s is None:
        return False
    usual_s = (running_s - since_s) / run.received
    if frames_per_s:
        usual_s = max(usual_s, 1 / frames_per_s)
    return since_s > max(SILENT_S, SILENT_INTERVALS * usual_s)


def forecast_text(seconds_left: float | None, frames_left: int | None) -> str:
    """For example "full in 2 h 10 min, about 156,000 more frames"."""
    frames = "" if frames_left is None else f"about {count_text(rounded(frames_left), 'more frame')}"
    if seconds_left is None:
        return f"space for {frames}" if frames else "space lasts: not known yet"
    return ", ".join(filter(None, (f"full in {duration_text(seconds_left)}", frames)))


def rounded(count: int) -> int:
    """Three digits: more would promise what no forecast can keep."""
    return int(float(f"{count:.3g}"))


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


def ended_texts(run: EndedRun) -> dict[str, Any]:
    """Texts of a run that has ended."""
    receipt = run.receipt
    texts = receipt_texts(receipt) if receipt is not None else _no_receipt()
    return {
        "id": run.last.dataset_id,
        "name": run.last.name,
        "folder": run.last.path.replace("\\", "/").rstrip("/").rpartition("/")[2],
        **texts,
    }


def receipt_texts(receipt: Receipt) -> dict[str, Any]:
    """Texts of a receipt. is_good only if every frame that was sent is stored, or was declared as skipped."""
    sent = "" if receipt.sent is None else f" of {receipt.sent:,} sent"
    gaps = [
        f"{_span(gap.first, gap.count)} missing{f': {gap.reason}' if gap.reason else ''}"
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
        "verify": f"acqstream verify {shell_word(receipt.path)}",
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


def _title(trouble: list[tuple[str, str]], summary: str) -> str:
    if not trouble:
        return f"● {summary}" if summary != "idle" else summary
    return f"⚠ {trouble[0][1]}"


def _silence_text(view: DaemonView, silence_s: float | None) -> tuple[str, str]:
    if view.is_starting:
        return WARN, STARTING
    if silence_s is None:
        return BAD, "no daemon answers"
    duration = f"{int(silence_s)} s" if silence_s < 60 else duration_text(silence_s)
    return BAD, f"no word from the daemon for {duration}: these numbers are old"


def _transport(run: AcquisitionStatus) -> str:
    return {"shm": "shared memory", "messages": "sockets"}.get(run.transport, run.transport)


def _since_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "last frame just now" if seconds < 1 else f"last frame {duration_text(seconds)} ago"


def _span(first: int, count: int) -> str:
    return f"frame {first:,}" if count == 1 else f"frames {first:,} to {first + count - 1:,}"


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
