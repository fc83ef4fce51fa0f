"""Ids of workers and names of pools, as people write them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from pdops.model.cluster import CLIENT, ROUTER
from pdops.sources.validate import refuse, shown
from pdops.sources.yamlfile import as_text

_ID = re.compile(r"[A-Za-z0-9._-]{1,63}")
RESERVED = frozenset({CLIENT, ROUTER})
"""Ids that are signal keys already."""


def check_id(value: str) -> str:
    """Check that a text can be the id of a worker.

    Raises:
        PydanticCustomError: it cannot.
    """
    if check_pool(value) in RESERVED:
        raise refuse(f"{value!r} is reserved for signals of that name", f"call it {value}-0")
    return value


def check_pool(value: str) -> str:
    """Check that a text can be the name of a pool; its signal key has a prefix, so no name is reserved.

    Raises:
        PydanticCustomError: it cannot.
    """
    if not _ID.fullmatch(value):
        raise refuse(f"{shown(value)} is not an id", "use 1 to 63 letters, digits, dots, dashes or underscores")
    return value


def _id_text(value: object) -> object:
    return as_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_PATTERN = Field(json_schema_extra={"pattern": f"^{_ID.pattern}$"})
Id = Annotated[str, BeforeValidator(_id_text), AfterValidator(check_id), _PATTERN]
PoolName = Annotated[str, BeforeValidator(_id_text), AfterValidator(check_pool), _PATTERN]
