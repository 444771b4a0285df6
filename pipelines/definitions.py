"""What does Dagster see? The stages of the story, as assets; they arrive with the pipeline itself.

Imported in a fresh process for every run, so nothing heavy may be imported from here (a test sees to it).
"""

from __future__ import annotations

import dagster as dg

definitions = dg.Definitions()
