"""Read the configuration file that a Mooncake store client is started with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "MOONCAKE_CONFIG_PATH"
_KEYS = (
    "local_hostname",
    "metadata_server",
    "master_server_address",
    "protocol",
    "device_name",
    "global_segment_size",
    "local_buffer_size",
)
_MAX_BYTES = 1 << 20


def store_client_facts(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the file that the environment names; nothing when it names none.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no JSON object.
    """
    path = environ.get(VARIABLE)
    if not path:
        return {}
    with open(Path(path), "rb") as file:
        config = json.loads(file.read(_MAX_BYTES))
    if not isinstance(config, dict):
        raise ValueError("it holds no object")
    return {key: str(config[key]) for key in _KEYS if isinstance(config.get(key), str | int)}
