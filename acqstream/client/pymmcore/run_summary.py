"""Summary metadata of a run: the engine's summary, the sequence once, and the keys that viewers of NDTiff read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from acqstream.arrays.position_names import POSITION_NAMES
from acqstream.client.pymmcore.sequence_plan import SequencePlan

if TYPE_CHECKING:
    from useq import MDASequence


def run_summary(name: str, sequence: MDASequence, meta: Mapping[str, Any], plan: SequencePlan) -> dict[str, Any]:
    """The summary to store, not yet plain. meta is the result of the inner engine's `setup_sequence`."""
    summary = {str(key): value for key, value in meta.items() if key != "mda_sequence"}
    summary["Prefix"] = name
    summary["StartTime"] = summary.get("datetime") or datetime.now().astimezone().isoformat()
    infos = summary.get("image_infos") or [{}]
    if infos[0].get("pixel_size_um"):
        summary["PixelSizeUm"] = infos[0]["pixel_size_um"]
    if plan.is_known:
        summary["mda_sequence"] = _sequence_fields(sequence)
        summary.update(_plan_keys(sequence, plan))
    return summary


def _sequence_fields(sequence: MDASequence) -> dict[str, Any]:
    fields: dict[str, Any] = sequence.model_dump(exclude_unset=True)
    fields["axis_order"] = list(sequence.axis_order)
    fields["uid"] = str(sequence.uid)
    return fields


def _plan_keys(sequence: MDASequence, plan: SequencePlan) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    if plan.channel_names:
        keys["ChNames"] = list(plan.channel_names)
    names = [position.name for position in sequence.stage_positions]
    if names and all(names):
        keys[POSITION_NAMES] = names
    step_um = getattr(sequence.z_plan, "step", None)
    if step_um is not None:
        keys["z-step_um"] = float(step_um)
    interval_s = _interval_s(sequence.time_plan)
    if interval_s is not None:
        keys["Interval_ms"] = interval_s * 1000
    return keys


def _interval_s(time_plan: Any) -> float | None:
    """Interval of a time plan in seconds; of its first phase, if it has several."""
    phases = getattr(time_plan, "phases", None)
    if phases:
        time_plan = phases[0]
    if time_plan is None or getattr(time_plan, "loops", 1) < 2:
        return None
    interval = getattr(time_plan, "interval", None)
    return None if interval is None else float(interval.total_seconds())
