# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of configurations: what is checked in, the nearest rule, files, which one is in effect."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.kernels import tables
from cosmos_lite_ros.kernels.instructions import ARCHITECTURES, INSTRUCTIONS, REFUSED
from cosmos_lite_ros.kernels.shapes import RELEASED, ROLES
from cosmos_lite_ros.kernels.tables import (
    FOLDER,
    KERNELS,
    Entry,
    GemmConfig,
    Table,
    active_table,
    built_in,
    check_capability,
    gemm_config,
    load_table,
    save_table,
    table_for,
    use_table,
    user_table_path,
)
from cosmos_lite_ros.kernels.tune import ROLES_OF, ROWS, candidates, shapes, supported

CONFIG = GemmConfig(128, 128, 128, 1, 8, 8, 3)


def table(*shapes_of: tuple[int, int, int], kernel: str = "gemm_int8") -> Table:
    """One entry a shape, told apart by its stages."""
    entries = [
        Entry(kernel, *shape, replace(CONFIG, num_stages=i + 1))
        for i, shape in enumerate(shapes_of)
    ]
    return Table("sm_89", "", tuple(entries))


def raw(**changes: Any) -> dict[str, Any]:
    entry = {
        "kernel": "gemm_int8",
        "shape": [3093, 4096, 2048],
        "config": [128, 128, 128, 1, 8, 8, 3],
        "us": 0.0,
    }
    head = {"format": 1, "architecture": "sm_89", "measured_on": ""}
    return {**head, "entries": [{**entry, **changes.pop("entry", {})}], **changes}


def test_every_architecture_s_table_lists_what_the_networks_multiply() -> None:
    assert tuple(built_in()) == ARCHITECTURES
    for architecture, found in built_in().items():
        listed = {(e.kernel, e.rows, e.columns, e.depth) for e in found.entries}
        expected = {(k, *s) for k in supported(architecture) for s in shapes(k)}
        assert listed == expected
        assert len(found.entries) == len(listed)
        assert found.source == f"{architecture}.json"
    assert len(built_in()["sm_86"].entries) == 60
    assert len(built_in()["sm_90"].entries) == 132


def test_tables_never_run_say_so() -> None:
    for architecture in ("sm_86", "sm_89", "sm_120"):
        found = built_in()[architecture]
        assert found.describe()["measured_on"] == "never run: chosen by compiling"
        for entry in found.entries:
            assert entry.config == candidates(entry.kernel, entry.rows, architecture)[0]
            assert entry.microseconds == 0


def test_refused_kernels_are_in_no_table() -> None:
    for kernel, by_architecture in INSTRUCTIONS.items():
        for architecture, names in by_architecture.items():
            listed = {e.kernel for e in built_in()[architecture].entries}
            if kernel in KERNELS:
                assert (kernel in listed) == (names != (REFUSED,))


def test_shapes_are_those_of_the_networks() -> None:
    edge, nano = RELEASED["edge"], RELEASED["nano"]
    assert [edge.matrix(r) for r in ROLES] == [
        (4096, 2048),
        (2048, 2048),
        (9216, 2048),
        (2048, 9216),
    ]
    assert [nano.matrix(r) for r in ROLES] == [
        (6144, 4096),
        (4096, 4096),
        (24576, 4096),
        (4096, 12288),
    ]
    assert ROWS == (66, 3093, 6186)
    assert set(ROLES_OF) == set(KERNELS)


@pytest.mark.parametrize(
    ("shape", "stages"),
    [
        ((3093, 4096, 2048), 2),  # listed
        ((100, 4096, 2048), 2),  # more rows than 66: the next class
        ((66, 4096, 2048), 1),
        ((2, 9999, 9999), 1),
        ((9000, 4096, 2048), 4),  # fewer everywhere: the most
        ((3093, 8000, 2048), 3),
        ((3093, 5000, 2048), 2),  # log2: 0.29 from 4096, 0.88 from 9216
        ((3093, 6144, 2048), 2),  # equally far from both: the first
    ],
)
def test_the_nearest_entry_is_taken(shape: tuple[int, int, int], stages: int) -> None:
    found = table((66, 4096, 2048), (3093, 4096, 2048), (3093, 9216, 2048), (6186, 4096, 2048))
    config = found.find("gemm_int8", *shape)
    assert config is not None
    assert config.num_stages == stages
    assert found.find("gemm_fp8", *shape) is None


def test_an_architecture_without_a_table_takes_an_older_one() -> None:
    names = {c: table_for(c).architecture for c in [(8, 0), (8, 7), (8, 9), (9, 0), (10, 0)]}
    assert names == {
        (8, 0): "sm_86",
        (8, 7): "sm_86",
        (8, 9): "sm_89",
        (9, 0): "sm_90",
        (10, 0): "sm_90",
    }
    assert table_for((12, 1)).architecture == "sm_120"


def test_gpus_without_the_arithmetic_are_refused_in_one_line() -> None:
    check_capability("gemm_fp8", (8, 9))
    with pytest.raises(EnvironmentLacksError, match=r"sm_86, gemm_fp8 needs sm_89 .* scheme int8"):
        check_capability("gemm_fp8", (8, 6))
    with pytest.raises(EnvironmentLacksError, match=r"sm_75, gemm_int8 needs sm_80 .* device cpu"):
        check_capability("gemm_int8", (7, 5))


def test_a_table_is_the_same_after_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "table.json"
    saved = Table("sm_89", "some GPU", (Entry("gemm_int8", 1, 2, 3, CONFIG, 4.5),))
    save_table(saved, path)
    assert load_table(path) == replace(saved, source=str(path))
    assert [p.name for p in path.parent.iterdir()] == ["table.json"]


def test_the_digest_is_of_what_runs_and_not_of_its_time() -> None:
    found = table((66, 4096, 2048))
    (entry,) = found.entries
    assert replace(found, entries=(replace(entry, microseconds=9.0),)).digest == found.digest
    assert replace(found, measured_on="another", source="x").digest == found.digest
    changed = replace(entry, config=replace(CONFIG, block_k=64))
    assert replace(found, entries=(changed,)).digest != found.digest
    assert len(found.digest) == 12


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "found no JSON"),
        (json.dumps(raw(format=2)), "found format 2, expected 1: run cosmos-lite-ros tune again"),
        (json.dumps(raw(architecture="ampere")), "architecture is 'ampere', expected one like"),
        (json.dumps(raw(entries=[])), "found no entries"),
        (json.dumps(raw(entries=3)), "expected a table of tune's"),
        (json.dumps({"format": 1}), "expected a table of tune's"),
        (
            json.dumps(raw(entry={"kernel": "gemm"})),
            "found kernel 'gemm', expected one of gemm_fp8",
        ),
        (json.dumps(raw(entry={"shape": [1, 2]})), "expected a table of tune's"),
        (json.dumps(raw(entry={"shape": [1, 2, -3]})), "found -3, expected a number above 0"),
        (json.dumps(raw(entry={"shape": [1, 2, True]})), "found True"),
        (json.dumps(raw(entry={"config": [96, 128, 128, 1, 8, 8, 3]})), "block_m is 96, expected"),
        (json.dumps(raw(entry={"config": [128] * 6 + [900]})), "num_stages is 900"),
        (json.dumps(raw(entry={"config": [8, 128, 128, 1, 8, 8, 3]})), "expected at least 16 x 16"),
        (
            json.dumps(
                raw(entry={"kernel": "gemm_fp8_fast", "config": [128, 128, 128, 1, 8, 8, 3]})
            ),
            "gemm_fp8_fast: found a step of 128, expected 64",
        ),
        (
            json.dumps(
                raw(entry={"kernel": "gemm_int8_blocked", "config": [128, 128, 64, 1, 8, 8, 3]})
            ),
            "gemm_int8_blocked: found a step of 64, expected 128",
        ),
    ],
)
def test_files_that_cannot_be_are_refused_with_their_name(
    content: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    path.write_text(content)
    with pytest.raises(BadInputError, match=says) as caught:
        load_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read: No such file"):
        load_table(tmp_path / "none.json")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> torch.device:
    """Stands in for a GPU: what torch says of one, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA GeForce RTX 4090")
    monkeypatch.setattr(tables, "_IN_EFFECT", {})
    return torch.device("cuda", 0)


def test_the_package_s_table_is_in_effect_until_this_gpu_has_its_own(gpu: torch.device) -> None:
    assert active_table(gpu) is built_in()["sm_89"]
    own = user_table_path((8, 9), "NVIDIA GeForce RTX 4090")
    assert own.name == "sm_89-nvidia-geforce-rtx-4090.json"
    save_table(table((3093, 4096, 2048)), own)
    # In effect for the whole process once it was looked for.
    assert active_table(gpu) is built_in()["sm_89"]
    assert use_table("auto", gpu).source == str(own)
    assert active_table(gpu).source == str(own)
    assert use_table("builtin", gpu) is built_in()["sm_89"]


def test_a_named_table_must_fit_the_gpu(gpu: torch.device, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    save_table(replace(table((3093, 4096, 2048)), architecture="sm_90"), path)
    with pytest.raises(BadInputError, match=r"mine.json is for sm_90, this GPU is sm_89: run"):
        use_table(path, gpu)
    save_table(table((3093, 4096, 2048)), path)
    assert use_table(path, gpu).digest == table((3093, 4096, 2048)).digest


def test_a_kernel_that_the_user_s_table_lacks_takes_the_package_s(
    gpu: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.json"
    save_table(table((3093, 4096, 2048)), path)
    use_table(path, gpu)

    class Out:  # a tensor on a GPU that is not there
        shape = (3093, 4096)
        device = gpu

    out: Any = Out()
    assert gemm_config("gemm_int8", out, 2048).num_stages == 1
    expected = built_in()["sm_89"].find("gemm_fp8", 3093, 4096, 2048)
    assert gemm_config("gemm_fp8", out, 2048) == expected
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    with pytest.raises(EnvironmentLacksError, match="sm_86, gemm_fp8 needs"):
        gemm_config("gemm_fp8", out, 2048)


def test_the_files_are_part_of_the_package() -> None:
    setup = (FOLDER.parent.parent.parent / "setup.py").read_text()
    assert f'"kernels/{FOLDER.name}/*.json"' in setup
    assert sorted(p.suffix for p in FOLDER.iterdir()) == [".json"] * 4
