# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The one observation type: what a policy request is made of, whatever it came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import (
    CAMERA_HEIGHT,
    CAMERA_WIDTH,
    COMPOSED_HEIGHT,
    COMPOSED_WIDTH,
    JOINTS,
    VIEWS,
)
from cosmos_lite_ros.errors import BadInputError

Pixels = npt.NDArray[np.uint8]
Image = Pixels | tuple[Pixels, Pixels, Pixels]
# Shapes of the composed image and of the three fitted views.
COMPOSED = (COMPOSED_HEIGHT, COMPOSED_WIDTH, 3)
STACKED = (len(VIEWS), CAMERA_HEIGHT, CAMERA_WIDTH, 3)
# Longer texts are refused: the released prompts hold 82 to 150 tokens in all.
MAX_INSTRUCTION_CHARACTERS = 1000


def clean_instruction(text: str) -> str:
    """Strip white space at both ends; refuse an empty or over-long instruction.

    Raises:
        BadInputError: nothing is left, or more than MAX_INSTRUCTION_CHARACTERS are.
    """
    stripped = text.strip()
    if not stripped:
        raise BadInputError("the instruction is empty: say in words what the robot shall do")
    if len(stripped) > MAX_INSTRUCTION_CHARACTERS:
        raise BadInputError(
            f"the instruction has {len(stripped)} characters, at most "
            f"{MAX_INSTRUCTION_CHARACTERS} are allowed: shorten it"
        )
    return stripped


def instruction_hash(text: str) -> str:
    """Lower-case hexadecimal SHA-256 of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Observation:
    """One observation of a DROID cell.

    Attributes:
        image: uint8 RGB: the three views composed [540, 640, 3]
            (``contract.views.compose_views``), or wrist, exterior 1 and exterior 2 fitted, each
            [360, 640, 3] (``contract.views.arrange_views``), which the engine composes on its
            device. Both forms of the same pictures are the same observation. Nothing is copied:
            the arrays must stay as they are until the request is answered.
        joint_positions: float64 [7] rad, measured, in the robot type's joint order.
        gripper: measured, 0 open .. 1 closed.
        instruction: clean (see clean_instruction).
        stamp_ns: the instant of row 0, ns of ROS time (normally joint_state_stamp_ns).
        joint_state_stamp_ns: stamp of the joint state used, ns.
        image_stamps_ns: header stamps of wrist, exterior 1, exterior 2, ns; 0 where invalid.

    Raises:
        BadInputError: a wrong shape or dtype, or a value that is not finite.
    """

    image: Image
    joint_positions: npt.NDArray[np.float64]
    gripper: float
    instruction: str
    stamp_ns: int = 0
    joint_state_stamp_ns: int = 0
    image_stamps_ns: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Check everything that numpy can check."""
        views = self.image if isinstance(self.image, tuple) else (self.image,)
        for view in views:
            if not isinstance(view, np.ndarray):
                raise BadInputError(
                    f"the image holds {type(view).__name__}, expected NumPy arrays of uint8"
                )
        shape = STACKED[1:] if isinstance(self.image, tuple) else COMPOSED
        found = [f"{view.dtype} {view.shape}" for view in views]
        if set(found) != {f"uint8 {shape}"} or len(found) not in (1, len(VIEWS)):
            raise BadInputError(
                f"the image is {', '.join(found)}, expected uint8 {COMPOSED} or a tuple of three "
                f"uint8 {STACKED[1:]}: compose the three views with contract.views.compose_views"
            )
        if self.joint_positions.shape != (JOINTS,):
            raise BadInputError(
                f"found {self.joint_positions.size} joint positions, expected {JOINTS} (rad)"
            )
        # The network's numbers are float32, which ends at 3.4e38.
        with np.errstate(over="ignore"):
            state = np.append(self.joint_positions, self.gripper).astype(np.float32)
        if not np.isfinite(state).all():
            raise BadInputError(
                f"joint positions {self.joint_positions.tolist()} and gripper {self.gripper} must "
                "be finite"
            )
        object.__setattr__(self, "instruction", clean_instruction(self.instruction))

    @cached_property
    def composed(self) -> npt.NDArray[np.uint8]:
        """The picture that the network sees, uint8 [540, 640, 3], whichever form ``image`` has."""
        if not isinstance(self.image, tuple):
            return self.image
        # Here, so that reading stamps and texts needs no OpenCV.
        from cosmos_lite_ros.contract.views import compose_views

        return compose_views(*self.image)

    def digest(self) -> str:
        """SHA-256 over all that reaches the network: image, joints, gripper, instruction."""
        h = hashlib.sha256(np.ascontiguousarray(self.composed).tobytes())
        h.update(np.asarray(self.joint_positions, np.float64).tobytes())
        h.update(np.float64(self.gripper).tobytes())
        h.update(self.instruction.encode())
        return h.hexdigest()
