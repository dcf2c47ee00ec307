# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Both prompt formats of the released policies, and the state row.

Which format belongs to a checkpoint is a property of that checkpoint: Edge was trained with JSON,
Nano with plain sentences. Texts and separators are those of NVIDIA's public policy server.
"""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import (
    ACTION_WIDTH,
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    CLIP_FRAMES,
    JOINTS,
    RATE_HZ,
)

Family = Literal["edge", "nano"]
PromptFormat = Literal["auto", "json", "plain"]

_VIEWPOINT = (
    "This video contains concatenated views from multiple camera perspectives. "
    "The top row is from the wrist-mounted camera. "
    "The bottom row contains two horizontally concatenated third-person perspective views of the "
    "scene from opposite sides, with the robot visible."
)


def _join(*sentences: str) -> str:
    """One space after a full stop, else a full stop and a space."""
    text = sentences[0]
    for sentence in sentences[1:]:
        text += (" " if text.endswith(".") else ". ") + sentence
    return text


def plain_prompt(task: str) -> str:
    """The plain format (Nano)."""
    seconds = CLIP_FRAMES // RATE_HZ
    return _join(
        task.strip(),
        _VIEWPOINT,
        f"The video is {float(seconds)} seconds long and is of {RATE_HZ} FPS.",
        f"This video is of {CANVAS_HEIGHT}x{CANVAS_WIDTH} resolution.",
    )


def json_prompt(task: str) -> str:
    """The JSON format (Edge): default separators, this key order."""
    seconds = CLIP_FRAMES // RATE_HZ
    description = task.strip()
    if not description.endswith((".", "!", "?")):
        description += "."
    return json.dumps(
        {
            "cinematography": {"framing": _VIEWPOINT},
            "actions": [{"time": f"0:00-0:{seconds:02d}", "description": description}],
            "duration": f"{seconds}s",
            "fps": float(RATE_HZ),
            "resolution": {"H": CANVAS_HEIGHT, "W": CANVAS_WIDTH},
            "aspect_ratio": "4,3",
        }
    )


def build_prompt(task: str, family: Family, prompt_format: PromptFormat = "auto") -> str:
    """The prompt text of a task; ``auto`` picks JSON for Edge and plain for Nano.

    An empty task gives an empty prompt, which is the unconditional branch of guidance.
    """
    if not task.strip():
        return ""
    if prompt_format == "auto":
        prompt_format = "json" if family == "edge" else "plain"
    return json_prompt(task) if prompt_format == "json" else plain_prompt(task)


def state_row(joint_positions: npt.NDArray[np.floating], gripper: float) -> npt.NDArray[np.float32]:
    """float32 [8]: seven measured joints (rad) and 1 - gripper, since the network says 1 = open."""
    row = np.empty(ACTION_WIDTH, np.float32)
    row[:JOINTS] = joint_positions
    row[JOINTS] = np.float32(1.0) - np.float32(gripper)
    return row
