"""Make two CPU engines bearable on one small machine.

Put on PYTHONPATH of an engine, this is loaded by every interpreter the engine starts. It changes two habits that suit a
machine of one's own, and nothing on disk; it imports nothing the engine does not import itself.

- NIXL's progress thread polls without pause, one core per idle engine. A pause of a millisecond between polls costs about
  two percent of a core. Without the thread a pull would wait until the other engine happens to step.
- vLLM's NIXL connector pins its worker to the machine's last core, so that the workers of both engines would share that
  one; on a busy machine pulls then take up to 17 s.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

TARGET = "nixl_cu12._api"
PAUSE_US = 1000


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        make = module.nixlBind.nixlAgent

        def agent(name: str, settings: Any) -> Any:
            settings.pthrDelay = PAUSE_US
            return make(name, settings)

        module.nixlBind.nixlAgent = agent


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _stay_unpinned(_pid: int, _cores: Iterable[int]) -> None:
    """Take the place of os.sched_setaffinity."""


sys.meta_path.insert(0, _Finder())
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity = _stay_unpinned
