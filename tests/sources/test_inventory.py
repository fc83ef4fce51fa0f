"""The inventory file: what it becomes, and what is said about a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.errors import InventoryError
from pdops.model.cluster import Endpoint, Role, Secret
from pdops.sources.inventory import from_targets, load_inventory, parse_inventory

GOOD = """\
version: 1
cluster: prod-eu
model: {name: qwen3-32b, kv_bytes_per_token: 262144}
slo: {ttft_s: 1.0, itl_s: 0.05, percentile: 0.95, attainment: 0.95}
workers:
  - {id: prefill-0, role: prefill, pool: long, url: "http://10.0.3.11:8000", engine: vllm, node: n1, zone: az1}
  - {id: decode-0, role: decode, url: "http://10.0.3.12:8000/", engine: vllm}
  - {id: router-0, role: router, url: "http://10.0.3.2:8080", engine: pdops_router}
  - {id: store-0, role: kvstore, url: "http://10.0.3.9:50051", metrics: "http://10.0.3.9:9003/metrics", engine: mooncake}
discovery: {kubernetes: {namespace: llm, roles: {prefill: "llm-d.ai/role=prefill", decode: "llm-d.ai/role=decode"}}}
prometheus: {url: "http://prometheus:9090", selector: '{cluster="prod-eu"}', role_label: kind}
links: {baseline_bytes_per_s: 45e9}
"""
ONE = "version: 1\ncluster: c\nworkers:\n  - {id: decode-0, role: decode, url: 'http://h:1'%s}\n"


def test_every_part_of_the_contract_arrives() -> None:
    inventory = parse_inventory(GOOD)
    cluster = inventory.cluster
    assert (cluster.name, cluster.model, cluster.kv_bytes_per_token) == ("prod-eu", "qwen3-32b", 262144)
    assert (cluster.slo.ttft_s, cluster.slo.itl_s, cluster.link_bytes_per_s) == (1.0, 0.05, 4.5e10)
    assert [(w.id, w.role, w.pool) for w in cluster.workers] == [
        ("prefill-0", Role.PREFILL, "long"),
        ("decode-0", Role.DECODE, "decode"),
        ("router-0", Role.ROUTER, "router"),
        ("store-0", Role.KVSTORE, "kvstore"),
    ]
    prefill, decode, _, store = cluster.workers
    assert (prefill.node, prefill.zone) == ("n1", "az1")
    assert (decode.url, decode.endpoints) == (
        "http://10.0.3.12:8000",
        (Endpoint("http://10.0.3.12:8000/metrics", "vllm"),),
    )
    assert store.endpoints == (Endpoint("http://10.0.3.9:9003/metrics", "mooncake"),)
    assert inventory.prometheus is not None
    assert (inventory.prometheus.selector, inventory.prometheus.role_label) == ('{cluster="prod-eu"}', "kind")
    assert inventory.kubernetes is not None
    assert inventory.kubernetes.roles[Role.PREFILL] == "llm-d.ai/role=prefill"


def test_the_page_comes_from_the_catalog_unless_the_address_names_it() -> None:
    text = ONE % ", engine: trtllm"
    assert parse_inventory(text).cluster.workers[0].endpoints[0].url == "http://h:1/prometheus/metrics"
    worker = from_targets(["prefill=http://h:1/metrics"]).cluster.workers[0]
    assert (worker.url, worker.endpoints) == ("http://h:1", (Endpoint("http://h:1/metrics"),))


def test_several_pages_make_one_worker() -> None:
    pages = ", metrics: [{url: 'http://h:1/metrics', engine: vllm}, {url: 'http://h:9400/metrics'}]"
    worker = parse_inventory(ONE % pages).cluster.workers[0]
    assert worker.endpoints == (Endpoint("http://h:1/metrics", "vllm"), Endpoint("http://h:9400/metrics"))


def test_references_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pdops.yaml"
    more = """, bearer_token_file: token, tls: {ca: /etc/ca.pem}, logs: [{file: a.log}, {journald: vllm.service}],
      admin: {url: 'http://h:2', basic_auth: {username: u, password_file: pw}}"""
    file.write_text(ONE % more)
    inventory = load_inventory(file)
    worker = inventory.cluster.workers[0]
    assert worker.secret == Secret(bearer_token_file=str(tmp_path / "token"), ca="/etc/ca.pem")
    assert worker.logs == ({"file": str(tmp_path / "a.log")}, {"journald": "vllm.service"})
    assert inventory.admin["decode-0"].secret.password_file == str(tmp_path / "pw")


def test_logs_of_pods_and_of_loki_are_named_in_parts_or_in_short(tmp_path: Path) -> None:
    file = tmp_path / "pdops.yaml"
    more = """, logs: [{kubernetes: llm/decode-0/vllm}, {kubernetes: {pod: decode-0, context: prod}},
      {loki: {url: 'http://loki:3100/', query: '{pod="decode-0"}', tenant: llm, bearer_token_file: token}}]"""
    file.write_text(ONE % more)
    assert load_inventory(file).cluster.workers[0].logs == (
        {"kubernetes": "decode-0", "namespace": "llm", "container": "vllm"},
        {"kubernetes": "decode-0", "context": "prod"},
        {
            "loki": "http://loki:3100",
            "query": '{pod="decode-0"}',
            "tenant": "llm",
            "bearer_token_file": str(tmp_path / "token"),
        },
    )


def test_a_worker_with_logs_can_be_a_key() -> None:
    worker = parse_inventory(ONE % ", logs: [{kubernetes: llm/decode-0}]").cluster.workers[0]
    assert {worker: 1}[worker] == 1


@pytest.mark.parametrize(
    ("logs", "why"),
    [
        ("{loki: 'http://loki:3100'}", "loki needs url and query"),
        ("{loki: {url: 'http://loki:3100'}}", "key 'query' is missing"),
        ("{loki: {url: 'http://loki:3100', query: rate}}", "expected a log query, got 'rate'"),
        ("{loki: {url: 'http://u:p@loki:3100', query: '{}'}}", "credentials in a URL are not accepted"),
        ("{kubernetes: decode-0}", "expected NAMESPACE/POD or NAMESPACE/POD/CONTAINER, got 'decode-0'"),
        ("{kubernetes: llm/--all}", "'--all' is not a name"),
        ("{kubernetes: {pod: '-x'}}", "'-x' is not a name"),
        ("{kubernetes: {pod: a, color: b}}", "unknown key 'color'"),
        ("{journald: --flush}", "'--flush' is not a name"),
        ("{journald: a b}", "'a b' is not a name"),
    ],
)
def test_a_log_that_cannot_be_read_so_is_refused(logs: str, why: str) -> None:
    with pytest.raises(InventoryError) as caught:
        parse_inventory(ONE % f", logs: [{logs}]")
    assert why in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["45e9", "4.5e10", "4.5e+10", "45000000000", '"45e9"'])
def test_numbers_with_an_unsigned_exponent(text: str) -> None:
    assert parse_inventory(GOOD.replace("45e9", text)).cluster.link_bytes_per_s == 4.5e10


def test_words_that_older_yaml_turns_into_something_else() -> None:
    worker = parse_inventory(ONE % ", zone: no, node: 2026-01-02, version: 12.10").cluster.workers[0]
    assert (worker.zone, worker.node, worker.version) == ("no", "2026-01-02", "12.10")


BAD = [
    ("role: decode,", "rol: decode,", 7, "unknown key 'rol' in workers[1] (and 1 more)", "did you mean 'role'?"),
    (
        "role: decode,",
        "role: decod,",
        7,
        "workers[1].role: expected one of prefill, decode, router, kvstore, colocated; got 'decod'",
        "did you mean 'decode'?",
    ),
    ("role: decode,", "", 7, "key 'role' is missing in workers[1]", "add it"),
    ("itl_s: 0.05", "itls: 0.05", 4, "unknown key 'itls' in slo", "did you mean 'itl_s'?"),
    ("links:", "likns:", 12, "unknown key 'likns'", "did you mean 'links'?"),
    (
        "node: n1",
        "bearer_token: hunter2",
        6,
        "unknown key 'bearer_token' in workers[0]",
        "did you mean 'bearer_token_file'?",
    ),
    ("engine: vllm}", "engine: vlm}", 7, "workers[1].engine: unknown engine 'vlm'", "did you mean 'vllm'?"),
    ("version: 1", "version: 2", 1, "version: expected 1; got 2", "choose from: 1"),
    (
        "id: decode-0",
        "id: prefill-0",
        7,
        "id 'prefill-0' is given twice, first on line 6",
        "give every worker its own id",
    ),
    (
        "10.0.3.12:8000/",
        "10.0.3.11:8000",
        7,
        "url 'http://10.0.3.11:8000' is given twice, first on line 6",
        "give every worker its own url",
    ),
    (
        "id: decode-0",
        "id: client",
        7,
        "workers[1].id: 'client' is reserved for signals of that name",
        "call it client-0",
    ),
    (
        "id: decode-0",
        "id: a>b",
        7,
        "workers[1].id: 'a>b' is not an id",
        "use 1 to 63 letters, digits, dots, dashes or underscores",
    ),
    (
        "http://10.0.3.12:8000/",
        "ftp://x",
        7,
        "workers[1].url: not an http or https URL: 'ftp://x'",
        "write it as http://host:port",
    ),
    (
        "http://10.0.3.12:8000/",
        "http://:8000",
        7,
        "workers[1].url: not a usable URL: 'http://:8000'",
        "write it as http://host:port",
    ),
    (
        "http://10.0.3.12:8000/",
        "http://h:800000",
        7,
        "workers[1].url: not a URL: port out of range 0-65535",
        "write it as http://host:port",
    ),
    (
        "http://10.0.3.12:8000/",
        "http://u:hunter2@h",
        7,
        "workers[1].url: credentials in a URL are not accepted",
        "use bearer_token_file or basic_auth with password_file",
    ),
    (
        "ttft_s: 1.0",
        "ttft_s: fast",
        4,
        "slo.ttft_s: expected a number, got 'fast'",
        "`pdops schema` prints the format",
    ),
    ("ttft_s: 1.0", "ttft_s: -1", 4, "slo.ttft_s: expected greater than 0, got -1", "`pdops schema` prints the format"),
    (
        "ttft_s: 1.0",
        "ttft_s: .nan",
        4,
        "slo.ttft_s: expected a finite number, got nan",
        "`pdops schema` prints the format",
    ),
    ("ttft_s: 1.0", "ttft_s: 1, ttft_s: 2", 4, "key 'ttft_s' is given twice, first on line 4", "keep one of them"),
    ("cluster: prod-eu", "cluster: true", 2, "cluster: expected text, got True", "put it in quotes"),
    ("cluster: prod-eu", "cluster: &a [*a]", 2, "alias *a is not accepted", "write the value out"),
    ("cluster: prod-eu", "<<: {a: b}", 2, "merge key '<<' is not accepted", "write the keys out"),
    (
        "cluster: prod-eu",
        "cluster: !!python/name:os.system x",
        2,
        "tag 'tag:yaml.org,2002:python/name:os.system' is not accepted",
        "write plain values",
    ),
    (
        "cluster: prod-eu",
        'cluster: "a\\eb"',
        2,
        "cluster: control characters are not accepted: 'a\\x1bb'",
        "remove them",
    ),
    (
        'decode: "llm',
        'deocde: "llm',
        10,
        "discovery.kubernetes.roles.deocde: expected one of prefill, decode, router, kvstore, colocated; got 'deocde'",
        "did you mean 'decode'?",
    ),
    (
        '{prefill: "llm-d.ai/role=prefill", decode: "llm-d.ai/role=decode"}',
        "{}",
        10,
        "discovery.kubernetes.roles: expected at least one entry, got none",
        "`pdops schema` prints the format",
    ),
    (
        "node: n1",
        "logs: [{file: a, loki: b}]",
        6,
        "workers[0].logs[0]: expected one of file, journald, kubernetes, loki; got file and loki",
        "make one entry of each",
    ),
    (
        "node: n1",
        "bearer_token_file: t, basic_auth: {username: u, password_file: p}",
        6,
        "workers[0]: both bearer_token_file and basic_auth are given",
        "keep one of them",
    ),
    (
        "role_label: kind",
        "role_label: a-b",
        11,
        "prometheus.role_label: 'a-b' is not a label name",
        "use letters, digits and underscores",
    ),
    (
        """'{cluster="prod-eu"}'""",
        "cluster",
        11,
        "prometheus.selector: expected a selector in braces, got 'cluster'",
        """write it as '{cluster="prod"}'""",
    ),
]


@pytest.mark.parametrize(("old", "new", "line", "why", "hint"), BAD, ids=[f"{b[1][:30]}" for b in BAD])
def test_a_bad_inventory_says_where_what_and_what_to_do(old: str, new: str, line: int, why: str, hint: str) -> None:
    assert old in GOOD
    with pytest.raises(InventoryError) as caught:
        parse_inventory(GOOD.replace(old, new, 1))
    assert str(caught.value) == f"inventory cannot be used: pdops.yaml:{line}: {why}"
    assert caught.value.hint == hint
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "the file is empty"),
        ("# nothing\n", 1, "the file is empty"),
        ("- 1\n", 1, "expected keys and values, got a list"),
        ("a: 1\n---\nb: 1\n", 2, "a second document begins here"),
        ("? [1]\n: 2\n", 1, "a key is not plain text"),
        ("version: 1\ncluster: c\n", 1, "there are no workers, no discovery and no prometheus"),
        ("version: 1\ncluster: c\nworkers: []\n", 3, "there are no workers, no discovery and no prometheus"),
        (
            "version: 1\ncluster: c\nworkers:\n - {id: a, role: decode}\n",
            4,
            "worker 'a' has neither url nor metrics",
        ),
        ("{a: " * 40, 1, "nested deeper than 32 levels"),
    ],
)
def test_a_file_that_is_no_inventory(text: str, line: int, why: str) -> None:
    with pytest.raises(InventoryError) as caught:
        parse_inventory(text)
    assert str(caught.value) == f"inventory cannot be used: pdops.yaml:{line}: {why}"
    assert caught.value.hint


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    with pytest.raises(InventoryError, match="no such file"):
        load_inventory(file)
    with pytest.raises(InventoryError, match="directory"):
        load_inventory(tmp_path)
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InventoryError, match=r"x\.yaml:2: it is not UTF-8 text"):
        load_inventory(file)
    file.write_bytes(b"#" * ((4 << 20) + 1))
    with pytest.raises(InventoryError, match="larger than 4 MiB"):
        load_inventory(file)


def test_targets_are_numbered_by_role() -> None:
    cluster = from_targets(["prefill=http://a:1", "decode=http://b:2", "prefill=https://c"]).cluster
    assert [(w.id, w.pool, w.engine) for w in cluster.workers] == [
        ("prefill-0", "prefill", None),
        ("decode-0", "decode", None),
        ("prefill-1", "prefill", None),
    ]


@pytest.mark.parametrize(
    ("targets", "message", "hint"),
    [
        ([], "--target: no target is given", "add --target ROLE=URL"),
        (["http://a:1"], "--target 'http://a:1': expected ROLE=URL", "such as prefill=http://10.0.3.11:8000"),
        (["prefil=http://a:1"], "--target 'prefil=http://a:1': unknown role 'prefil'", "did you mean 'prefill'?"),
        (
            ["prefill=a:1"],
            "--target 'prefill=a:1': not an http or https URL: 'a:1'",
            "write it as http://host:port",
        ),
        (
            ["decode=http://u:hunter2@a"],
            "--target decode=…: credentials in a URL are not accepted",
            "use bearer_token_file or basic_auth with password_file",
        ),
        (
            ["decode=http://a:1", "prefill=http://a:1/metrics"],
            "--target 'prefill=http://a:1/metrics': decode-0 has the same address",
            "give each worker once",
        ),
    ],
)
def test_bad_targets(targets: list[str], message: str, hint: str) -> None:
    with pytest.raises(InventoryError) as caught:
        from_targets(targets)
    assert (str(caught.value), caught.value.hint) == (f"inventory cannot be used: {message}", hint)


def _problem(text: str) -> InventoryError | None:
    try:
        parse_inventory(text)
    except InventoryError as error:
        return error
    return None


@given(st.text(max_size=200))
def test_no_text_makes_anything_but_an_inventory_or_an_error(text: str) -> None:
    problem = _problem(text)
    assert problem is None or problem.hint


@given(st.integers(0, len(GOOD) - 1), st.sampled_from(["", "\n", "\t", "{", "'", "*a", "&a ", "\x00", "- ", "?"]))
def test_no_damage_makes_anything_but_an_inventory_or_an_error(at: int, put: str) -> None:
    problem = _problem(GOOD[:at] + put + GOOD[at + 1 :])
    assert problem is None or (problem.hint and problem.where.startswith("pdops.yaml:"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://h:8000", "http://H:8000"),
        ("http://h", "http://h:80"),
        ("https://h.", "https://h:443"),
        ("http://localhost:1", "http://127.0.0.1:1"),
        ("http://[::1]:1", "http://localhost:1"),
        ("http://[::ffff:10.0.0.1]:1", "http://10.0.0.1:1"),
        ("http://h:1", "http://h:1/metrics"),
    ],
)
def test_one_worker_under_two_spellings_of_its_address_is_warned_of(one: str, other: str) -> None:
    entries = f"- {{id: a, role: decode, url: '{one}'}}\n- {{id: b, role: decode, url: '{other}'}}"
    try:
        found = parse_inventory(f"version: 1\ncluster: c\nworkers:\n{entries}").warnings
    except InventoryError as error:
        found = (str(error),)
    assert len(found) == 1
    assert ("b (" in found[0] and "a (" in found[0]) or "given twice" in found[0]
    if other != f"{one}/metrics":
        (said,) = from_targets([f"decode={one}", f"decode={other}"]).warnings
        assert "decode-1" in said


def test_workers_at_addresses_of_their_own_are_not_warned_of() -> None:
    urls = (
        "http://h:1",
        "http://h:2",
        "http://g:1",
        "https://h:1",
        "http://127.0.0.2:1",
        "http://127.0.0.1:1",
        "http://h:1/x",
    )
    assert from_targets([f"decode={url}" for url in urls]).warnings == ()


def test_two_pages_of_one_worker_are_no_second_worker() -> None:
    text = "version: 1\ncluster: c\nworkers: [{id: a, role: decode, url: 'http://h:1', metrics: [{url: 'http://h:1/metrics'}, {url: 'http://H:1/metrics'}]}]"
    assert parse_inventory(text).warnings == ()


def test_a_page_of_the_host_that_two_workers_share_is_no_worker_twice() -> None:
    entries = "\n".join(
        f"- {{id: {name}, role: decode, url: 'http://n1:{port}', metrics: [{{url: 'http://n1:{port}/metrics'}}, "
        "{url: 'http://n1:9100/metrics', engine: node}, {url: 'http://n1:9400/metrics', engine: dcgm}, "
        "{url: 'http://n1:9999/metrics'}]}"
        for name, port in (("a", 1), ("b", 2))
    )
    assert parse_inventory(f"version: 1\ncluster: c\nworkers:\n{entries}").warnings == ()
    (said,) = parse_inventory(f"version: 1\ncluster: c\nworkers:\n{entries.replace('n1:2', 'N1:1')}").warnings
    assert "b (http://N1:1)" in said
