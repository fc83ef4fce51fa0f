"""Write a page in the Prometheus text format; labels are written once, not at every scrape.

Several hundred workers make a hundred thousand samples whose names and labels stay the same from scrape to scrape, and
prometheus_client spends most of its time on these. What comes out is what its `generate_latest` gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

__all__ = ["CONTENT_TYPE", "Labels", "labels_of", "write"]

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_TYPES = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}


class Labels(dict[str, str]):
    """Labels of a sample with `text`, how they stand on a page; not to be changed after they are made."""

    __slots__ = ("text",)
    text: str


def labels_of(names: Sequence[str], values: Sequence[str]) -> Labels:
    """Return labels that are written already."""
    made = Labels(zip(names, values, strict=True))
    made.text = _text(made)
    return made


def write(registry: Collector) -> bytes:
    """Return the page of everything that a registry collects. Names are taken as they are; there are no exemplars."""
    out: list[str] = []
    for family in registry.collect():
        _family(family, out)
    return "".join(out).encode()


def _family(family: Metric, out: list[str]) -> None:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    name = f"{family.name}_info" if family.type == "info" else name
    documentation = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    out.append(f"# HELP {name} {documentation}\n# TYPE {name} {_TYPES.get(family.type, family.type)}\n")
    for sample in family.samples:
        out.append(_line(sample))


def _line(sample: Sample) -> str:
    labels, value = sample.labels, float(sample.value)
    text = labels.text if type(labels) is Labels else _text(labels)
    # Only large and endless values are written otherwise than Python writes them.
    number = repr(value) if -1e6 < value < 1e6 else floatToGoString(value)  # type: ignore[no-untyped-call]
    return f"{sample.name}{text} {number}\n"


def _text(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{labels[name].translate(_ESCAPES)}"' for name in sorted(labels)) + "}"
