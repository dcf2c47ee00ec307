# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Option texts of the command line to values; every refusal is one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt

from cosmos_lite_ros.contract.constants import JOINTS
from cosmos_lite_ros.errors import BadInputError

if TYPE_CHECKING:
    from cosmos_lite_ros.contract.prompt import Family, PromptFormat


def choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """One of the allowed words.

    Raises:
        BadInputError: another word.
    """
    if value not in allowed:
        raise BadInputError(
            f"{name} is {value!r}, expected {', '.join(allowed[:-1])} or {allowed[-1]}"
        )
    return value


def family_of(value: str) -> Family:
    """edge or nano."""
    return cast("Family", choice("--family", value, ("edge", "nano")))


def prompt_format_of(value: str) -> PromptFormat:
    """auto, json or plain."""
    return cast("PromptFormat", choice("--prompt-format", value, ("auto", "json", "plain")))


def compose_of(value: str) -> Literal["client", "server"]:
    """client or server."""
    return cast("Literal['client', 'server']", choice("--compose", value, ("client", "server")))


def aspect_of(value: str) -> Literal["pad", "crop", "refuse"]:
    """pad, crop or refuse."""
    return cast(
        "Literal['pad', 'crop', 'refuse']", choice("--aspect", value, ("pad", "crop", "refuse"))
    )


def action_arithmetic_of(value: str) -> Literal["float32", "server"]:
    """float32 or server."""
    return cast(
        "Literal['float32', 'server']",
        choice("--action-arithmetic", value, ("float32", "server")),
    )


def joints_of(text: str) -> npt.NDArray[np.float64]:
    """``q1,..,q7`` in rad to float64 [7].

    Raises:
        BadInputError: not seven numbers.
    """
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise BadInputError(f"--joints {text!r}: {error}; expected q1,..,q7 in rad") from error
    if values.shape != (JOINTS,):
        raise BadInputError(f"--joints has {values.size} values, expected {JOINTS} (q1,..,q7, rad)")
    return values


def read_rgb(path: Path) -> npt.NDArray[np.uint8]:
    """An image file as uint8 [h, w, 3] RGB.

    Raises:
        BadInputError: missing, not an image, or cut off.
    """
    from PIL import Image, UnidentifiedImageError

    if not path.is_file():
        raise BadInputError(f"{path}: no such image file")
    try:
        with Image.open(path) as image:
            if image.mode not in ("RGB", "RGBA", "L", "P"):
                raise BadInputError(f"{path} is a {image.mode} image, expected 8-bit RGB")
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise BadInputError(f"{path} cannot be read as an image: {error}") from error
