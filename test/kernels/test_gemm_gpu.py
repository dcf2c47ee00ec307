# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The quantised products on a GPU: real shapes, ragged ones, graphs, no allocation, no waiting."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from cosmos_lite_ros.errors import EnvironmentLacksError
from cosmos_lite_ros.kernels.probe import probe
from cosmos_lite_ros.kernels.selftest import Plan, run_selftest
from cosmos_lite_ros.kernels.selftest_products import check_product, public_product
from cosmos_lite_ros.kernels.shapes import RELEASED
from cosmos_lite_ros.kernels.tables import KERNELS, active_table, built_in
from cosmos_lite_ros.kernels.trial import arguments
from cosmos_lite_ros.kernels.tune import ROLES_OF

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
RAGGED = [(1, 16, 64), (33, 96, 200), (130, 136, 1000), (257, 48, 384)]


def device_for(kernel: str) -> torch.device:
    if torch.cuda.get_device_capability() < KERNELS[kernel]:
        pytest.skip(f"no arithmetic for {kernel}")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.mark.parametrize("family", list(RELEASED))
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_real_shapes_are_exact_to_their_roundings(kernel: str, family: str) -> None:
    device = device_for(kernel)
    for role in ROLES_OF[kernel]:
        for rows in (33, 66, 3093, 6186):
            check = check_product(kernel, (rows, *RELEASED[family].matrix(role)), device)
            assert check.passed, check


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("shape", RAGGED, ids=str)
def test_ragged_shapes_are_exact_to_their_roundings(
    kernel: str, shape: tuple[int, int, int]
) -> None:
    check = check_product(kernel, shape, device_for(kernel))
    assert check.passed, check


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_a_call_neither_allocates_nor_waits_and_is_captured(kernel: str) -> None:
    device = device_for(kernel)
    given = arguments(kernel, 3093, 2048, 2048, device, None)
    run = public_product(kernel)
    run(*given)  # compiles
    first = given[-1].clone()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    run(*given)
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(*given)
    given[-1].fill_(torch.nan)
    graph.replay()
    assert torch.equal(given[-1], first)


@pytest.mark.parametrize("scheme", ["bf16", "fp8", "fp8_fast", "int8", "int8wo", "int4wo"])
def test_self_test_passes(scheme: str) -> None:
    if scheme.startswith("fp8"):
        device_for("gemm_fp8")
    device = torch.device("cuda", torch.cuda.current_device())
    plan = Plan(RELEASED["edge"], scheme, (66, 6186), 3093, attention="int8qk")
    assert [c for c in run_selftest(plan, device) if not c.passed] == []


def test_two_probes_agree() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    first, second = probe(device), probe(device)
    assert first.fp8.name == second.fp8.name
    assert first.attention.name == second.attention.name


def test_a_gpu_without_float8_is_refused() -> None:
    if torch.cuda.get_device_capability() >= (8, 9):
        pytest.skip("this one has float8")
    given = arguments("gemm_fp8", 33, 64, 64, torch.device("cpu"), None)
    with pytest.raises(EnvironmentLacksError, match="needs sm_89"):
        public_product("gemm_fp8")(*(t.cuda() for t in given))


def test_the_table_in_effect_is_of_this_architecture() -> None:
    found = active_table(torch.device("cuda", torch.cuda.current_device()))
    assert found.architecture in built_in()
