"""The written part of the benchmark: fault kinds with their truth, healthy look-alikes, and the grid they are played on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from pdops.catalog.load import catalog
from pdops.errors import CatalogError
from pdops.model.report import Layer, ScopeKind, Symptom, Verdict
from pdops.sources.validate import Positive, Ratio, Strict, Text, build, did_you_mean, refuse, shown
from pdops.sources.yamlfile import Document, parse_yaml, read_yaml

_WHAT = "benchmark file cannot be used"

Severity = Literal["edge", "clear", "extreme"]
SEVERITIES: tuple[Severity, ...] = ("edge", "clear", "extreme")
"""Just over the SLO, plain to see, and as bad as it gets."""
Split = Literal["develop", "develop-bursty", "develop-stormy", "calibrate", "held-out"]
SPLITS: tuple[Split, ...] = ("develop", "develop-bursty", "develop-stormy", "calibrate", "held-out")
"""Checks are written against the first three, so that they hold for more than one family of parameters; confidence is calibrated
on the next; the last is played at a release."""
WorkloadName = Literal["chat", "rag", "code", "reasoning"]
Param = float | str

Span = Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)]
"""A drawn parameter: [low, high] for numbers that scale, or the values to choose from."""


class FaultTemplate(Strict):
    """One primitive of the simulator; `targets` says whom it hits, `params` are those that no severity changes."""

    kind: Text
    targets: Text | None = None
    params: dict[str, Param] = Field(default_factory=dict)


class Needs(Strict):
    """The least a topology must have for a kind to make sense there."""

    prefill: int = 1
    decode: int = 1
    zones: int = 1
    store: int = 0


class Answer(Strict):
    """What a diagnosis of this kind should say: any of each list is right."""

    verdicts: tuple[Verdict, ...] = (Verdict.FAULT,)
    causes: Annotated[tuple[Text, ...], Field(min_length=1)]
    layers_ok: Annotated[tuple[Layer, ...], Field(min_length=1)]
    scopes: Annotated[tuple[dict[ScopeKind, Text], ...], Field(min_length=1)]
    symptom: Symptom

    @field_validator("causes")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for cause in value:
            if cause not in catalog().causes:
                raise refuse(f"unknown cause {shown(cause)}", did_you_mean(cause, catalog().causes, label="causes"))
        return value

    @field_validator("scopes")
    @classmethod
    def _one_key_each(cls, value: tuple[dict[ScopeKind, str], ...]) -> tuple[dict[ScopeKind, str], ...]:
        if any(len(scope) != 1 for scope in value):
            raise refuse("a scope has one key", "write one entry each, such as {worker: chosen}")
        return value


class Kind(Strict):
    """One kind of fault at three severities; severity parameters go to the first primitive."""

    id: Text
    needs: Needs = Needs()
    workloads: tuple[WorkloadName, ...] = ()
    topologies: tuple[Text, ...] = ()
    policy: Text | None = None
    moves: Literal["requests", "telemetry"] = "requests"
    faults: Annotated[tuple[FaultTemplate, ...], Field(min_length=1)]
    severities: dict[Severity, dict[str, Param]]
    truth: Answer

    @model_validator(mode="after")
    def _three(self) -> Kind:
        if set(self.severities) != set(SEVERITIES):
            raise refuse("every kind has three severities", f"give {', '.join(SEVERITIES)}")
        return self


class Sound(Strict):
    """Something that happens to a healthy cluster and must not be called a fault."""

    id: Text
    needs: Needs = Needs()
    workloads: tuple[WorkloadName, ...] = ()
    topologies: tuple[Text, ...] = ()
    workload: dict[str, float] = Field(default_factory=dict)
    utilisation: Ratio | None = None
    faults: tuple[FaultTemplate, ...] = ()


class Kinds(Strict):
    """Schema `pdops/bench-kinds/v1`."""

    schema_: Literal["pdops/bench-kinds/v1"] = Field(alias="schema")
    kinds: tuple[Kind, ...]
    healthy: tuple[Sound, ...] = ()

    @model_validator(mode="after")
    def _once(self) -> Kinds:
        ids = [k.id for k in self.kinds] + [s.id for s in self.healthy]
        twice = sorted({i for i in ids if ids.count(i) > 1})
        if twice:
            raise refuse(f"given twice: {', '.join(twice)}", "keep one of them")
        return self


class WorkloadShape(Strict):
    """What clients ask for, in tokens; cv2 is the squared coefficient of variation, prefix groups count per prefill worker."""

    prompt_mean_tokens: Positive
    prompt_cv2: Positive
    output_mean_tokens: Positive
    output_cv2: Positive
    prefix_groups: Annotated[int, Field(gt=0)]
    prefix_share: Annotated[float, Field(ge=0, lt=1)]
    zipf_skew: Annotated[float, Field(ge=0)] = 0.3


class Topology(Strict):
    """How many workers there are; `weight` is how often it is drawn against the others, since the largest costs most."""

    prefill: Annotated[int, Field(gt=0)]
    decode: Annotated[int, Field(gt=0)]
    zones: Annotated[int, Field(gt=0)]
    max_num_seqs: Annotated[int, Field(gt=0)]
    weight: Positive = 1.0
    before_s: Positive = 420.0
    after_s: Positive = 300.0

    def has(self, needs: Needs) -> bool:
        """Whether a kind with these needs can be played here; a store can be added anywhere."""
        return self.prefill >= needs.prefill and self.decode >= needs.decode and self.zones >= needs.zones


class Arrivals(Strict):
    """Law of the gaps between requests."""

    law: Literal["poisson", "gamma"]
    cv2: Positive


class SloRule(Strict):
    """What is promised, as a multiple of what the same engines give while nothing is wrong."""

    ttft_over_normal: Positive
    itl_over_normal: Positive


class Family(Strict):
    """Ranges that the parameters of one split come from."""

    arrivals: Arrivals
    service_cv2: Annotated[float, Field(ge=0)]
    step_base_s: Span
    step_per_seq_s: Span
    step_per_kv_token_s: Span
    kv_headroom: Span
    block_size_tokens: tuple[int, ...]
    kv_bytes_per_token: tuple[int, ...]
    nic_bytes_per_s: Span
    setup_s: Span
    lease_s: Span
    router_policy: tuple[Text, ...]
    slo: SloRule


class Utilisation(Strict):
    """Share of each pool's capacity that the normal load takes."""

    prefill: Ratio
    decode: Ratio


class Grid(Strict):
    """Schema `pdops/bench-grid/v1`."""

    schema_: Literal["pdops/bench-grid/v1"] = Field(alias="schema")
    utilisation: Utilisation
    workloads: dict[WorkloadName, WorkloadShape]
    topologies: dict[Text, Topology]
    families: dict[Split, Family]


@lru_cache(maxsize=1)
def kinds() -> Kinds:
    """Return the kinds of fault that every split has, and the healthy look-alikes.

    Raises:
        CatalogError: the shipped file is not valid.
    """
    return build(Kinds, _shipped("kinds.yaml"), error=CatalogError, what=_WHAT)


@lru_cache(maxsize=1)
def unseen() -> tuple[Kind, ...]:
    """Return the kinds that only the held-out split has; none where the file is not shipped.

    Raises:
        CatalogError: the file is not valid, or names a kind that is also in the other file.
    """
    if not resources.files("pdops.bench").joinpath("data", "unseen.yaml").is_file():
        return ()
    document = _shipped("unseen.yaml")
    found = build(Kinds, document, error=CatalogError, what=_WHAT).kinds
    _apart(found, document)
    return found


def load_kinds(path: str) -> Kinds:
    """Read a file of kinds of one's own, such as one for an experiment.

    Raises:
        CatalogError: it cannot be read or is not valid.
    """
    return build(Kinds, read_yaml(path, error=CatalogError, what=_WHAT), error=CatalogError, what=_WHAT)


@lru_cache(maxsize=1)
def grid() -> Grid:
    """Return workloads, topologies and parameter families.

    Raises:
        CatalogError: the shipped file is not valid.
    """
    return build(Grid, _shipped("grid.yaml"), error=CatalogError, what=_WHAT)


def _apart(found: Iterable[Kind], document: Document) -> None:
    seen = {k.id for k in kinds().kinds}
    again = sorted(k.id for k in found if k.id in seen)
    if again:
        raise CatalogError(
            _WHAT, where=document.where(), why=f"not unseen: {', '.join(again)}", hint="give them another id"
        )


def _shipped(name: str) -> Document:
    text = resources.files("pdops.bench").joinpath("data", name).read_text(encoding="utf-8")
    return parse_yaml(text, path=name, error=CatalogError, what=_WHAT)
