"""Whatever error string somebody pastes is found, the line that says most first."""

from __future__ import annotations

import pytest

from pdops.catalog.line_search import find, near, search

PASTED = [
    ("NIXL compatibility hash mismatch. Local: 3f, remote: 9a", "nixl-compat-hash"),
    ("Failed to decode NixlHandshakePayload", "nixl-handshake-payload"),
    ("Remote NIXL agent engine ID mismatch. Expected a, received b", "nixl-wrong-engine"),
    ("zmq.error.Again: Resource temporarily unavailable", "side-channel-timeout"),
    ("NIXL transfer failure: handshake_setup_failed", "nixl-handshake-setup-failed"),
    ("NIXL transfer failure: handshake_failed", "nixl-handshake-failed"),
    ("NIXL transfer failure: transfer_setup_failed", "nixl-transfer-setup-failed"),
    ("NIXL transfer failure: transfer_failed", "nixl-transfer-failed"),
    ("NIXL transfer failure: transfer_exception", "nixl-transfer-exception"),
    ("NIXL transfer failure: notification_failed", "nixl-notification-failed"),
    ("P worker blocks will be freed after timeout", "nixl-freed-after-timeout"),
    ("Releasing expired KV blocks for request cmpl-1", "nixl-lease-expired"),
    ("Potentially invalid KV blocks for unrecognized request", "nixl-read-after-expiry"),
    ("Declining expired remote read for cmpl-1", "nixl-declined-late-read"),
    ("Remote engine at 10.0.0.1:5600 changed from a to b", "nixl-remote-engine-changed"),
    ("request x is still in WAITING_FOR_REMOTE_KVS state", "waiting-for-remote-kvs"),
    ("Heterogeneous TP expects same kv_cache_layout", "kv-layout-differs"),
    ("NIXL_ERR_REMOTE_DISCONNECT", "nixl-remote-disconnect"),
    ("NIXL_ERR_BACKEND", "nixl-backend-error"),
    ("NIXL_ERR_NOT_FOUND", "nixl-not-found"),
    ("metadata for remote agent 'x' not found", "nixl-metadata-gone"),
    ("loadRemoteMD", "nixl-load-remote-md"),
    ("mlx5dv_devx_obj_modify(opcode=0x503) failed", "ucx-dead-queue-pair"),
    ("Endpoint timeout (status -80)", "ucx-endpoint-timeout"),
    ("transports 'cuda_ipc','cuda_copy' are not available", "ucx-without-cuda"),
    ("cuda-ipc get zcopy disabled as no nvlinks detected", "ucx-no-nvlink"),
    ("invalid device context", "ucx-invalid-context"),
    ("ibv_reg_mr(address=0x7f, length=4096) failed: Bad address", "ibv-reg-bad-address"),
    ("Setting UCX_RCACHE_MAX_UNRELEASED to '1024'", "ucx-rcache-bounded"),
    ("Failed to register memory 0x7f: Bad address [14]", "mooncake-reg-bad-address"),
    ("Failed to register memory 0x7f: Cannot allocate memory [12]", "mooncake-reg-no-memory"),
    ("Failed to register memory 0x7f: Input/output error [5]", "mooncake-reg-io-error"),
    ("Out of mr size", "kernel-mr-size"),
    ("Failed to register memory 0x7f: Resource temporarily unavailable [11]", "mooncake-reg-again"),
    ("CREATE_MKEY failed", "kernel-mkey-failed"),
    ("Failed to register memory 0x7f: Invalid argument [22]", "mooncake-reg-invalid"),
    ("Failed to modify QP to RTR, check mtu, gid, peer lid", "mooncake-qp-rtr"),
    ("Failed to create QP: Cannot allocate memory", "mooncake-qp-create"),
    ("local protection error", "rdma-local-protection"),
    ("work request flushed error", "rdma-flushed"),
    ("connect: Cannot assign requested address", "tcp-no-local-port"),
    ("KVTransferError(bootstrap_room=1)", "sglang-transfer-error"),
    ("Aborted by AbortReq", "sglang-abort"),
    ("Request 1 timed out after 300.0s in KVPoll.Bootstrapping", "sglang-bootstrapping"),
    ("Request 1 timed out after 300.0s in KVPoll.WaitingForInput", "sglang-waiting-for-input"),
    ("Failed to get kvcache from prefill instance, it might be dead", "sglang-prefill-dead"),
    ("Decode instance could be dead, remote mooncake session x is not alive", "sglang-session-dead"),
    ("Failed due to an unknown reason from another rank", "sglang-other-rank"),
    ("Page size mismatch: decode server has page_size=1", "sglang-page-size"),
    ("Requested address not found", "mooncake-address-not-found"),
    ("No available prefill workers (all circuits open or unhealthy)", "router-no-prefill"),
    ("Decode out of memory happened", "sglang-decode-oom"),
    ("DeepEP error: timeout (dispatch CPU)", "deepep-timeout"),
    ("Couldn't find the requested block in the reuse tree", "trtllm-block-gone"),
    ("bufferCoverTargetNum:0 < targetNum:1", "trtllm-buffer"),
    ("Timed out waiting for context KV cache transfer after 60000 ms", "trtllm-context-timeout"),
    ("Failed to allocate memory object, retrying...", "lmcache-buffer-full"),
    ("LMCache hit tokens: 0, need to load: 0", "lmcache-no-hit"),
    ("SEGMENT_NOT_FOUND (-101)", "store-segment-not-found"),
    ("NO_AVAILABLE_HANDLE (-200)", "store-full"),
    ("OBJECT_NOT_FOUND (-704)", "store-object-not-found"),
    ("REPLICA_IS_NOT_READY (-703)", "store-replica-not-ready"),
    ("LEASE_EXPIRED (-707)", "store-lease-expired"),
    ("CHECKSUM_MISMATCH (-801)", "store-checksum"),
    ("keep alive channel closed", "store-keepalive"),
    ("status: 103900", "ascend-transfer"),
    ("status: 103902", "ascend-connect"),
    ("HcclBatchGet", "ascend-batch-get"),
    ("Metrics contain None or NaN values (no active requests)", "planner-nan"),
]


@pytest.mark.parametrize(("text", "line_id"), PASTED, ids=[line_id for _, line_id in PASTED])
def test_every_published_error_string_is_found_first(text: str, line_id: str) -> None:
    first = search(text)[0]
    assert (first.spec.id, first.how, first.times) == (line_id, "line", 1)
    assert first.spec.meaning
    assert first.spec.first_check
    assert first.spec.seen_in


def test_of_a_text_of_many_lines_causes_come_before_consequences_and_repeats_are_counted() -> None:
    text = "work request flushed error\n" * 3 + "x\nFailed to modify QP to RTR\n"
    assert [(f.spec.id, f.times) for f in search(text)] == [("mooncake-qp-rtr", 1), ("rdma-flushed", 3)]


@pytest.mark.parametrize(
    ("piece", "line_id"),
    [("LEASE_EXPIRED", "store-lease-expired"), ("remote_disconnect", "nixl-remote-disconnect")],
)
def test_a_piece_of_a_known_line_finds_it(piece: str, line_id: str) -> None:
    assert [(f.spec.id, f.how) for f in search(piece)] == [(line_id, "piece")]


@pytest.mark.parametrize("text", ["", " ", "err", "the weather is fine", "\n\n"])
def test_what_is_no_known_line_finds_nothing(text: str) -> None:
    assert search(text) == ()


def test_near_ones_are_offered_for_a_mistyped_text_and_none_for_another() -> None:
    assert near("NIXL_ERR_REMOTE_DISCONECT")[0] == "log/nixl-remote-disconnect"
    assert near("zzzz qqqq") == ()
    assert near("") == ()


def test_a_line_is_found_by_id_with_and_without_prefix() -> None:
    assert find("log/store-full") is find("store-full") is not None
    assert find("log/none") is None
