"""What the end of a log says about why a program ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdops.reference import logs

HARMLESS = "INFO 11-30 06:10:13 [nixl.py:1] Setting UCX_RCACHE_MAX_UNRELEASED to '1024' to avoid a rare memory leak in UCX when using NIXL."
TOO_LONG = (
    "(EngineCore pid=3423) ERROR 11-30 06:10:13 [core.py:1510] ValueError: To serve at least one request with the model's max"
    " seq len (4096), (0.0 GiB KV cache is needed, which is larger than the available KV cache memory (0.0 GiB)."
)
OUTER = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize("lines", [[HARMLESS, TOO_LONG, OUTER], [TOO_LONG, OUTER, HARMLESS]])
def test_names_what_ended_it(tmp_path: Path, lines: list[str]) -> None:
    log = tmp_path / "decode-0.log"
    log.write_text("\n".join(lines))
    assert logs.why(log).startswith(
        "the longest request does not fit into KV: more blocks, or a shorter --max-model-len: "
    )


def test_a_line_without_a_cause_is_none(tmp_path: Path) -> None:
    log = tmp_path / "decode-0.log"
    log.write_text(f"ValueError: something else: broke\n{HARMLESS}\n")
    assert logs.why(log) == "ValueError: something else: broke"
    log.write_text(HARMLESS)
    assert logs.why(log) == ""
