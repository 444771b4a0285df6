"""Limits of a change of size: bounds, quarantine, cool-down, the scale-in window and the step limit.

    out:  to ≤ current + max_step_out
    in:   to ≥ largest recommendation of the window
          to ≥ current − max_step_in
          to ≥ (1 − max_share_in) · current, or the next aligned size

A limit that cuts a change moves it to an aligned size nearer to the present one; if none is left, it holds.
Only where the present size itself lies beyond all of them, because bounds were moved, it goes there by steps.
Nothing shrinks while the job is behind, while executors are missing, or while it cannot be seen to work.
"""

from __future__ import annotations

from dataclasses import replace

from ..quantities import Hold, Scale, Unknown, executors, lasting
from .changes import is_quarantined
from .evidence import Seen
from .state import State


def limit(state: State, seen: Seen, wanted: Hold | Scale) -> Hold | Scale:
    """The change as far as the limits allow it, or a hold with the limit that forbids it."""
    if isinstance(wanted, Hold) or wanted.origin in ("pin", "rollback", "reassert"):
        return wanted
    current = seen.scale_out
    if wanted.to == current:
        barred = [q.text(seen.now) for q in state.quarantined if seen.now < q.until_s]
        return Hold("; ".join((wanted.reason, *barred)))
    return _out(state, seen, wanted) if wanted.to > current else _in(state, seen, wanted)


def _out(state: State, seen: Seen, wanted: Scale) -> Hold | Scale:
    settings, current, now = state.settings, seen.scale_out, seen.now
    waits_s = settings.cooldown_out_s - (now - state.changed_at_s)
    if waits_s > 0:
        return Hold(f"cool-down, no scale-out for another {lasting(waits_s)}; wanted: {wanted.reason}")
    highest = current + settings.max_step_out if settings.max_step_out is not None else wanted.to
    sizes = [s for s in settings.sizes if current < s <= min(wanted.to, highest)]
    if not sizes and current < settings.sizes[0]:
        sizes = [highest]
    return _nearest(state, seen, wanted, sizes[::-1])


def _in(state: State, seen: Seen, wanted: Scale) -> Hold | Scale:
    settings, current, now = state.settings, seen.scale_out, seen.now
    refused = _why_not_in(state, seen)
    if refused:
        return Hold(f"{refused}; wanted: {wanted.reason}")
    window_s = settings.scale_in_window_s
    largest = state.recommended.maximum(now, window_s)
    if isinstance(largest, Unknown):
        return Hold(f"no scale-in: {largest.reason}")
    if largest >= current:
        return Hold(
            f"scale-in window: {executors(largest, 'were')} recommended "
            f"{lasting(state.recommended.age_of(largest, now))} ago (window {lasting(window_s)}); "
            f"wanted: {wanted.reason}"
        )
    lowest = max(largest, wanted.to)
    if settings.max_step_in is not None:
        lowest = max(lowest, current - settings.max_step_in)
    sizes = [s for s in settings.sizes if lowest <= s < current]
    if not sizes and current > settings.sizes[-1]:
        sizes = [lowest]
    # Aligned sizes may lie further apart than the share; the next one is then as small a step as there is.
    gentle = [s for s in sizes if s >= current * (1.0 - settings.max_share_in)]
    return _nearest(state, seen, wanted, gentle or sizes[::-1])


def _why_not_in(state: State, seen: Seen) -> str:
    settings, o, now = state.settings, seen.observation, seen.now
    if not seen.caught_up:
        return f"catching up ({_seconds(seen.lag_s)} of input behind, band {seen.band_s:.0f} s): no scale-in"
    if seen.committing is not True and o.lag_records != 0:
        return "no scale-in, the job cannot be seen to work: neither commits nor throughput"
    if not isinstance(o.executors_alive, Unknown) and o.executors_alive < seen.scale_out:
        return f"no scale-in while only {o.executors_alive} of {executors(seen.scale_out, 'are')} alive"
    blackout = state.directives.blackout
    if blackout is not None:
        return f"blackout, nothing shrinks: {blackout.why}"
    waits_s = settings.cooldown_in_s - (now - state.changed_at_s)
    if waits_s > 0:
        return f"cool-down, no scale-in for another {lasting(waits_s)}"
    if not state.recommended.covers(now, settings.scale_in_window_s):
        covered_s = max(0.0, now - state.recommended.since_s)
        return f"scale-in window not full, {lasting(covered_s)} of {lasting(settings.scale_in_window_s)}"
    return ""


def _nearest(state: State, seen: Seen, wanted: Scale, sizes: list[int]) -> Hold | Scale:
    """The change moved to the first of these sizes that is not in quarantine."""
    for size in sizes:
        if is_quarantined(state, size, seen.now) is None:
            cut = "" if size == wanted.to else f" (a limited step towards {wanted.to})"
            return replace(wanted, to=size, reason=f"{wanted.reason}{cut}")
    barred = is_quarantined(state, wanted.to, seen.now)
    if barred is not None:
        return Hold(barred.text(seen.now))
    between = f"between {seen.scale_out} and {wanted.to}"
    return Hold(f"step limit: it reaches no aligned size {between}; wanted: {wanted.reason}")


def _seconds(value: float | Unknown) -> str:
    return "an unknown number of seconds" if isinstance(value, Unknown) else f"{value:.0f} s"
