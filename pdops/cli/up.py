"""`pdops up`: start the reference deployment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pdops.cli.style import Number, styler, warn

if TYPE_CHECKING:
    from pdops.reference.profiles import Wish

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLES = (
    "Examples:\n\n"
    "\b\n"
    "  pdops up                                     # one prefill, one decode, on CPU, no GPU needed\n"
    "  pdops up --prefill 2 --decode 2\n"
    "  pdops up --network namespaces                # needs CAP_NET_ADMIN; for drills that break the KV link\n"
    "  pdops up --network namespaces --kv-store mooncake\n"
    "  pdops up --profile gpu --model Qwen/Qwen3-8B --gpus 0,1\n"
    "  pdops up --profile sim --prefill 4 --decode 8 --fault link-rate:at=120,target=decode-3,factor=0.1\n"
    "  pdops up --render deploy/ --profile gpu --model Qwen/Qwen3-8B   # manifests only, nothing is started"
)


def place_options(function: F) -> F:
    """Add the options that say which deployment is meant."""
    options: list[Callable[[F], F]] = [
        click.option("--name", default="default", show_default=True, help="Name of the deployment."),
        click.option(
            "--state-dir", type=click.Path(path_type=Path), help="Its folder; default: the user's state folder."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command("up", epilog=_EXAMPLES)
@place_options
@click.option(
    "--profile",
    type=click.Choice(["cpu", "gpu", "sim"]),
    default="cpu",
    show_default=True,
    help="What engines run on; sim: nothing, they are simulated.",
)
@click.option("--prefill", type=click.IntRange(1), default=1, show_default=True, help="Prefill engines.")
@click.option("--decode", type=click.IntRange(1), default=1, show_default=True, help="Decode engines.")
@click.option("--model", help="Checkpoint folder or name; default for cpu: a tiny one made here.")
@click.option(
    "--tp", "tensor_parallel_size", type=click.IntRange(1), default=1, show_default=True, help="GPUs an engine."
)
@click.option("--gpus", metavar="N,N,…", help="GPUs to use; default: the first ones needed.")
@click.option(
    "--kv-store",
    type=click.Choice(["none", "mooncake"]),
    default="none",
    show_default=True,
    help="KV store beside NIXL.",
)
@click.option(
    "--network",
    type=click.Choice(["loopback", "namespaces"]),
    default="loopback",
    show_default=True,
    help="Where engines listen: on loopback, or each in a network namespace of its own.",
)
@click.option(
    "--router",
    type=click.Choice(["pdops", "vllm-router", "none"]),
    default="pdops",
    show_default=True,
    help="What stands in front.",
)
@click.option("--router-port", type=click.IntRange(1, 65535), help="Its port; default: a free one.")
@click.option(
    "--policy",
    type=click.Choice(["round-robin", "least-loaded", "prefix-affinity", "zone-aware"]),
    default="round-robin",
    show_default=True,
    help="How the router picks workers.",
)
@click.option("--max-model-len", type=click.IntRange(32), help="Longest request in tokens.")
@click.option("--block-size", type=click.IntRange(1), help="Tokens a KV block.")
@click.option("--decode-blocks", type=click.IntRange(8), help="KV blocks of a decode engine (cpu: 400).")
@click.option("--prefill-blocks", type=click.IntRange(8), help="KV blocks of a prefill engine (cpu: 1000).")
@click.option(
    "--prefill-seqs",
    type=click.IntRange(1),
    help="Requests a prefill engine runs at once, its --max-num-seqs (cpu: 16). 1 makes it saturate early.",
)
@click.option(
    "--lease",
    "lease_s",
    type=click.IntRange(5, 3600),
    help="Seconds prefill keeps KV that nobody fetches (30).",
)
@click.option("--slo-ttft", "ttft_s", type=Number(0.001, 3600), metavar="S", help="TTFT that is promised, in seconds.")
@click.option("--slo-itl", "itl_s", type=Number(0.0001, 60), metavar="S", help="ITL that is promised, in seconds.")
@click.option(
    "--plugin/--no-plugin", default=True, show_default=True, help="Load the engine plugin: KV transfers by peer."
)
@click.option("--exporter/--no-exporter", default=True, show_default=True, help="Start `pdops exporter` beside it.")
@click.option("--monitoring", is_flag=True, help="Also start Prometheus and Alertmanager with pdops' rules.")
@click.option("--otlp", "otlp_endpoint", metavar="URL", help="Send the engines' and the router's traces there.")
@click.option("--engine-python", type=click.Path(path_type=Path), help="Python of an environment that has the engine.")
@click.option("--torch-wheel", type=click.Path(path_type=Path), help="CPU wheel of torch 2.13.0 to install.")
@click.option(
    "--order",
    type=click.Choice(["strict", "any"]),
    default="strict",
    show_default=True,
    help="Start decode after prefill, or both at once.",
)
@click.option(
    "--render",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write Compose and Kubernetes manifests there instead.",
)
@click.option("--speed", type=Number(0.01, 60), default=1.0, show_default=True, help="sim: virtual seconds a second.")
@click.option("--seed", type=int, help="sim: the same seed, the same run.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND[:at=S,target=W,…]",
    help="sim: what goes wrong, and when; may be repeated.",
)
@click.option(
    "--spec",
    "sim_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="sim: a simulation file (`pdops schema sim`).",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the status JSON when it is up, or with --render what was written."
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    name: str,
    state_dir: Path | None,
    profile: str,
    gpus: str | None,
    engine_python: Path | None,
    torch_wheel: Path | None,
    order: str,
    render: Path | None,
    as_json: bool,
    **wishes: object,
) -> int:
    """Start a prefill/decode cluster on this host, in cold-start order, and check that KV really moves.

    With --profile sim no engine runs: one process shows the pages of a simulated cluster.

    It keeps running after this command has ended; `pdops down` stops it. What does not come up as a whole is stopped again.
    """
    from pdops.cli import simulate

    end = (
        ""
        if name == "default" and state_dir is None
        else f" --name {name}"
        if state_dir is None
        else f" --state-dir {state_dir.absolute()}"
    )
    if profile == "sim":
        return simulate.simulate(ctx, name, state_dir, f"pdops down{end}")
    options = simulate.given(ctx)
    simulate.refuse(ctx, {k: v for k, v in options.items() if k in simulate.ONLY_SIM}, "needs --profile sim")
    from pdops.reference.profiles import Wish
    from pdops.reference.spec import Profile
    from pdops.reference.state import home

    for option in simulate.ONLY_SIM:
        del wishes[option]
    wish = Wish(name=name, profile=Profile(profile), gpus=_numbers(gpus), **wishes)  # type: ignore[arg-type]
    if render is not None:
        return _render(wish, render, as_json)
    from pdops.cli.stages import Screen
    from pdops.reference.status import hints, status
    from pdops.reference.up import Means, up

    means = Means(engine_python=engine_python, torch_wheel=torch_wheel, order=order)
    place = home(name, state_dir)
    with Screen(sys.stderr) as screen:
        running = up(place, wish, means, screen.say, screen.show)
    for stage in running.state.stages:
        if stage.state == "degraded":
            warn(f"it is up without {stage.id}: {stage.detail}")
    if as_json:
        import json

        click.echo(json.dumps(status(running), indent=1))
        return 0
    look = styler(sys.stdout)
    click.echo(look(f"up: {running.spec.served_model}, {wish.prefill} prefill and {wish.decode} decode", "title"))
    for line in hints(running):
        click.echo(f"  {line}")
    click.echo(f"  pdops down{end}")
    return 0


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isdigit() for p in parts):
        raise click.BadParameter(f"{text!r}: expected numbers with commas, as 0,1", param_hint="--gpus")
    return tuple(int(p) for p in parts)


def _render(wish: Wish, folder: Path, as_json: bool) -> int:
    from pdops.reference.profiles import plan
    from pdops.reference.render import KINDS, render, write

    spec = plan(wish, "", started_here=False)
    files = {f"{kind}/{path}": text for kind in KINDS for path, text in render(spec, kind).items()}
    written = write(files, folder)
    if as_json:
        import json

        click.echo(json.dumps(written.document(folder), indent=1))
        return 0
    for word, paths in (("wrote", written.new), ("changed", written.changed), ("same", written.same)):
        for path in paths:
            click.echo(f"{word} {folder / path}")
    for path in written.left:
        click.echo(f"left {folder / path}: no longer part of this deployment")
    return 0
