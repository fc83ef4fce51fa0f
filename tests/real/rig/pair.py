"""Start, break and stop one prefill and one decode engine: vLLM on CPU, KV handed over by NIXL through TCP on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.real.rig import model, pages
from tests.real.rig.procs import CLOCK, LOOPBACK, Process, RigError, free_ports

HERE = Path(__file__).parent
BLOCK_SIZE = 32
"""Tokens a KV block; CPU attention takes multiples of 32 only."""
READY_TIMEOUT_S = 600.0
"""A pair is ready in about a minute on two idle cores and was seen to take seven on busy ones."""
PREFILL, DECODE = "prefill-0", "decode-0"
_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
_ON_CPU = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "lo",
    "VLLM_HOST_IP": LOOPBACK,
    "VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK,
}


@dataclass(frozen=True, slots=True)
class PairOptions:
    """What the two engines are started with; blocks of 32 tokens, lease in seconds."""

    prefill_blocks: int = 1000
    decode_blocks: int = 400
    max_num_seqs: int = 16
    max_model_len: int = 1024
    kv_load_failure_policy: str = "fail"
    lease_s: int = 30
    ready_timeout_s: float = READY_TIMEOUT_S
    extra: tuple[str, ...] = field(default=())

    def blocks(self, worker: str) -> int:
        """Return the number of KV blocks of a worker."""
        return self.prefill_blocks if worker == PREFILL else self.decode_blocks


class Engine:
    """One engine: its ports stay the same over restarts, its log grows.

    Args:
        worker: worker id, `prefill-0` or `decode-0`; the KV engine id of its first start too.
        python: the engine environment's Python.
        model_dir: a checkpoint folder.
        run_dir: where the log goes.
        options: what it is started with.
    """

    def __init__(self, worker: str, python: Path, model_dir: Path, run_dir: Path, options: PairOptions) -> None:
        self.worker, self.options = worker, options
        self._python, self._model_dir, self._run_dir = python, model_dir, run_dir
        self.port, self.side_port = free_ports(2)
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.log = run_dir / f"{worker}.log"
        self.engine_id = worker
        self.process: Process | None = None
        self._starts = 0

    def command(self) -> list[str]:
        """Return the command line."""
        # Without threads of its own NIXL has one progress thread, the one whose pace engine_site sets.
        settings_of_nixl = {"kv_lease_duration": self.options.lease_s, "num_threads": 0}
        kv = {
            "kv_connector": "NixlConnector",
            "kv_role": _ROLES[self.worker],
            "kv_buffer_device": "cpu",
            "engine_id": self.engine_id,
            "kv_load_failure_policy": self.options.kv_load_failure_policy,
            "kv_connector_extra_config": settings_of_nixl,
        }
        settings = {
            "host": LOOPBACK,
            "port": self.port,
            "model": self._model_dir,
            "served-model-name": model.NAME,
            "dtype": "float32",
            "max-model-len": self.options.max_model_len,
            "max-num-seqs": self.options.max_num_seqs,
            "block-size": BLOCK_SIZE,
            "num-gpu-blocks-override": self.options.blocks(self.worker),
            "kv-transfer-config": json.dumps(kv),
            "kv-cache-metrics-sample": 1.0,
        }
        flags = ["--enforce-eager", "--enable-prompt-tokens-details", "--kv-cache-metrics"]
        # The `vllm` command looks for a distribution called "vllm", which the CPU build is not.
        start = [str(self._python), "-m", "vllm.entrypoints.openai.api_server"]
        return [*start, *flags, *(f"--{k}={v}" for k, v in settings.items()), *self.options.extra]

    def environment(self) -> dict[str, str]:
        """Return the whole environment: ours without Python and vLLM settings, and what the pair needs."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VLLM_", "UCX_", "NIXL_", "VIRTUAL_ENV"))
        }
        mine = {
            "PYTHONPATH": str(HERE / "engine_site"),
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side_port),
            "VLLM_CACHE_ROOT": str(self._run_dir / "cache"),
        }
        return {**kept, **_OFFLINE, **_ON_CPU, **mine}

    def start(self, *, same_identity: bool = False) -> None:
        """Start the process; `wait_ready` says when it serves.

        A restart gets an engine id of its own, as engines do that draw theirs at random. With `same_identity` it keeps the
        last one: decode then goes on using what it knew of the dead prefill, and its pulls fail.
        """
        assert self.process is None or not self.process.alive, f"{self.worker} runs already"
        if self._starts and not same_identity:
            self.engine_id = f"{self.worker}.{self._starts}"
        self._starts += 1
        self.process = Process(self.worker, self.command(), log=self.log, env=self.environment(), cwd=self._run_dir)

    def wait_ready(self) -> float:
        """Wait until it serves our model from the process we started; return the seconds since the start.

        Raises:
            RigError: it ended, or did not serve in time.
        """
        assert self.process is not None, f"{self.worker} was not started"
        begin = self.process.started_s
        while self.process.alive:
            with contextlib.suppress(OSError, ValueError, KeyError):
                served = json.loads(pages.get(f"{self.url}/v1/models", 2.0))["data"]
                if any(entry["id"] == model.NAME for entry in served) and self.process.alive:
                    return CLOCK.now() - begin
            if CLOCK.now() - begin > self.options.ready_timeout_s:
                self.process.stop()
                why = f"not ready within {self.options.ready_timeout_s:.0f} s"
                raise RigError(
                    f"{self.worker} does not serve", where=str(self.log), why=why, hint="read the end of that file"
                )
            time.sleep(0.5)
        why = f"exit status {self.process.returncode}"
        raise RigError(
            f"{self.worker} ended while starting", where=str(self.log), why=why, hint="read the end of that file"
        )

    def metrics(self) -> str:
        """Return its page of metrics."""
        return pages.get(f"{self.url}/metrics")

    def kill(self) -> None:
        """End all its processes at once, as a crash would."""
        assert self.process is not None
        self.process.kill()

    def freeze(self) -> None:
        """Stop all its processes where they are (SIGSTOP)."""
        assert self.process is not None
        self.process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen engine go on."""
        assert self.process is not None
        self.process.send(signal.SIGCONT)

    def stop(self) -> None:
        """Stop it, frozen or not."""
        if self.process is not None:
            self.process.stop()


class Pair:
    """A prefill and a decode engine; a context manager that always stops both.

    Args:
        python: the engine environment's Python.
        run_dir: a folder for model, logs and caches; made when missing.
        options: what the engines are started with.
    """

    def __init__(self, python: Path, run_dir: Path, options: PairOptions | None = None) -> None:
        self.options = options or PairOptions()
        run_dir = run_dir.resolve()
        run_dir.mkdir(parents=True, exist_ok=True)
        self.python, self.run_dir, self.model_dir = python, run_dir, run_dir / "model"
        self.prefill = Engine(PREFILL, python, self.model_dir, run_dir, self.options)
        self.decode = Engine(DECODE, python, self.model_dir, run_dir, self.options)

    @property
    def engines(self) -> tuple[Engine, Engine]:
        """Both, prefill first."""
        return self.prefill, self.decode

    def start(self) -> float:
        """Write the model, start both engines, wait for both; return the seconds it took.

        Raises:
            RigError: the model or an engine failed.
        """
        begin = CLOCK.monotonic()
        self._write_model()
        for engine in self.engines:
            engine.start()
        for engine in self.engines:
            engine.wait_ready()
        return CLOCK.monotonic() - begin

    def stop(self) -> None:
        """Stop both."""
        for engine in self.engines:
            if engine.process is not None:
                # Both get the signal before either is waited for.
                engine.thaw()
                engine.process.send(signal.SIGTERM)
        for engine in self.engines:
            engine.stop()

    def __enter__(self) -> Pair:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write_model(self) -> None:
        command = [str(self.python), str(HERE / "model.py"), str(self.model_dir)]
        environment = {**os.environ, **_OFFLINE, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RigError(
                "cannot write the model", where=str(self.model_dir), why=done.stderr.strip().rpartition("\n")[2]
            )
