"""Let NIXL's progress thread rest between polls in CPU engines.

Put on PYTHONPATH of an engine, it is loaded by every interpreter the engine starts. As shipped the thread polls without
pause, one core per idle engine; without it a pull waits until the other engine happens to step. A pause of a millisecond
costs about two percent of a core and keeps hand-overs prompt. Nothing is changed on disk, and nothing is imported that
the engine does not import itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
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


sys.meta_path.insert(0, _Finder())
