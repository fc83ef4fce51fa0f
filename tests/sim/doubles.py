"""A double of a simulation: a prefill, some decodes, a router and a node, doing the same every second."""

from __future__ import annotations

from pdops.model.cluster import Cluster, Role, Slo, Worker
from pdops.model.frame import Frame, LogLine
from pdops.sim.instruments import EPOCH_S, Instruments


class DoubleSimulation:
    """Ten requests a virtual second; `down` and `hung` are names of pages whose process does not answer."""

    def __init__(self, decodes: int = 1, model: str = "double-1b") -> None:
        self.now_s = 0.0
        self.down: set[str] = set()
        self.hung: set[str] = set()
        self.lines: list[str] = []
        self.cluster = Cluster(
            name="double",
            model=model,
            kv_bytes_per_token=1024.0,
            slo=Slo(ttft_s=1.0, itl_s=0.05),
            workers=(
                Worker(id="prefill-0", role=Role.PREFILL, pool="prefill", engine="vllm", zone="az1", node="n0"),
                *(
                    Worker(id=f"decode-{i}", role=Role.DECODE, pool="decode", engine="vllm", zone="az2")
                    for i in range(decodes)
                ),
                Worker(id="router-0", role=Role.ROUTER, pool="router", engine="pdops_router"),
            ),
        )
        names = {"model_name": model}
        self.instruments = {
            "prefill-0": Instruments("prefill-0", "vllm", labels=names),
            **{f"decode-{i}": Instruments(f"decode-{i}", "vllm", labels=names) for i in range(decodes)},
            "router-0": Instruments("router-0", "pdops_router"),
            "node-n0": Instruments("prefill-0", "node", endpoint="node"),
        }

    def advance(self, to_s: float) -> None:
        """Count ten requests for every second that passes."""
        requests = round((to_s - self.now_s) * 10)
        self.now_s = to_s
        for worker in ("prefill-0", "decode-0"):
            self.instruments[worker].inc("vllm:prompt_tokens", 100 * requests)
            self.instruments[worker].observe("vllm:time_to_first_token_seconds", 0.2, n=requests)
        self.instruments["router-0"].inc("pdops_router_requests", requests, outcome="ok")
        self.instruments["router-0"].observe("pdops_router_ttft_seconds", 0.3, n=requests)
        self.instruments["node-n0"].set("node_time_seconds", EPOCH_S + to_s)

    def frame(self) -> Frame:
        """Return all pages and the lines that were put into `lines`."""
        at_s = EPOCH_S + self.now_s
        for name, instruments in self.instruments.items():
            instruments.error = "connection refused" if name in self.down | self.hung else None
            instruments.silent = name in self.hung
        lines, self.lines = self.lines, []
        return Frame(
            at_s=at_s,
            scrapes=tuple(i.scrape(at_s) for i in self.instruments.values()),
            logs=tuple(LogLine(t_s=at_s, worker="decode-0", line=line) for line in lines),
        )
