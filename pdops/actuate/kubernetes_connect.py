"""Finds the API server and logs in, by the official client library; nothing else of pdops knows that library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pdops.actuate.kubernetes_api import Api
from pdops.clock import Clock
from pdops.errors import UsageError

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def connect(
    *, kubeconfig: str | None, context: str | None, namespace: str | None, clock: Clock, sleep: Callable[[float], None]
) -> Api:
    """Return the API server that a kubeconfig names, or without one that of the cluster this process runs in.

    Raises:
        UsageError: the client library is missing, or nothing says where the server is.
    """
    try:
        from kubernetes import config
        from kubernetes.client import ApiClient, Configuration
    except ImportError as error:
        raise UsageError(
            "the Kubernetes client is not installed", why=str(error), hint="pip install 'pdops[k8s]'"
        ) from error
    settings = Configuration()
    inside = kubeconfig is None and context is None and _NAMESPACE_FILE.is_file()
    try:
        if inside:
            config.load_incluster_config(client_configuration=settings)
            found: str | None = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
        else:
            config.load_kube_config(kubeconfig, context, client_configuration=settings, persist_config=False)
            contexts, active = config.list_kube_config_contexts(kubeconfig)
            chosen = next((c for c in contexts if c["name"] == context), active)
            found = chosen["context"].get("namespace")
    except (config.ConfigException, OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "the API server cannot be found", where=kubeconfig or "", why=str(error)[:300],
            hint="check the kubeconfig and the context with `kubectl config view`",
        ) from error  # fmt: skip
    # The library would wait as long as a server says, and would send again what was not answered.
    settings.retries = False
    return Api(ApiClient(settings), namespace or found or "default", clock, sleep)
