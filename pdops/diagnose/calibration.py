"""From the weight of evidence to how often such a hypothesis is right."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pdops.errors import CatalogError

_FILE = "calibration.yaml"

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Calibration(BaseModel):
    """Knots of a line that never falls, from [0, 0] or above it to [1, 1] or below it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Annotated[Literal["pdops/calibration/v1"], Field(alias="schema")]
    fitted_on: str | None
    knots: Annotated[tuple[tuple[Share, Share], ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _rising(self) -> Calibration:
        raw, right = zip(*self.knots, strict=True)
        if raw[0] != 0.0 or raw[-1] != 1.0:
            raise ValueError("knots must begin at weight 0 and end at weight 1")
        if any(b <= a for a, b in pairwise(raw)):
            raise ValueError("weights must rise from knot to knot")
        if any(b < a for a, b in pairwise(right)):
            raise ValueError("confidence must not fall from knot to knot")
        return self

    def at(self, weight: float) -> float:
        """Return the confidence (0-1) of a weight (0-1)."""
        raw, right = zip(*self.knots, strict=True)
        return float(np.interp(weight, raw, right))


def parse(text: str) -> Calibration:
    """Read a calibration file.

    Raises:
        CatalogError: it is not YAML or not of that form.
    """
    try:
        return Calibration.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        why = "; ".join(e["msg"] for e in error.errors()) if isinstance(error, ValidationError) else str(error)
        raise CatalogError("calibration cannot be read", where=_FILE, why=why, hint="reinstall pdops") from error


@lru_cache(maxsize=1)
def calibration() -> Calibration:
    """Return the calibration that ships with pdops."""
    return parse(resources.files("pdops.diagnose").joinpath("data", _FILE).read_text(encoding="utf-8"))
