"""Planning: slots per operator, executors for a rate, slots and memory for a future rate."""

from .explorer import Explorer, Probe, Stop
from .inverse_ds2 import bounded_inverse_ds2
from .scale_out import smallest_scale_out
from .surface import FORMS, MARGIN, UNDETERMINED, Answer, Plan, Plane, SlotMeasurement

__all__ = [
    "bounded_inverse_ds2",
    "smallest_scale_out",
    "SlotMeasurement",
    "Plan",
    "Plane",
    "Answer",
    "FORMS",
    "MARGIN",
    "UNDETERMINED",
    "Explorer",
    "Probe",
    "Stop",
]
