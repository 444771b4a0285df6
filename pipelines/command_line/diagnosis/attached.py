"""Can a job that somebody else runs be watched, and can a size be recommended for it?"""

from __future__ import annotations

from models.quantities import Unknown
from profiling_jobs.telemetry.checkpoint import Checkpoint

from ...settings.schema import JobSettings
from . import Finding, Patient


def attached(name: str, job: JobSettings, patient: Patient) -> list[Finding]:
    """What is missing, each with its fix; nothing of a job that is run here."""
    if not job.attach:
        return []
    what, key = f"job {name}", f"job.{name}"
    found = []
    if job.executors is None:
        told = f"{key}.executors is not set: how many its owner has given it is not known, nothing is decided"
        found.append(Finding(what, "warning", told, f"{key}.executors = its present number of executors"))
    if not job.copyable:
        told = "its program is not here: no copy can be profiled, so of no size it is known what it can do"
        found.append(Finding(what, "warning", told, f"give {key}.script or {key}.build beside attach = true"))
    if patient.real:
        found += _seen(name, job, patient)
    return found


def _seen(name: str, job: JobSettings, patient: Patient) -> list[Finding]:
    """Its checkpoint can be read, and its brokers are named."""
    what, key = f"job {name}", f"job.{name}"
    found = []
    if patient.settings.brokers.bootstrap is None:
        told = "somebody else runs it, and brokers.bootstrap is not set: only our own broker is looked at"
        found.append(Finding(what, "warning", told, "brokers.bootstrap = the address of its brokers"))
    position = Checkpoint(str(job.checkpoint), job.inputs.values(), job=name).position()
    if isinstance(position, Unknown) and job.consumer_group is None:
        fix = f"correct it or mount it here, or name the {key}.consumer_group to which the job commits"
        found.append(Finding(what, "problem", position.reason.removeprefix(f"{key}.checkpoint: "), fix))
    return found
