"""The command line of the router."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Any

import click

from pdops.errors import PdopsError
from pdops.model.cluster import Role
from pdops.router.settings import FALLBACKS, POLICIES, RouterError, Settings, WorkerSpec, parse_worker

MAX_SECONDS = 86_400.0
INTERRUPTED = 130
"""Exit status after Ctrl-C; SIGTERM is how a router is meant to be stopped, and is none."""
_OTHERS = 0o077


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not 0.0 < seconds <= MAX_SECONDS:
        raise click.BadParameter(f"{text!r} is not a number of seconds above 0 and at most {MAX_SECONDS:.0f}")
    return seconds


def _seconds_or_none(text: str) -> float | None:
    return None if text == "none" else _seconds(text)


def _count(top: int = 1_000_000) -> click.IntRange:
    return click.IntRange(1, top)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Examples:\n\n\b\n"
    "  pdops router --prefill prefill-0=http://127.0.0.1:8100 --decode decode-0=http://127.0.0.1:8200 --port 8080\n"
    "  pdops router --prefill p0=http://10.0.3.11:8000,zone=az1 --decode d0=http://10.0.3.12:8000,zone=az1 \\\n"
    "    --policy zone-aware --zone az1 --admin-token-file admin.token --state workers.json",
)
@click.option("--prefill", "prefills", multiple=True, metavar="ID=URL[,zone=Z]", help="A prefill worker; may repeat.")
@click.option("--decode", "decodes", multiple=True, metavar="ID=URL[,zone=Z]", help="A decode worker; may repeat.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 takes a free one (the default).")
@click.option(
    "--policy", type=click.Choice(POLICIES), default=POLICIES[0], show_default=True, help="How pairs are chosen."
)
@click.option(
    "--queue-limit", type=click.IntRange(0, 1_000_000), default=1000, show_default=True, help="Requests that may wait."
)
@click.option("--max-inflight-prefill", type=_count(), default=64, show_default=True, help="Legs per prefill worker.")
@click.option(
    "--max-inflight-decode", type=_count(), default=256, show_default=True, help="Requests per decode worker."
)
@click.option(
    "--deadline",
    "deadline_s",
    metavar="S",
    type=_seconds_or_none,
    default="120",
    show_default=True,
    help="Arrival to first token, hand-off included; later ones get 503. `none`: wait for ever.",
)
@click.option(
    "--body-timeout",
    "body_timeout_s",
    metavar="S",
    type=_seconds,
    default="60",
    show_default=True,
    help="Longest time a client may take to send the body of a request.",
)
@click.option(
    "--prefill-timeout",
    "prefill_timeout_s",
    metavar="S",
    type=_seconds,
    default="60",
    show_default=True,
    help="Longest prefill leg.",
)
@click.option(
    "--first-token-timeout",
    "first_token_timeout_s",
    metavar="S",
    type=_seconds,
    default="60",
    show_default=True,
    help="Call of decode to its first token.",
)
@click.option(
    "--stream-idle-timeout",
    "stream_idle_timeout_s",
    metavar="S",
    type=_seconds,
    default="60",
    show_default=True,
    help="Longest gap in a stream, on either side.",
)
@click.option(
    "--answer-timeout",
    "answer_timeout_s",
    metavar="S",
    type=_seconds,
    default="600",
    show_default=True,
    help="Longest decode leg that is not streamed.",
)
@click.option(
    "--fallback",
    type=click.Choice(FALLBACKS),
    default="none",
    show_default=True,
    help="What to do without prefill; decode-only is counted.",
)
@click.option(
    "--admin-token-file", type=click.Path(path_type=Path), help="Token of the admin API; without it the API is off."
)
@click.option("--state", "state_file", type=click.Path(path_type=Path), help="Keeps workers over a restart; mode 0600.")
@click.option("--kv-bytes-per-token", type=_count(1 << 40), help="Bytes of KV a token; needed to count KV bytes.")
@click.option("--block-size", type=_count(), help="Tokens a KV block; needed to count KV bytes.")
@click.option("--slo-ttft", "slo_ttft_s", metavar="S", type=_seconds, help="Promised time to first token.")
@click.option(
    "--slo-itl", "slo_itl_s", metavar="S", type=_seconds, help="Promised mean time between tokens of a request."
)
@click.option(
    "--otlp", metavar="ENDPOINT", help="OTLP over HTTP for spans, such as http://127.0.0.1:4318; extra `otel`."
)
@click.option("--zone", metavar="Z", help="The router's own zone.")
@click.option(
    "--drain-timeout",
    "drain_s",
    metavar="S",
    type=_seconds,
    default="30",
    show_default=True,
    help="After SIGTERM: time for running requests.",
)
@click.option("--allow-drills", is_flag=True, help="Let the admin API switch faults on.")
def command(
    prefills: tuple[str, ...],
    decodes: tuple[str, ...],
    host: str,
    port: int,
    admin_token_file: Path | None,
    state_file: Path | None,
    otlp: str | None,
    drain_s: float,
    **limits: Any,
) -> None:
    """Route completions: prefill on one worker, hand the KV over, decode on another; prints its URL once it serves."""
    from pdops.router.serve import Start, run
    from pdops.router.settings import zone_name

    given = [
        *(parse_worker(text, Role.PREFILL) for text in prefills),
        *(parse_worker(text, Role.DECODE) for text in decodes),
    ]
    _distinct(given)
    if not host.strip():
        why = "--host is empty, which would mean all of them"
        raise RouterError("no address to serve on", why=why, hint="--host 0.0.0.0 if all of them are meant")
    limits["zone"] = zone_name(limits["zone"])
    if limits["policy"] == "zone-aware" and limits["zone"] is None and not any(w.zone for w in given):
        hint = "give --zone and ,zone= with the workers, or choose another policy"
        raise RouterError("zone-aware routing knows no zone", hint=hint)
    token = None if admin_token_file is None else _token(admin_token_file)
    settings = Settings(**limits)
    stopped_by = run(
        Start(
            settings=settings,
            given=tuple(given),
            host=host,
            port=port,
            token=token,
            state_file=state_file,
            otlp=otlp,
            drain_s=drain_s,
        )
    )
    if stopped_by is signal.SIGINT:
        sys.exit(INTERRUPTED)


def _distinct(given: list[WorkerSpec]) -> None:
    seen: dict[str, WorkerSpec] = {}
    for spec in given:
        if spec.id in seen:
            why = f"{seen[spec.id].url} and {spec.url}"
            raise RouterError("an id is given twice", where=spec.id, why=why, hint="give each worker an id of its own")
        seen[spec.id] = spec


def _token(path: Path) -> str:
    hint = "write a long random text into a file only you can read: (umask 077; openssl rand -hex 32 > FILE)"
    try:
        token = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RouterError("cannot read the admin token", where=str(path), why=why, hint=hint) from error
    if not token or any(c.isspace() for c in token):
        raise RouterError("not a token", where=str(path), why="expected one word", hint=hint)
    if mode & _OTHERS:
        logging.getLogger(__name__).warning("others can read %s; chmod 600 it", path)
    return token


def main() -> None:
    """Run the router and exit with a documented status."""
    logging.basicConfig(level=logging.WARNING, format="pdops-router: %(message)s", stream=sys.stderr)
    try:
        command.main(prog_name="pdops router", standalone_mode=False)
    except PdopsError as error:
        click.echo(f"pdops: {error}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
