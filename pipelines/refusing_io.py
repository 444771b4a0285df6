"""Where would an asset's value be put, if one returned any? Nowhere.

Our data lives in stores of its own; what an asset returns is a `MaterializeResult`. Dagster's default writes
a pickle of whatever is returned, and reads it again: here nothing is ever pickled, so a value is a mistake.
"""

from __future__ import annotations

from typing import NoReturn

import dagster as dg


class RefusingIOManager(dg.IOManager):
    """Refuses to keep values, and has none."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """No value is kept."""
        raise dg.Failure(
            description=f"{context.step_key} returned a {type(obj).__name__}: nothing is pickled here. "
            "Return a MaterializeResult, and keep the data in the store.",
            allow_retries=False,
        )

    def load_input(self, context: dg.InputContext) -> NoReturn:
        """No value was kept."""
        raise dg.Failure(
            description=f"{context.asset_key.to_user_string()} has no value to be read: depend on it with "
            "`deps`, and read the store.",
            allow_retries=False,
        )
