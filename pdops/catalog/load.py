"""Load and validate the shipped catalog, once."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any, Literal, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from pdops.catalog.types import Catalog, CauseSpec, EngineSpec, SignalSpec
from pdops.errors import CatalogError

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

T = TypeVar("T")
Schema = Literal["pdops/signals/v1", "pdops/engines/v1", "pdops/causes/v1"]


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """Return the shipped catalog.

    Raises:
        CatalogError: a file does not parse, an entry is not valid, or a name is given twice.
    """
    signals: dict[str, SignalSpec] = {}
    root = resources.files("pdops.catalog").joinpath("data")
    # Making one takes longer than reading all files with it.
    listed = TypeAdapter(list[SignalSpec])
    for item in sorted(root.iterdir(), key=lambda entry: entry.name):
        if not item.name.startswith("signals_"):
            continue
        for spec in _adapt(listed, _read(item.name, "pdops/signals/v1")["signals"], item.name):
            if spec.name in signals:
                raise CatalogError("signal is defined twice", where=item.name, why=spec.name, hint="keep one of them")
            signals[spec.name] = spec
    engines = _adapt(
        TypeAdapter(dict[str, EngineSpec]), _read("engines.yaml", "pdops/engines/v1")["engines"], "engines.yaml"
    )
    causes = _adapt(TypeAdapter(dict[str, CauseSpec]), _read("causes.yaml", "pdops/causes/v1")["causes"], "causes.yaml")
    for spec in signals.values():
        unheard = (set(spec.sources) | set(spec.absent)) - set(engines)
        if unheard:
            raise CatalogError(
                "signal names an engine that does not exist",
                where=spec.name,
                why=", ".join(sorted(unheard)),
                hint="add the engine to engines.yaml or correct the name",
            )
    return Catalog(signals, engines, causes)


def _read(name: str, schema: Schema) -> Any:
    text = resources.files("pdops.catalog").joinpath("data", name).read_text(encoding="utf-8")
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506  the loader is the safe one, in C where available
    except yaml.YAMLError as error:
        raise CatalogError("catalog file is not YAML", where=name, why=str(error), hint="reinstall pdops") from error
    if not isinstance(data, dict) or data.get("schema") != schema:
        raise CatalogError(
            "catalog file has the wrong schema", where=name, why=f"expected {schema}", hint="reinstall pdops"
        )
    return data


def _adapt(adapter: TypeAdapter[T], data: Any, where: str) -> T:
    try:
        return adapter.validate_python(data, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CatalogError(
            "catalog entry is not valid", where=f"{where} at {place}", why=first["msg"], hint="correct the entry"
        ) from error
