"""JSON Schemas of the files people and recorders write."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from pdops.sources.case_model import Case
from pdops.sources.inventory_model import InventoryFile
from pdops.sources.recording.header import RecordingHeader
from pdops.sources.truth import Truth

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect all of pdops' schemas are written in."""
_MODELS: dict[str, type[BaseModel]] = {
    "inventory": InventoryFile,
    "case": Case,
    "recording-header": RecordingHeader,
    "truth": Truth,
}
NAMES = tuple(_MODELS)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a format.

    It describes structure; what depends on other values, such as ids given twice, is checked on loading only.

    Raises:
        KeyError: no such format; `NAMES` lists them.
    """
    return {"$schema": DIALECT, **_MODELS[name].model_json_schema(by_alias=True)}
