"""`pdops up --profile sim`: which options make a simulation, and what is said once it is up."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pdops.cli.style import styler, warn
from pdops.errors import UsageError

ONLY_SIM = ("speed", "seed", "faults", "sim_file")
"""Options that make no sense for real engines."""
_PLACES: Mapping[str, tuple[str, ...]] = {
    "prefill": ("prefill",),
    "decode": ("decode",),
    "seed": ("seed",),
    "policy": ("router", "policy"),
    "lease_s": ("engine", "lease_s"),
    "block_size": ("engine", "block_size_tokens"),
    "decode_blocks": ("engine", "kv_blocks"),
    "prefill_blocks": ("engine", "prefill_kv_blocks"),
    "ttft_s": ("slo", "ttft_s"),
    "itl_s": ("slo", "itl_s"),
}
"""Where an option stands in a simulation file."""
_OTHER = frozenset({"name", "state_dir", "profile", "kv_store", "as_json", *ONLY_SIM})


def given(ctx: click.Context) -> dict[str, Any]:
    """Return the options that were given, not those that have their default."""
    return {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT and value is not None
    }


def refuse(ctx: click.Context, names: Mapping[str, Any], why: str) -> None:
    """Refuse options that do not belong here.

    Raises:
        UsageError: there is one.
    """
    for parameter in ctx.command.params:
        if parameter.name in names:
            raise UsageError(f"{parameter.opts[0]} {why}", hint="see `pdops up --help`")


def entries(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what options put into a simulation file.

    Raises:
        UsageError: a fault cannot be read.
    """
    from pdops.sim.arguments import merged, parse_fault

    out: dict[str, Any] = {}
    for name, place in _PLACES.items():
        if name in options:
            entry: Any = options[name]
            for key in reversed(place):
                entry = {key: entry}
            out = merged(out, entry)
    if "kv_store" in options:
        out["store"] = {"enabled": options["kv_store"] != "none"}
    if options.get("faults"):
        out["faults"] = [parse_fault(text) for text in options["faults"]]
    return out


def simulate(ctx: click.Context, name: str, state_dir: Path | None, down: str) -> int:
    """Bring a simulated cluster up and say where it is; `down` is the command that ends it."""
    from pdops.reference.simulated import SimWish, up_simulated
    from pdops.reference.state import home
    from pdops.reference.status import hints, status

    options = given(ctx)
    refuse(
        ctx,
        {k: v for k, v in options.items() if k not in _PLACES and k not in _OTHER},
        "does not go with --profile sim",
    )
    wish = SimWish(name=name, speed=ctx.params["speed"], file=ctx.params["sim_file"], entries=entries(options))
    running = up_simulated(home(name, state_dir), wish, lambda line: click.echo(line, err=True))
    if ctx.params["as_json"]:
        import json

        click.echo(json.dumps(status(running), indent=1))
        return 0
    spec = running.spec
    look = styler(sys.stdout)
    text = (
        f"up: a simulation of {len(spec.prefills())} prefill and {len(spec.decodes())} decode at speed {wish.speed:g}"
    )
    click.echo(look(text, "title"))
    for line in (*hints(running), down):
        click.echo(f"  {line}")
    if wish.speed != 1.0:
        warn(f"time passes {wish.speed:g} times as fast, so rates read that much higher; judge it at --speed 1")
    return 0
