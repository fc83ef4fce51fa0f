"""Debian's Prometheus and Alertmanager in front of `pdops respond`, over a double of a backend: a rule fires, a run is made."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from pdops.clock import WallClock
from pdops.respond.alerts import WATCHDOG
from pdops.respond.candidates import with_modes
from pdops.respond.listen import listen
from pdops.respond.server import app
from pdops.respond.service import Service, Settings
from pdops.respond.tokens import Tokens
from pdops.runbook import audit
from pdops.runbook.journal import Journal
from pdops.runbook.model import Mode
from pdops.runbook.states import RunState
from tests.real.test_promql_real import binary
from tests.respond.kit import ADD, CLUSTER, Scene, World
from tests.respond.record import Lab, free_port, program

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
ALERT = "PDPrefillQueueing"
TOKEN = "t" * 32


class Stack:
    """What is around `respond`: a page to scrape, Prometheus, Alertmanager."""

    def __init__(self, folder: Path, hook: int) -> None:
        self.folder, self.hook = folder, hook
        self.lab, self.manager, self.server = Lab(), free_port(), free_port()
        (folder / "credential").write_text(TOKEN)
        receiver = {
            "url": f"http://127.0.0.1:{hook}/alerts", "send_resolved": True, "max_alerts": 0,
            "http_config": {"authorization": {"credentials_file": str(folder / "credential")}},
        }  # fmt: skip
        route = {"receiver": "pdops", "group_by": ["alertname", "cluster"], "group_wait": "1s", "group_interval": "1s", "repeat_interval": "2s"}  # fmt: skip
        (folder / "alertmanager.yml").write_text(
            json.dumps({"route": route, "receivers": [{"name": "pdops", "webhook_configs": [receiver]}]})
        )
        rules = [
            {"alert": ALERT, "expr": f'max by (cluster, worker) (lab{{alert="{ALERT}"}}) > 0'},
            {"alert": WATCHDOG, "expr": "vector(1)"},
        ]
        (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "lab", "rules": rules}]}))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.manager}"]}]}]},
            "scrape_configs": [{"job_name": "lab", "static_configs": [{"targets": [f"127.0.0.1:{self.lab.port}"]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.manager}"

    def fires(self, on: bool) -> None:
        self.lab.values[ALERT, "prefill-0"] = float(on)

    def start(self, stack: ExitStack) -> None:
        threading.Thread(target=self.lab.serve_forever, daemon=True).start()
        stack.callback(self.lab.server_close)
        stack.callback(self.lab.shutdown)
        words = [f"--config.file={self.folder}/alertmanager.yml", f"--storage.path={self.folder}/alerts"]
        words += [f"--web.listen-address=127.0.0.1:{self.manager}", "--cluster.listen-address="]
        stack.enter_context(program(self.folder, binary("prometheus-alertmanager"), self.manager, *words))
        words = [f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data"]
        # What is sent before Alertmanager has been found is lost, and would be sent again after a minute only.
        words += [f"--web.listen-address=127.0.0.1:{self.server}", "--rules.alert.resend-delay=1s"]
        stack.enter_context(program(self.folder, binary("prometheus"), self.server, *words))


@asynccontextmanager
async def responding(folder: Path, scene: Scene, port: int, manager: str | None) -> AsyncIterator[Service]:
    """Answer alerts until the block ends."""
    (folder / "tokens").write_text(f"alertmanager:operator:{TOKEN}\n")
    quick = ADD.model_copy(update={"observe_s": 0.0})
    settings = Settings(
        cluster=CLUSTER, journal=folder / "journal.db", runbooks=with_modes([quick], {"add-prefill": Mode.AUTO}),
        look=scene.look, backend=lambda: World(folder / "world.json", scene), tokens=Tokens(folder / "tokens"),
        watchdog_s=200.0, alertmanager=manager, receiver="pdops",
    )  # fmt: skip
    service = Service(settings, WallClock())
    await service.open()
    runner: web.AppRunner = await listen(app(service), "127.0.0.1", port)
    follow = asyncio.create_task(service.follow())
    try:
        yield service
        assert service.failure() is None
    finally:
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)
        await runner.cleanup()
        await service.close()


async def until(service: Service, so: Callable[[list[RunState]], bool]) -> None:
    """Wait until the runs are as wanted; the test's time limit ends it."""
    while not so(await service.intake(lambda i: [r.state for r in i.journal.runs()])):
        await asyncio.sleep(0.1)


async def delivered(service: Service, more: int) -> None:
    """Wait for so many deliveries more."""
    begin = service.answers[200]
    while service.answers[200] < begin + more:
        await asyncio.sleep(0.1)


async def test_a_rule_that_fires_is_one_run_however_often_it_is_delivered(tmp_path: Path) -> None:
    scene, port = Scene(), free_port()
    World(tmp_path / "world.json", scene)
    stack = Stack(tmp_path, port)
    with ExitStack() as running:
        await asyncio.to_thread(stack.start, running)
        async with responding(tmp_path, scene, port, None) as service:
            stack.fires(on=True)
            await until(service, lambda states: states == [RunState.DONE])
            await delivered(service, 5)
            assert service.watchdog.pulse().alive, "the rule that always fires is heard"
            stack.fires(on=False)
            while (await service.status()).episodes[0].firing:
                await asyncio.sleep(0.1)
            assert {e.made for e in (await service.status()).episodes} == {"started"}
    with Journal(tmp_path / "journal.db", WallClock()) as journal:
        assert [(r.state, r.requester) for r in journal.runs()] == [(RunState.DONE, "alertmanager")]
        assert audit.verify(journal).problems == ()
    assert [e[1] for e in World(tmp_path / "world.json", scene).effects] == ["pool.scale-out"]


async def test_what_fired_while_nobody_listened_is_asked_for_after_a_restart(tmp_path: Path) -> None:
    """The receiver has another port than is delivered to, so that only the API tells."""
    scene, port = Scene(), free_port()
    World(tmp_path / "world.json", scene)
    stack = Stack(tmp_path, free_port())
    with ExitStack() as running:
        await asyncio.to_thread(stack.start, running)
        stack.fires(on=True)
        async with responding(tmp_path, scene, port, stack.url) as service:
            while (await service.status()).alertmanager.state != "ok":
                await asyncio.sleep(0.1)
            while not (await service.status()).episodes:
                await service.reconcile()
                await asyncio.sleep(0.5)
            while not service.watchdog.pulse().alive:
                await service.reconcile()
                await asyncio.sleep(0.5)
            await until(service, lambda states: states == [RunState.DONE])
        async with responding(tmp_path, scene, port, stack.url) as service:
            await service.reconcile()
            await until(service, lambda states: states == [RunState.DONE])
    assert len(World(tmp_path / "world.json", scene).effects) == 1
