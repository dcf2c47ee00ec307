# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The engine: text cache, seeds, threads, preview, provenance."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmos_lite_ros.errors import BadInputError, CheckpointError
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine, SamplerSettings

Tiny = Callable[[str], Path]
Maker = Callable[..., Any]
ONE_STEP = SamplerSettings(steps=1, guidance=1.0)


@pytest.fixture
def engine(tiny_checkpoint: Tiny) -> Iterator[PolicyEngine]:
    made = PolicyEngine.load(EngineSettings(str(tiny_checkpoint("edge")), sampler=ONE_STEP))
    yield made
    made.close()


def test_text_cache_counts(engine: PolicyEngine, make_observation: Maker) -> None:
    first, second = make_observation(), make_observation(instruction="open the drawer")
    engine.act(first)
    assert engine.text_cache_stats() == (0, 1)
    engine.act(make_observation(1))  # another image and state, the same instruction
    assert engine.text_cache_stats() == (1, 1)
    engine.act(second)
    assert engine.text_cache_stats() == (1, 2)
    engine.act(first, seed=9, sampler=SamplerSettings(steps=2, guidance=2.0))
    assert engine.text_cache_stats() == (2, 2)
    engine.flush_text_cache()
    engine.act(first)
    assert engine.text_cache_stats() == (2, 3)


def test_text_cache_forgets_the_oldest(tiny_checkpoint: Tiny, make_observation: Maker) -> None:
    settings = EngineSettings(str(tiny_checkpoint("edge")), sampler=ONE_STEP, text_cache_entries=1)
    engine = PolicyEngine.load(settings)
    for text in ("a", "b", "a"):
        engine.act(make_observation(instruction=text))
    assert engine.text_cache_stats() == (0, 3)
    engine.close()


_FRESH = """
import json, sys
import numpy as np
from cosmos_lite_ros.contract.observation import Observation
from cosmos_lite_ros.policy.engine import EngineSettings, PolicyEngine
folder, texts = sys.argv[1], json.loads(sys.argv[2])
image = np.random.default_rng(5).integers(0, 256, (540, 640, 3), dtype=np.uint8)
engine = PolicyEngine.load(EngineSettings(folder, threads=1))
for text in texts:
    chunk = engine.act(Observation(image, np.linspace(-0.5, 0.5, 7), 0.25, text))
print(json.dumps([chunk.as_array().tobytes().hex(), engine.text_cache_stats()]))
"""


@pytest.mark.parametrize("family", ["edge", "nano"])
def test_cached_equals_uncached_in_a_fresh_process(tiny_checkpoint: Tiny, family: str) -> None:
    def run(*texts: str) -> tuple[str, list[int]]:
        command = [sys.executable, "-c", _FRESH, str(tiny_checkpoint(family)), json.dumps(texts)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        answer, stats = json.loads(done.stdout.splitlines()[-1])
        return answer, stats

    task, other = "put the cup on the plate", "open the drawer and wait"
    cached, cached_stats = run(task, other, task)
    uncached, uncached_stats = run(task)
    assert cached_stats == [1, 2]
    assert uncached_stats == [0, 1]
    assert cached == uncached
    assert run(other)[0] != uncached


def test_same_request_same_bits_other_seed_other_chunk(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    observation = make_observation()
    a, b, c = (engine.act(observation, seed=s).as_array() for s in (3, 3, 4))
    assert a.tobytes() == b.tobytes()
    assert np.abs(a - c).max() > 0.01


def test_seed_modes(tiny_checkpoint: Tiny, make_observation: Maker) -> None:
    checkpoint = str(tiny_checkpoint("edge"))
    for mode, expected in (("fixed", [5, 5, 5]), ("advance", [5, 6, 7])):
        settings = EngineSettings(checkpoint, sampler=ONE_STEP, seed=5, seed_mode=mode)
        engine = PolicyEngine.load(settings)
        engine.warm_up()
        assert [engine.act(make_observation()).seed for _ in range(3)] == expected
        engine.close()


def test_bad_seed_is_refused_and_the_engine_goes_on(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    with pytest.raises(BadInputError, match="seed"):
        engine.act(make_observation(), seed=-1)
    assert engine.act(make_observation()).rows == 32


def test_every_part_of_an_observation_reaches_the_action(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    base = engine.act(make_observation()).as_array()
    joints = make_observation().joint_positions.copy()
    joints[3] += 0.1
    image = make_observation().image.copy()
    image[400:500, 400:600] = 255 - image[400:500, 400:600]
    sampler = SamplerSettings(steps=2, guidance=3.0)
    guided = engine.act(make_observation(), sampler=sampler).as_array()
    changes = {
        "joint_positions": joints,
        "gripper": 0.9,
        "image": image,
        "instruction": "throw the cup away",
    }
    for field, value in changes.items():
        other = engine.act(make_observation(**{field: value})).as_array()
        assert np.abs(other - base).max() > 1e-4, field
    assert np.abs(guided - base).max() > 1e-2


def test_preview_is_returned_only_on_request(engine: PolicyEngine, make_observation: Maker) -> None:
    plain = engine.act(make_observation())
    preview = engine.act(make_observation(), preview=True)
    assert plain.predicted_video_latent is None
    assert preview.predicted_video_latent.shape == (48, 9, 33, 40)
    # Without a preview the last layer runs for the action rows alone: other matrix shapes.
    np.testing.assert_allclose(preview.as_array(), plain.as_array(), atol=1e-5, rtol=0)


def test_requests_from_many_threads_run_on_one(
    engine: PolicyEngine, make_observation: Maker
) -> None:
    expected = {s: engine.act(make_observation(s)).as_array().tobytes() for s in range(3)}
    found: dict[int, bytes] = {}

    def ask(seed: int) -> None:
        found[seed] = engine.act(make_observation(seed)).as_array().tobytes()

    threads = [threading.Thread(target=ask, args=(s,)) for s in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == expected
    owners = [t.name for t in threading.enumerate() if t.name.startswith("policy-engine")]
    assert len(owners) == 1


def test_provenance(engine: PolicyEngine, make_observation: Maker) -> None:
    observation = make_observation(stamp_ns=5, joint_state_stamp_ns=4, image_stamps_ns=(1, 2, 3))
    chunk = engine.act(observation, seed=11)
    assert (chunk.stamp_ns, chunk.joint_state_stamp_ns) == (5, 4)
    assert chunk.image_stamps_ns == (1, 2, 3)
    assert (chunk.seed, chunk.steps, chunk.guidance) == (11, 1, 1.0)
    assert chunk.random_weights
    assert chunk.scheme == "float32"
    assert chunk.latency_s == pytest.approx(chunk.encode_s + chunk.generate_s)
    np.testing.assert_array_equal(chunk.measured_positions, observation.joint_positions)
    assert engine.effective["prompt_format"] == "json"
    assert engine.effective["family"] == "edge"


def test_warm_up_leaves_no_trace(engine: PolicyEngine, make_observation: Maker) -> None:
    before = engine.act(make_observation()).as_array().tobytes()
    engine.warm_up()
    assert engine.text_cache_stats() == (0, 0)
    assert engine.act(make_observation()).as_array().tobytes() == before


def test_closed_engine_refuses(engine: PolicyEngine, make_observation: Maker) -> None:
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.act(make_observation())


def test_a_failure_beside_the_text_tower_ends_both(tiny_checkpoint: Tiny, tmp_path: Path) -> None:
    """The text tower loads on a thread of its own; a broken VAE stops it, and nothing is left."""
    broken = tmp_path / "broken"
    shutil.copytree(tiny_checkpoint("edge"), broken)
    config = json.loads((broken / "vae" / "config.json").read_text())
    (broken / "vae" / "config.json").write_text(json.dumps({**config, "latents_mean": [0.0]}))
    with pytest.raises(CheckpointError, match="latents_mean"):
        PolicyEngine.load(EngineSettings(str(broken)))
    names = {thread.name for thread in threading.enumerate()}
    assert not {name for name in names if name.startswith("text-tower")}


def test_loading_says_how_long_each_phase_took(tiny_checkpoint: Tiny) -> None:
    engine = PolicyEngine.load(EngineSettings(str(tiny_checkpoint("edge"))))
    try:
        found = engine.effective["load_s"]
    finally:
        engine.close()
    assert isinstance(found, dict)
    assert list(found) == ["headers", "self_test", "network", "text"]
