"""Namespaces of a deployment on the real kernel: what is broken is broken, what is not stays, nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pdops.errors import DeploymentError, UsageError
from pdops.reference import iproute
from pdops.reference.network import Network
from pdops.reference.sockets import listeners
from tests.real import tcp_copy
from tests.reference.test_sockets import heard

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Network.available()[0], reason=Network.available()[1]),
]
NAME = f"test-{os.getpid()}"
P, D, S = "prefill-0", "decode-0", "store-0"
MIB = 1 << 20


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(NAME, [P, D, S])
    made.up()
    yield made
    made.down()
    assert made.leftovers() == ()


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "network" in request.fixturenames:
        network: Network = request.getfixturevalue("network")
        for worker in network.workers:
            network.clear(worker)


def inside(network: Network, worker: str, code: str) -> subprocess.CompletedProcess[str]:
    command = [*network.enter(worker), sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def answers_on_ctl(network: Network, worker: str) -> bool:
    """Whether the host gets a byte from a listener in the worker's namespace over the control link."""
    code = f"""
import socket
s = socket.create_server(({network.address(worker)!r}, 0)); s.settimeout(5)
print(s.getsockname()[1], flush=True)
s.accept()[0].sendall(b'x')
"""
    command = [*network.enter(worker), sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        read = f"import socket; print(socket.create_connection(({network.address(worker)!r}, {port}), 3).recv(1))"
        client = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=20, check=False)
        server.kill()
    return client.stdout.strip() == "b'x'"


def test_addresses_are_on_the_devices_they_belong_to(network: Network) -> None:
    assert network.exists()
    addresses = {network.address(w) for w in network.workers} | {network.kv_address(w) for w in network.workers}
    assert len(addresses) == 6
    shown = iproute.query(["ip", "-n", network.namespace(P), "-j", "addr", "show"])
    assert {entry["ifname"] for entry in shown} == {"lo", "ctl", "kv"}
    assert network.host_address().rpartition(".")[0] == network.address(P).rpartition(".")[0]


def test_up_twice_changes_nothing(network: Network) -> None:
    before = {w: (network.address(w), network.kv_address(w)) for w in network.workers}
    network.up()
    assert {w: (network.address(w), network.kv_address(w)) for w in network.workers} == before


def test_kv_goes_through_the_fabric_and_is_counted_there(network: Network) -> None:
    before = network.counters(D)
    copied = tcp_copy.measure(network, P, D, 8 * MIB)
    after = network.counters(D)
    assert copied.bytes > 0
    assert 8 * MIB < after.rx_bytes - before.rx_bytes < 10 * MIB
    assert after.tx_bytes - before.tx_bytes < MIB


def test_the_host_does_not_reach_the_kv_link(network: Network) -> None:
    routes = iproute.query(["ip", "-4", "-j", "route", "show"])
    fabric = network.kv_address(P).rpartition(".")[0]
    assert not [route for route in routes if route["dst"].startswith(fabric)]


@pytest.mark.parametrize(("src", "dst"), [(P, D), (D, P)])
def test_slow_limits_both_directions_of_that_worker_only(network: Network, src: str, dst: str) -> None:
    network.slow(P, 20e6)
    assert network.faulty(P)
    assert not network.faulty(D)
    slow = tcp_copy.measure(network, src, dst, 4 * MIB).bits_per_s
    free = tcp_copy.measure(network, D, S, 4 * MIB).bits_per_s
    print(f"{src} > {dst} limited to 20 Mbit/s: {slow / 1e6:.2f}; D > store unlimited: {free / 1e6:.0f}")
    assert slow < 21e6
    assert free > slow
    network.clear(P)
    assert not network.faulty(P)
    after = tcp_copy.measure(network, src, dst, 4 * MIB).bits_per_s
    print(f"after clear: {after / 1e6:.0f} Mbit/s")
    assert after > 21e6


def test_cut_cuts_kv_while_control_still_answers(network: Network) -> None:
    network.cut(D)
    with pytest.raises(DeploymentError, match="no TCP copy"):
        tcp_copy.measure(network, P, D, 1000, timeout_s=2)
    assert network.counters(D).dropped_packets > 0
    assert answers_on_ctl(network, D)
    assert tcp_copy.measure(network, P, S, MIB).bytes > 0
    network.clear(D)
    assert tcp_copy.measure(network, P, D, MIB).bytes > 0


@pytest.mark.parametrize(("src", "dst"), [(P, D), (D, P)])
def test_loss_counts_wire_packets_in_each_direction(network: Network, src: str, dst: str) -> None:
    network.lossy(P, 2)
    size = 8 * MIB
    copied = tcp_copy.measure(network, src, dst, size, timeout_s=60)
    dropped = network.counters(P).dropped_packets
    packets = size / 1448
    print(f"{src} > {dst} at 2 %: dropped {dropped} of about {packets:.0f}, {copied.bits_per_s / 1e6:.0f} Mbit/s")
    # Both directions are hit, so acknowledgements count too; a packet of many segments would drop far fewer.
    assert packets * 0.01 < dropped < packets * 0.05


def test_slow_and_lossy_together_and_a_second_fault_replaces_the_first(network: Network) -> None:
    network.slow(D, 1e6)
    network.slow(D, 40e6)
    network.lossy(D, 50)
    network.lossy(D, 0.5)
    rate = tcp_copy.measure(network, P, D, 2 * MIB, timeout_s=30).bits_per_s
    print(f"40 Mbit/s and 0.5 %: {rate / 1e6:.2f}")
    assert rate < 42e6


@pytest.mark.parametrize("percent", [0, -1, 101, float("nan")])
def test_a_share_that_is_none_is_refused(network: Network, percent: float) -> None:
    with pytest.raises(UsageError):
        network.lossy(D, percent)
    assert not network.faulty(D)


def test_a_listener_in_a_namespace_is_found_from_the_host(network: Network) -> None:
    with heard(*network.enter(P)) as (pid, port):
        assert [(str(address), at) for address, at in listeners([pid])] == [("127.0.0.1", port)]


def test_unknown_worker_is_named_with_those_there_are(network: Network) -> None:
    with pytest.raises(UsageError) as error:
        network.cut("decode-7")
    assert D in error.value.hint


def test_two_deployments_whose_names_begin_alike_do_not_touch_each_other() -> None:
    one = Network(f"{NAME}-x", ["prefill-0", "decode-0"])
    other = Network(f"{NAME}-x-y", ["prefill-0", "decode-0"])
    try:
        one.up()
        other.up()
        assert one.address("prefill-0") != other.address("prefill-0")
        one.down()
        assert one.leftovers() == ()
        assert other.exists()
        assert tcp_copy.measure(other, "prefill-0", "decode-0", MIB).bytes > 0
    finally:
        one.down()
        other.down()
    assert other.leftovers() == ()


def test_a_namespace_of_another_deployment_is_not_taken() -> None:
    other = Network(f"{NAME}-a-b", ["c"])
    ours = Network(f"{NAME}-a", ["b-c"])
    assert other.namespace("c") == ours.namespace("b-c")
    try:
        other.up()
        with pytest.raises(DeploymentError, match="another deployment"):
            ours.up()
        assert other.exists()
        assert ours.leftovers() == ()
        ours.down()
        assert other.exists()
    finally:
        other.down()


def test_half_made_is_completed_and_a_worker_more_leaves_the_others_alone() -> None:
    two = Network(f"{NAME}-h", [P, D])
    three = Network(f"{NAME}-h", [P, D, "decode-1"])
    try:
        two.up()
        address = two.address(P)
        iproute.run(["ip", "-n", two.namespace(D), "link", "del", "dev", "kv"])
        assert not two.exists()
        three.up()
        assert three.exists()
        assert three.address(P) == address
        assert tcp_copy.measure(three, "decode-1", D, MIB).bytes > 0
    finally:
        # One that does not know of the third worker removes it all the same.
        two.down()
    assert three.leftovers() == ()
    two.down()


def test_down_takes_links_away_though_a_process_still_runs_inside() -> None:
    network = Network(f"{NAME}-p", [P])
    network.up()
    command = [*network.enter(P), sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert network.processes(P) == (process.pid,)
        network.down()
        assert network.leftovers() == ()
        network.up()
        network.down()
        process.communicate()
    assert network.leftovers() == ()


def test_not_up_says_so() -> None:
    network = Network(f"{NAME}-none", [P])
    assert not network.exists()
    with pytest.raises(DeploymentError, match="not up"):
        network.address(P)
    network.down()
