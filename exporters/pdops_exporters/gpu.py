"""GPUs of this host through NVML, by the role of the engine that runs on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

LABELS = ("gpu", "uuid", "name", "role", "worker")
REASONS = {
    "gpu-idle": 0x1,
    "applications-clocks": 0x2,
    "software-power-cap": 0x4,
    "hardware-slowdown": 0x8,
    "sync-boost": 0x10,
    "software-thermal": 0x20,
    "hardware-thermal": 0x40,
    "hardware-power-brake": 0x80,
    "display-clocks": 0x100,
}
"""Bits of the clock event reasons; source: NVML's nvmlClocksEventReason constants."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose processes run on a GPU."""

    role: str
    worker: str


class GpuCollector(Collector):
    """Reads every GPU when it is asked; without a driver there is no GPU family, only the reason.

    Args:
        nvml: the `pynvml` module or one with its functions; None says why in `reason`.
        owner: gives the owner of a process by its pid, or None.
        registry: where to register.
        reason: why there is no NVML.
    """

    def __init__(
        self,
        nvml: Any | None,
        registry: CollectorRegistry,
        *,
        owner: Callable[[int], Owner | None] = lambda _: None,
        reason: str = "",
    ) -> None:
        self._nvml, self._owner, self._reason = nvml, owner, reason
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Return nothing; which families there are depends on the GPUs."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield use, memory, power, clocks, temperature and throttle reasons of each GPU; what it refuses is absent."""
        absent = GaugeMetricFamily("pdops_gpu_absent", "1 with the reason while no GPU can be read", labels=("reason",))
        families = _families()
        count, reason = 0, self._reason
        if self._nvml is not None:
            try:
                count = int(self._nvml.nvmlDeviceGetCount())
            except self._nvml.NVMLError as error:
                reason = str(error)
            for index in range(count):
                self._read(index, families)
        told = [family for family in families.values() if family.samples]
        if not told:
            none = "no GPU answers any question" if count else "NVML sees no GPU"
            absent.add_metric([reason or none], 1.0)
            yield absent
        yield from told

    def _read(self, index: int, families: Mapping[str, GaugeMetricFamily]) -> None:
        nvml = self._nvml
        assert nvml is not None
        handle = self._try(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return
        uuid, name = (_text(self._try(f, handle)) for f in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName))
        owner = self._whose(handle)
        labels = [str(index), uuid, name, owner.role, owner.worker]

        def put(family: str, value: float | None, *more: str) -> None:
            if value is not None:
                families[family].add_metric([*labels, *more], value)

        use = self._try(nvml.nvmlDeviceGetUtilizationRates, handle)
        if use is not None:
            put("busy", use.gpu / 100.0)
            put("memory_busy", use.memory / 100.0)
        memory = self._try(nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is not None:
            put("used", float(memory.used))
            put("total", float(memory.total))
        power = self._try(nvml.nvmlDeviceGetPowerUsage, handle)
        put("power", None if power is None else power / 1000.0)
        limit = self._try(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
        put("power_limit", None if limit is None else limit / 1000.0)
        heat = self._try(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        put("temperature", None if heat is None else float(heat))
        clock = self._try(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        put("clock", None if clock is None else clock * 1e6)
        bits = self._try(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if bits is not None:
            for reason, bit in REASONS.items():
                put("throttled", float(bool(bits & bit)), reason)

    def _whose(self, handle: Any) -> Owner:
        assert self._nvml is not None
        for process in self._try(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ():
            owner = self._owner(int(process.pid))
            if owner is not None:
                return owner
        return Owner("", "")

    def _try(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a GPU answers, or None when it does not support the question."""
        assert self._nvml is not None
        try:
            return function(*args)
        except self._nvml.NVMLError:
            return None


def open_nvml() -> tuple[Any | None, str]:
    """Return NVML ready to be asked, or None and why not."""
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed (pip install pdops[gpu])"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, str(error)
    return pynvml, ""


def _families() -> dict[str, GaugeMetricFamily]:
    def gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"pdops_gpu_{name}", meaning, labels=(*LABELS, *labels))

    return {
        "busy": gauge("busy_ratio", "share of time a kernel ran (0-1); says busy, not how much work"),
        "memory_busy": gauge("memory_busy_ratio", "share of time memory was read or written (0-1)"),
        "used": gauge("memory_used_bytes", "memory in use"),
        "total": gauge("memory_total_bytes", "memory there is"),
        "power": gauge("power_watts", "power drawn"),
        "power_limit": gauge("power_limit_watts", "power allowed"),
        "temperature": gauge("temperature_celsius", "temperature of the GPU"),
        "clock": gauge("sm_clock_hertz", "clock of the multiprocessors"),
        "throttled": gauge("clock_event", "1 while clocks are held down for the reason", "reason"),
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
