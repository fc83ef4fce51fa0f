"""What the rendered folders say about themselves."""

from __future__ import annotations

from pdops.model.cluster import Role
from pdops.reference.render import parts
from pdops.reference.render.settings import GENERATION_S, SHUTDOWN_S, Settings, budget_s, linger_s
from pdops.reference.spec import DeploymentSpec

RECEIVER = """\
Nothing is sent anywhere yet. Give the receiver a way out, for example:
  - name: nobody
    webhook_configs: [{url: "http://HOST:PORT/PATH", send_resolved: true, max_alerts: 0,
                       http_config: {authorization: {credentials_file: /etc/alertmanager/token}}}]"""
EXAMPLE = "Copy this folder, rename it, and make it yours: namespace, registry, node selectors, sizes."
RDMA = """\
On top of the example: an RDMA device per engine, and the right to pin memory. The namespace's pod security level has
to allow that right. The name of the device resource is the one your device plugin gives out."""
_DASHBOARDS = {
    "compose": "Grafana shows six dashboards made of its families.",
    "kubernetes": "Six dashboards made of its families are ConfigMaps with the label `grafana_dashboard`, which the\n"
    "  sidecar of Grafana's Helm charts looks for; a Grafana in another namespace has to be told to look here.",
}
DASHBOARDS = "Grafana loads every JSON file of this folder. Put dashboards here.\n"


def compose(spec: DeploymentSpec, settings: Settings) -> str:
    """Return the README of a Compose project."""
    prefills, decodes = [e.id for e in spec.prefills()], [e.id for e in spec.decodes()]
    token = (
        "python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > secrets/router_admin_token\n"
        if spec.router is not None
        else ""
    )
    return f"""\
# {spec.name}: {_shape(spec)} with Compose

Not run on a GPU yet: the files are checked by `docker-compose config`, `promtool` and `amtool`, and the readiness and
drain program is tested against small servers. Image tags are pinned, and were not pulled when this was written.

## Start

```sh
umask 022 && chmod 700 secrets
{token}python3 -c 'import secrets; print(secrets.token_urlsafe(16))' > secrets/grafana_admin_password
touch secrets/hf_token                      # or put a token there, for a model that needs one
cp /path/to/pdops-*.whl images/pdops/       # the wheel of pdops{", with its router" if spec.router else ""}
docker compose up -d --build                # Compose 2; Debian's docker-compose 1.29 reads the file, too
docker compose ps                           # "healthy" is our own readiness, not a running process
```

Files in `secrets/` are readable inside their containers; the folder is yours alone (0700).
{_address(spec)}Prometheus is on 127.0.0.1:9090, Alertmanager on 9093, Grafana on 3000; nothing is published beyond loopback.
`PDOPS_ROUTER_PORT`, `PDOPS_PROMETHEUS_PORT`, `PDOPS_ALERTMANAGER_PORT` and `PDOPS_GRAFANA_PORT` move them.

## Order

Start: {"store, " if spec.store else ""}prefill, decode{", router" if spec.router else ""}; each waits until everything before it is
healthy, so one broken engine holds up what comes after it. Prefill and decode have {budget_s("prefill")} s each to become ready; load a large
model beforehand. What Compose cannot express: the check of the hosts (`pdops preflight`), a transfer through every pair and one request
through the router (`pdops canary -c pdops.yaml`), and the ramp. Monitoring waits for nobody, so a start that hangs is seen.

Stop: Compose ends things in the reverse order of their start, so decode would go before prefill. Each engine takes itself out
of the router, waits until nothing runs in it (prefill {parts.drain_s(spec, Role.PREFILL)[0]} s, decode {parts.drain_s(spec, Role.DECODE)[0]} s at
the most), and prefill stays {linger_s(spec.lease_s)} s more, one and a half KV leases, for KV that decode may still pull.
`docker compose down` is safe once the router has ended its streams, which it does first. The order that keeps decode
until prefill has gone is:

```sh
{_stops(spec, prefills, decodes)}docker compose down
```

## What it does not do

- KV between these containers goes over their network (TCP): each sees only its own GPUs, so NVLink between them is not
  used. For that run `pdops up --profile gpu` on the host, or Kubernetes with RDMA.
- `prometheus/rules` holds the rules of pdops (`pdops explain ALERT`); Alertmanager sends nothing until you fill in a receiver.
- One step runs as root, with one right (CHOWN) and without a network: it gives the new cache volume to the engines' user.
{_exporter(settings, "compose")}"""


def kubernetes(spec: DeploymentSpec, settings: Settings) -> str:
    """Return the README of a Kustomize tree."""
    idle_s, stay_s = parts.drain_s(spec, Role.PREFILL)
    decode_s = parts.drain_s(spec, Role.DECODE)[0]
    local = parts.local_model(spec)
    model = (
        f"The model is read from `{local}`: make a PersistentVolumeClaim `model` that holds it."
        if local is not None
        else "Each engine downloads the model into a volume of its own at every start; for more than a try-out patch "
        "the volume `cache` into a claim that holds it."
    )
    namespace = f"pdops-{spec.name}"
    secret = (
        f"python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > router_admin_token\n"
        f"kubectl -n {namespace} create secret generic pdops-router-admin --from-file=router_admin_token\n"
        if spec.router is not None
        else ""
    )
    pools = "`prefill`, `decode` and `store`" if spec.store is not None else "`prefill` and `decode`"
    label = "" if spec.router is not None else ", set a pod's label `pdops.dev/routed`, which the Services ask for"
    token = " and the secret `pdops-router-admin` (at `/run/secrets`)" if spec.router is not None else ""
    return f"""\
# {spec.name}: {_shape(spec)} on Kubernetes

Not run on a cluster yet: the tree is checked by `kubectl kustomize`, every core object against the published API schema,
rules by `promtool`, and the readiness and drain program against small servers.

## Start

Build the images below `images/` (put pdops' wheel beside the Dockerfile), push them, copy `overlays/example`, set its registry, then:

```sh
kubectl create namespace {namespace}
{secret}# for a model that needs it: kubectl -n {namespace} create secret generic hf-token --from-file=hf_token
kubectl apply -k overlays/example           # overlays/rdma: with RDMA devices
kubectl -n {namespace} get pods -w
```

The cluster needs the Prometheus operator (PodMonitor, PrometheusRule) and NVIDIA's device plugin; `kubectl` 1.21 or newer.
{model}

## Why it is built so

- Engines are StatefulSets. The router, the inventory and the alerts know a worker as `prefill-0`; that name must outlive
  the pod. All start at once, and are replaced one at a time. Their KV engine id is not set: each start makes a new one,
  because a peer cannot use what it knew of a dead engine for its successor.
- After changing the number of replicas render again: the router's list of workers is part of its command.
- Ready means: serves the model, shows its request metrics, takes handshakes; {parts.needed_in_a_row(Role.PREFILL)} times in a row. A
  start may take {budget_s("prefill")} s. Alive means only: answers at all; a slow engine is not killed.
- Order: {"engines wait for the store; " if spec.store else ""}decode waits for a ready prefill worker, the router for one ready worker of each role.
  What manifests cannot express: preflight, a transfer through every pair, one request through the router, the ramp. Run
  `pdops preflight` and `pdops canary` once it is up.
- Ending: an engine takes itself out of the router and waits until nothing runs in it. Prefill waits {idle_s} s for that and stays
  {stay_s} s more (1.5 x the KV lease of {spec.lease_s} s), because decode may still pull; it has {idle_s + stay_s + SHUTDOWN_S} s in all. Decode waits until nothing runs,
  {decode_s} s at the most, and has {decode_s + SHUTDOWN_S} s. When it starts again it puts itself back into the router. Deleting everything at once ends
  router, decode and prefill together, each within its own limits: decode needs prefill for {stay_s} s only. To keep the order, scale
  `router`, then `prefill`, then `decode` to zero.
- The engines hold the router's admin token for that (a file, and optional: take its source out of their volume `secrets` in
  your overlay and they say that they could not tell the router, and go on). An engine that starts lifts a cordon of its own.
- The router has one replica that is replaced, not doubled, and {GENERATION_S} s for the answers in it.
- Disruption budgets: one worker of a pool at a time; with one replica none, so a drain of its node waits for you.
- Network: nothing reaches these pods but by name; engines talk to each other on any port, because KV takes any. Metrics and
  side channel stay inside the namespace; the example lets Prometheus in from `{settings.monitoring_namespace}`. Its pods need the label
  `app.kubernetes.io/name: prometheus`, and pods from which you run pdops the labels of the deployment with
  `app.kubernetes.io/component: tools`.
- Containers run as user 1000 with no right at all and a read-only root. RDMA needs one right, IPC_LOCK, and a namespace that allows it.
- The account `pdops-reader` may look at pods of this namespace, nothing else; what serves has no account token.
- The account `pdops-operator` may do what `pdops runbook` does here and nothing else: read pools, budgets, quotas and autoscalers, set
  the size of {pools}, delete single pods{label}, and hold the lease `pdops-operator`. Nothing runs as it. Run pdops as it,
  in a pod with the label above, the ConfigMap `pdops-files`{token}, or with a kubeconfig of
  `kubectl create token pdops-operator`. Pods deleted by it end as above, drained. A worker that was added is in no
  inventory yet: add it, or render again.
- Memory is asked for and not limited, since pinned pages count; adjust the sizes in your overlay.
{_exporter(settings, "kubernetes")}"""


def _shape(spec: DeploymentSpec) -> str:
    tp = f", tensor parallel {spec.tensor_parallel_size}" if spec.tensor_parallel_size > 1 else ""
    store = ", KV store" if spec.store is not None else ""
    return f"{len(spec.prefills())} prefill and {len(spec.decodes())} decode of {spec.served_model}{tp}{store}"


def _address(spec: DeploymentSpec) -> str:
    return "The router is on 127.0.0.1:8080. " if spec.router is not None else ""


def _stops(spec: DeploymentSpec, prefills: list[str], decodes: list[str]) -> str:
    first = f"docker compose stop {spec.router.id}\n" if spec.router is not None else ""
    return f"{first}docker compose stop {' '.join(prefills)}\ndocker compose stop {' '.join(decodes)}\n"


def _exporter(settings: Settings, kind: str) -> str:
    if settings.exporter:
        return f"- The exporter's container runs `pdops exporter`, from the wheel you build with. {_DASHBOARDS[kind]}\n"
    return "- The exporter (`pdops exporter`) is not part of this rendering, so alerts are few and ask engines alone.\n"
