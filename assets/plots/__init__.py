"""Plots for the pages of Dagster and MLflow: one function per plot, each returns a PNG."""

from .capacity import capacity
from .forecast import forecast
from .latency import latency
from .recovery import downtime, drills, recovery
from .timeline import sparkline, timeline

__all__ = ["capacity", "latency", "recovery", "downtime", "drills", "forecast", "timeline", "sparkline"]
