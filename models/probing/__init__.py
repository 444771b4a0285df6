"""The search for what a job sustains at each scale-out.

`start`, `ask`, `tell` are the search; `judge` turns what was seen into a verdict; `estimates` and `progress`
are what is known so far.
"""

from .findings import Estimate, Progress, estimates, progress
from .probe import Facts, Probe, Result, Verdict, judge, lag_slope, processed_rps
from .search import ask, run, start, tell
from .state import Bracket, Done, Settings, State, believed, grid_executor_seconds, grid_scale_outs

__all__ = [
    "Settings",
    "grid_scale_outs",
    "start",
    "ask",
    "tell",
    "run",
    "State",
    "Done",
    "Probe",
    "Facts",
    "judge",
    "lag_slope",
    "processed_rps",
    "Result",
    "Verdict",
    "Estimate",
    "Bracket",
    "believed",
    "estimates",
    "Progress",
    "progress",
    "grid_executor_seconds",
]
