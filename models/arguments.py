"""Float array type, and checks of arguments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .quantities import number, numbers, whole

__all__ = ["Array", "number", "numbers", "whole"]

Array = NDArray[np.float64]
