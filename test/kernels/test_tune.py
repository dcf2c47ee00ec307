# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""tune and bench kernels without a GPU: a clock and products of their own stand in for one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="measurements name it, and it has no wheel here")
import torch
from torch import Tensor
from typer.testing import CliRunner

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels import bench, tables, trial, tune
from cosmos_lite_ros.kernels.selftest_products import public_product
from cosmos_lite_ros.kernels.shapes import LayerShape
from cosmos_lite_ros.kernels.tables import KERNELS, GemmConfig, load_table, save_table

TINY = {"edge": LayerShape(64, 1, 2, 16, 128, gated=False, twice=False, layers=2)}
GPU = torch.device("cuda", 0)


def silent(text: str) -> None:
    assert text


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, GemmConfig | None]]:
    """A GPU whose products are the twins on the CPU; what was launched on it, with what."""
    calls: list[tuple[str, GemmConfig | None]] = []

    def launcher(kernel: str) -> Callable[..., None]:
        def run(*given: Tensor, config: GemmConfig | None = None) -> None:
            calls.append((kernel, config))
            if config is not None and config.num_stages == 3 and config.block_m == 128:
                raise RuntimeError("out of resource: shared memory")
            public_product(kernel)(*given)

        return run

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")
    monkeypatch.setattr(tables, "_IN_EFFECT", {})
    for module in (bench, tune):
        monkeypatch.setattr(module, "RELEASED", TINY)
        monkeypatch.setattr(module, "launcher", launcher)
        on_cpu = partial(_on_cpu, trial.random_weights)
        monkeypatch.setattr(module, "random_weights", on_cpu)
    monkeypatch.setattr(tune, "_POOL_BYTES", 30_000)
    return calls


def _on_cpu(draw: Callable[..., Tensor], kernel: str, count: int, _: torch.device) -> Tensor:
    return draw(kernel, count, torch.device("cpu"))


def test_tune_takes_the_fastest_that_can_be_launched(
    launched: list[tuple[str, GemmConfig | None]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def clock(work: Callable[[], None], calls: int, replays: int) -> float:
        work()
        config = launched[-1][1]
        assert config is not None
        # The fewer warps the faster, and then the last.
        return float(config.num_warps * 100 - len(launched) * 1e-6)

    monkeypatch.setattr(tune, "microseconds", clock)
    found = tune.tune(GPU, silent, kernels=["gemm_int8", "gemm_int4wo"])
    assert (found.architecture, found.measured_on[:5]) == ("sm_89", "A GPU")
    assert {e.kernel for e in found.entries} == {"gemm_int8", "gemm_int4wo"}
    assert len(found.entries) == (3 + 2) * 3
    for entry in found.entries:
        tried = tune.candidates(entry.kernel, entry.rows, "sm_89")
        possible = [c for c in tried if not (c.num_stages == 3 and c.block_m == 128)]
        fewest = min(c.num_warps for c in possible)
        assert entry.config.num_warps == fewest
        assert entry.microseconds == pytest.approx(fewest * 100, abs=0.1)
    path = tmp_path / "table.json"
    save_table(found, path)
    assert load_table(path).digest == found.digest


def test_tune_says_where_nothing_can_be_launched(
    launched: list[tuple[str, GemmConfig | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> float:
        raise RuntimeError("out of resource")

    monkeypatch.setattr(tune, "microseconds", fail)
    with pytest.raises(EnvironmentLacksError, match="no configuration of gemm_int8 runs here"):
        tune.tune(GPU, silent, kernels=["gemm_int8"])
    with pytest.raises(EnvironmentLacksError, match="found device cpu, expected a CUDA GPU"):
        tune.tune(torch.device("cpu"), silent)


def test_candidates_can_all_be_and_are_few() -> None:
    for architecture in ("sm_86", "sm_89", "sm_90", "sm_120"):
        for kernel in tune.supported(architecture):
            for rows in tune.ROWS:
                found = tune.candidates(kernel, rows, architecture)
                assert 2 <= len(found) == len(set(found)) <= 5
                for config in found:
                    tables.check_config(kernel, config)
    assert tune.supported("sm_86") == [k for k in KERNELS if "fp8" not in k]
    assert tune.supported("sm_89") == list(KERNELS)


def test_arguments_are_what_a_quantised_network_has() -> None:
    cpu = torch.device("cpu")
    for kernel in KERNELS:
        pool = trial.random_weights(kernel, 40_000, cpu)
        sets = trial.argument_sets(kernel, (5, 64, 256), pool, 7)
        # int4 weights are half as many bytes.
        assert len(sets) == (4 if kernel == "gemm_int4wo" else 2)
        weights = {bytes(s[trial._WEIGHT.get(kernel, 2)].view(torch.uint8).flatten()) for s in sets}
        assert len(weights) == len(sets)
        for given in sets:
            public_product(kernel)(*given)
            assert given[-1].isfinite().all()
    fast = trial.random_weights("gemm_fp8_fast", 1000, cpu).float()
    assert 20 < fast.abs().max() <= 28


def test_bench_times_everything_beside_bfloat16(
    launched: list[tuple[str, GemmConfig | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def clock(work: Callable[[], None], calls: int, replays: int) -> float:
        assert (calls, replays) in ((20, 3), (1, 3))
        before = len(launched)
        work()
        return 50.0 if len(launched) > before else 100.0

    def contenders(device: torch.device, *rest: Any) -> Any:
        return original(torch.device("cpu"), *rest)

    original = bench._contenders
    monkeypatch.setattr(bench, "microseconds", clock)
    monkeypatch.setattr(bench, "_contenders", contenders)
    report = bench.bench_kernels(GPU, silent, families=["edge"])
    assert report["table"]["source"] == "sm_89.json"
    assert [p["shape"] for p in report["products"]][:2] == [(3093, 64, 64), (6186, 64, 64)]
    by_role = {p["role"]: p["us"] for p in report["products"]}
    assert set(by_role["down"]) - set(by_role["out"]) == {"gemm_int8_blocked", "gemm_int4wo"}
    ours = {"gemm_fp8", "gemm_fp8_unpromoted", "gemm_fp8_fast", "gemm_int8wo"}
    assert set(by_role["up"]) == ours | {
        "bf16 torch.mm",
        "scaled_mm accurate",
        "scaled_mm fast",
        "gemm_int8",
        "gemm_int4wo",
    }
    assert report["products"][0]["us"]["_weight_int8pack_mm"] == 100.0
    totals = report["requests_ms"]["edge 3093"]
    # 4 products, 2 layers, 4 forwards of 50 us; with one branch.
    assert totals["gemm_int8"] == totals["gemm_int4wo"] == 4 * 2 * 4 * 50e-3
    assert totals["bf16 torch.mm"] == 4 * 2 * 4 * 100e-3
    assert report["requests_ms"]["edge 6186"]["gemm_fp8"] == 4 * 2 * 2 * 50e-3
    assert "gemm_int8_blocked" not in totals
    assert "gemlite" in report["notes"]
    title, headings, rows = bench.report_tables(report)[0]
    assert (title, headings[1]) == ("edge: one product", "qkv 3093")
    assert rows[0][:2] == ["bf16 torch.mm", "100 (0)"]
    assert bench.caption(report).startswith("A GPU; torch")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"families": ["pico"]}, "families: found 'pico', expected one of edge"),
        ({"rows": [7]}, "rows: found 7, expected one of 3093, 6186"),
        ({"gemlite": "yes"}, "gemlite: found 'yes', expected one of off, default, fast, max"),
    ],
)
def test_bench_refuses_what_it_does_not_know(named: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        bench.bench_kernels(GPU, silent, **named)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", [["tune"], ["bench", "kernels"]])
def test_commands_without_a_gpu_say_so(command: list[str]) -> None:
    from cosmos_lite_ros.cli.main import app

    for device in ("cuda", "cpu"):
        done = CliRunner().invoke(app, [*command, "--device", device])
        assert isinstance(done.exception, EnvironmentLacksError)
        assert device in str(done.exception)
