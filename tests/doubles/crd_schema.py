"""What the API server would refuse of an object, by the schema of its CRD."""

from __future__ import annotations

import re
from typing import Any


def problems(value: Any, schema: Any, where: str = "") -> list[str]:
    """What the API server would refuse: the part of OpenAPI that the CRDs here use, and unknown fields."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, kinds[schema["type"]]):
        return [f"{where} is no {schema['type']}"]
    found = []
    if value not in schema.get("enum", [value]):
        found.append(f"{where} is none of {schema['enum']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{where} does not match {schema['pattern']}")
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{where} is out of bounds")
    if isinstance(value, dict):
        found += [f"{where}.{key} is missing" for key in schema.get("required", ()) if key not in value]
        for key, part in value.items():
            known = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            found += problems(part, known, f"{where}.{key}") if known else [f"{where}.{key} is unknown"]
    if isinstance(value, list):
        found += [one for part in value for one in problems(part, schema["items"], f"{where}[]")]
    return found
