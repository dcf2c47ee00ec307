# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every shipped file of config/ against what the nodes declare."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("rclpy")

from cosmos_lite_ros.contract.robots import ROBOTS
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.policy.profiles import PROFILE_NAMES, PROFILES, profile
from cosmos_lite_ros.policy.settings import check_settings
from cosmos_lite_ros.quantize.schemes import SCHEME_NAMES
from cosmos_lite_ros.ros.dds import dds_environment
from cosmos_lite_ros.ros.parameters import build, flatten, specs
from cosmos_lite_ros.ros.policy_loader import engine_settings
from cosmos_lite_ros.ros.policy_settings import PolicySettings

from .harness import NodeProcess, probe

pytestmark = pytest.mark.ros

CONFIG = Path(__file__).resolve().parents[2] / "config"
PARAMETER_FILES = sorted(CONFIG.glob("*.yaml"))
NODES: dict[str, type] = {"policy": PolicySettings, "executor": ExecutorSettings}
# Declared by every lifecycle node of ours, and by rclpy.
COMMON = {"autostart", "use_sim_time"}


def dotted(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= dotted(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def parameters_for(path: Path, node: str) -> dict[str, Any]:
    """What a node of that name gets out of a file."""
    found: dict[str, Any] = {}
    for key, section in yaml.safe_load(path.read_text()).items():
        if key in ("/**", f"/**/{node}"):
            found |= dotted(section["ros__parameters"])
    return found


def test_there_are_files() -> None:
    names = [path.name for path in PARAMETER_FILES]
    assert names == ["bringup.yaml", "edge_interval.yaml", "fr3.yaml", "panda.yaml"]
    assert {f"{robot}.yaml" for robot in ROBOTS} <= set(names)


@pytest.mark.parametrize("path", PARAMETER_FILES, ids=lambda path: path.name)
def test_every_key_is_declared_and_every_value_is_taken(path: Path) -> None:
    for key, section in yaml.safe_load(path.read_text()).items():
        assert key == "/**" or key.removeprefix("/**/") in NODES, key
        assert list(section) == ["ros__parameters"]
    for node, kind in NODES.items():
        declared = specs(kind)
        given = parameters_for(path, node)
        assert set(given) <= set(declared) | COMMON, node
        values = {name: declared[name].check(value) for name, value in given.items()}
        settings = build(kind, values)
        assert {name: flatten(settings)[name] for name in values} == values


def test_bringup_is_slower_and_stricter_than_the_defaults() -> None:
    given = parameters_for(CONFIG / "bringup.yaml", "executor")
    default = flatten(ExecutorSettings())
    for name in (
        "velocity_scale",
        "acceleration_scale",
        "start_velocity_scale",
        "max_tracking_error_rad",
        "enable_timeout_s",
    ):
        assert 0 < given[name] < default[name], name
    assert given["start_tolerance_rad"] <= default["start_tolerance_rad"]


def test_a_policy_process_takes_all_of_them(tmp_path: Path) -> None:
    arguments = ["--ros-args"]
    for path in PARAMETER_FILES:
        arguments += ["--params-file", str(path)]
    module = "cosmos_lite_ros.ros.policy_node"
    with (
        NodeProcess(module, tmp_path / "log", 88, arguments=tuple(arguments)) as process,
        probe(88) as user,
    ):
        assert user.lifecycle_state("/policy") == "unconfigured", process.output()
        from rcl_interfaces.srv import GetParameters

        request = GetParameters.Request(names=["guidance_interval", "gripper.closed", "robot"])
        values = user.call("/policy/get_parameters", GetParameters, request).values
    assert list(values[0].double_array_value) == [960.0, 1001.0]
    assert values[1].double_value == 0.8
    assert values[2].string_value == "panda"  # the last file


def test_the_dds_profile_has_a_segment_for_images_and_keeps_udp() -> None:
    root = ElementTree.parse(CONFIG / "fastdds.xml").getroot()
    space = {"d": "http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles"}
    transports = {
        node.findtext("d:transport_id", namespaces=space): node
        for node in root.iterfind(".//d:transport_descriptors/d:transport_descriptor", space)
    }
    kinds = {name: node.findtext("d:type", namespaces=space) for name, node in transports.items()}
    assert sorted(kinds.values()) == ["SHM", "UDPv4"]
    shared = next(name for name, kind in kinds.items() if kind == "SHM")
    size = transports[shared].findtext("d:segment_size", namespaces=space)
    # Three 1280x720 bgra8 frames, several times over.
    assert int(size or 0) == 64 * 1024 * 1024
    used = [node.text for node in root.iterfind(".//d:userTransports/d:transport_id", space)]
    assert sorted(used) == sorted(kinds)


def test_a_profile_of_the_user_is_left_alone() -> None:
    ours = dds_environment({})
    assert ours["FASTRTPS_DEFAULT_PROFILES_FILE"] == str(CONFIG / "fastdds.xml")
    assert ours["RMW_FASTRTPS_USE_QOS_FROM_XML"] == "0"
    assert dds_environment({"FASTRTPS_DEFAULT_PROFILES_FILE": "/mine.xml"}) == {}
    assert dds_environment({"FASTDDS_DEFAULT_PROFILES_FILE": "/mine.xml"}) == {}
    assert "RMW_FASTRTPS_USE_QOS_FROM_XML" not in dds_environment(
        {"RMW_FASTRTPS_USE_QOS_FROM_XML": "1"}
    )


def test_the_rviz_file_is_one() -> None:
    loaded = yaml.safe_load((CONFIG / "droid.rviz").read_text())
    displays = loaded["Visualization Manager"]["Displays"]
    topics = [d["Topic"]["Value"] for d in displays if d["Class"].endswith("/Image")]
    assert topics == ["wrist/image", "exterior_1/image", "exterior_2/image"]
    assert all(d["Name"] and d["Class"].startswith("rviz_default_plugins/") for d in displays)


def test_profiles_are_pinned() -> None:
    assert tuple(PROFILES) == PROFILE_NAMES
    revisions = {
        "edge": "3ea407af3e156c0af3b4bb6edd85842cc9a58777",
        "nano": "6706d7680581c255ff61e0f3bb49d90eac55c79e",
    }
    for name, one in PROFILES.items():
        if name != "tiny":
            assert (one.family, one.revision) == (name[:4], revisions[name[:4]])
            assert (one.device, one.dtype) == ("cuda", "bfloat16")
    assert (profile("tiny").device, profile("tiny").dtype) == ("cpu", "float32")
    with pytest.raises(ValueError, match=r"expected one of edge_rtx4090, .*, tiny"):
        profile("edge_a100")


# profile -> scheme, where the image encoder's weights lie, guidance interval
ARITHMETIC = {
    "edge_rtx4090": ("fp8", "none", None),
    "edge_interval": ("fp8", "none", (960.0, 1001.0)),
    "edge_a10g": ("int8wo", "cpu", None),
    "edge_a10g_int8": ("int8", "none", None),
    "nano_rtx4090": ("fp8", "none", None),
    "nano_bf16": ("bf16", "none", None),
    "nano_a10g": ("int8", "none", None),
    "tiny": ("", "none", None),
}


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_what_a_profile_means_to_the_engine(name: str) -> None:
    settings = engine_settings(build(PolicySettings, {"profile": name}), "checkpoint")
    sampler = settings.sampler
    assert (settings.scheme, settings.vae_offload, sampler.guidance_interval) == ARITHMETIC[name]
    assert (sampler.steps, sampler.guidance, sampler.shift) == (2, 3.0, 5.0)
    assert (settings.seed, settings.seed_mode) == (0, "fixed")
    assert settings.dtype == ("float32" if name == "tiny" else "bfloat16")
    assert (settings.accumulate, settings.fallback) == ("accurate", "refuse")
    assert (settings.text_residency, settings.attention) == ("pinned", "auto")
    check_settings(settings)


def test_parameters_go_over_the_profile() -> None:
    given: dict[str, Any] = {
        "profile": "edge_a10g",
        "scheme": "int4wo",
        "vae_offload": "none",
        "accumulate": "fast",
        "fallback": "bf16",
        "text_residency": "mmap",
        "attention": "flash",
        "guidance_interval": [500.0, 900.0],
    }
    values = {name: specs(PolicySettings)[name].check(value) for name, value in given.items()}
    settings = engine_settings(build(PolicySettings, values), "checkpoint")
    assert settings.scheme == "int4wo"
    assert settings.sampler.guidance_interval == (500.0, 900.0)
    for name in ("vae_offload", "accumulate", "fallback", "text_residency", "attention"):
        assert getattr(settings, name) == given[name]
    plain = build(PolicySettings, {"profile": "edge_rtx4090", "scheme": "float32"})
    assert engine_settings(plain, "checkpoint").effective_scheme == "float32"
    assert engine_settings(plain, "checkpoint").dtype == "float32"
    plain = build(PolicySettings, {"profile": "tiny", "scheme": "bf16"})
    assert engine_settings(plain, "checkpoint").dtype == "bfloat16"


def test_an_artifact_brings_its_scheme_unless_one_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "artifact.json").touch()
    settings = build(PolicySettings, {"profile": "edge_rtx4090"})
    assert engine_settings(settings, str(tmp_path)).scheme == ""
    assert engine_settings(settings, str(tmp_path)).dtype == "bfloat16"
    settings = build(PolicySettings, {"profile": "edge_rtx4090", "scheme": "fp8"})
    assert engine_settings(settings, str(tmp_path)).scheme == "fp8"


def test_every_scheme_is_a_parameter_value() -> None:
    assert specs(PolicySettings)["scheme"].choices == ("auto", *SCHEME_NAMES, "float32")


def test_the_tiny_profile_makes_its_checkpoint_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from cosmos_lite_ros.policy.checkpoint import inspect
    from cosmos_lite_ros.policy.profiles import tiny_checkpoint

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = tiny_checkpoint()
    assert made.parent == tmp_path / "cosmos_lite_ros"
    info = inspect(str(made))
    assert info.random_weights
    assert info.config.family == "edge"
    before = (made / "model_index.json").stat().st_mtime_ns
    assert tiny_checkpoint() == made
    assert (made / "model_index.json").stat().st_mtime_ns == before
    assert [path.name for path in made.parent.iterdir()] == [made.name]
