"""GPU families, against a double of NVML: a small object with the functions of pynvml that are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from pdops_exporters.gpu import GpuCollector, Owner

from .conftest import samples


class NvmlError(Exception):
    pass


class NvmlDouble:
    """Two GPUs: one in use by process 4242, one that refuses all but its name."""

    NVMLError = NvmlError
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1

    def __init__(self, count: int = 2) -> None:
        self.count = count

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return self._only_first(handle, SimpleNamespace(gpu=87, memory=40))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return self._only_first(handle, SimpleNamespace(used=100 << 30, total=141 << 30))

    def nvmlDeviceGetPowerUsage(self, handle: int) -> Any:
        return self._only_first(handle, 650_000)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> Any:
        return self._only_first(handle, 700_000)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> Any:
        return self._only_first(handle, 71)

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> Any:
        return self._only_first(handle, 1830)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> Any:
        return self._only_first(handle, 0x4 | 0x40)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:
        return self._only_first(handle, [SimpleNamespace(pid=1), SimpleNamespace(pid=4242)])

    def _only_first(self, handle: int, answer: Any) -> Any:
        if handle != 0:
            raise NvmlError("Not Supported")
        return answer


def read(nvml: Any, **options: Any) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    registry = CollectorRegistry()
    GpuCollector(nvml, registry, **options)
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for (name, labels), value in samples(generate_latest(registry).decode()).items():
        found.setdefault(name, {})[labels] = value
    return found


def only(found: dict[str, dict[tuple[tuple[str, str], ...], float]], name: str) -> float:
    (value,) = found[name].values()
    return value


def test_a_gpu_is_told_in_base_units_with_the_role_of_its_engine() -> None:
    found = read(NvmlDouble(), owner=lambda pid: Owner("decode", "decode-0") if pid == 4242 else None)
    assert only(found, "pdops_gpu_busy_ratio") == 0.87
    assert only(found, "pdops_gpu_memory_used_bytes") == 100 << 30
    assert only(found, "pdops_gpu_power_watts") == 650
    assert only(found, "pdops_gpu_sm_clock_hertz") == 1.83e9
    (labels,) = found["pdops_gpu_busy_ratio"]
    assert dict(labels) == {
        "gpu": "0",
        "uuid": "GPU-0",
        "name": "NVIDIA H200",
        "role": "decode",
        "worker": "decode-0",
    }


def test_reasons_that_hold_clocks_down_are_told_each() -> None:
    held = {dict(labels)["reason"] for labels, on in read(NvmlDouble())["pdops_gpu_clock_event"].items() if on}
    assert held == {"software-power-cap", "hardware-thermal"}


def test_what_a_gpu_refuses_is_absent_and_not_zero() -> None:
    found = read(NvmlDouble())
    assert {dict(labels)["gpu"] for labels in found["pdops_gpu_busy_ratio"]} == {"0"}


def test_without_a_gpu_there_is_a_reason_and_no_gpu_family() -> None:
    assert set(read(NvmlDouble(count=0))) == {"pdops_gpu_absent"}
    found = read(None, reason="Driver Not Loaded")
    ((labels, value),) = found["pdops_gpu_absent"].items()
    assert (dict(labels), value) == ({"reason": "Driver Not Loaded"}, 1.0)
    assert set(found) == {"pdops_gpu_absent"}


def test_gpus_that_all_refuse_are_said_to_be_absent() -> None:
    class Lost(NvmlDouble):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
            raise NvmlError("GPU is lost")

    found = read(Lost())
    assert set(found) == {"pdops_gpu_absent"}
    assert only(found, "pdops_gpu_absent") == 1.0
