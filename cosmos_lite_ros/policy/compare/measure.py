# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Differences of one subject from the recorded reference, as arrays over the requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosmos_lite_ros.policy.compare.subjects import Answer, Recording, Subject, Velocities

Floats = npt.NDArray[np.float64]
Say = Callable[[str], None]
# Every so many positions of the video enter the products between requests; not a factor of its
# sides, so that all rows, columns and channels are met.
_VIDEO_STRIDE: Final = 7


@dataclass(frozen=True, eq=False)
class ForwardErrors:
    """T1: one forward from the reference's inputs. n requests, s steps, b guidance branches.

    Attributes:
        action_l2, video_l2: [n, s, b] relative L2 distances of the velocities.
        guided_l2: [n, s], of the action rows' guided velocity (guidance in float64).
        signed: [n, s, b, 32, 8], signed error of the action rows.
        video: float32 [n, positions], signed errors on a part of the video, all steps and branches.
    """

    action_l2: Floats
    video_l2: Floats
    guided_l2: Floats
    signed: Floats
    video: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ChunkErrors:
    """T2: the whole request.

    Attributes:
        chunk: [n, 32, 8], joint positions (rad) and gripper (1 = closed).
        signed: [n, 32, 8], signed error of the chunk.
        video_l2, latent_l2: [n], relative L2 of the finished video and of the encoded picture.
    """

    chunk: Floats
    signed: Floats
    video_l2: Floats
    latent_l2: Floats


def measure_forwards(
    subject: Subject, recordings: Sequence[Recording], guidance: float, say: Say | None = None
) -> ForwardErrors:
    """Every forward of every recorded request."""
    action, video, guided, signed, sampled = [], [], [], [], []
    for i, recording in enumerate(recordings):
        found = subject.velocities(recording)
        steps = zip(found, recording.velocities, strict=True)
        pairs = [list(zip(f, e, strict=True)) for f, e in steps]
        action.append([[relative_l2(f.action, e.action) for f, e in step] for step in pairs])
        errors = [[_video_error(f, e) for f, e in step] for step in pairs]
        video.append(
            [
                [_norm_ratio(error, e.video) for error, (_, e) in zip(row, step, strict=True)]
                for row, step in zip(errors, pairs, strict=True)
            ]
        )
        sampled.append(
            np.concatenate([e.flatten()[::_VIDEO_STRIDE].numpy() for row in errors for e in row])
        )
        guided.append([_guided_l2(step, guidance) for step in pairs])
        signed.append([[f.action.astype(np.float64) - e.action for f, e in step] for step in pairs])
        if say is not None:
            say(f"{subject.name}: forwards of request {i + 1} of {len(recordings)}")
    return ForwardErrors(
        action_l2=np.asarray(action, np.float64),
        video_l2=np.asarray(video, np.float64),
        guided_l2=np.asarray(guided, np.float64),
        signed=np.asarray(signed, np.float64),
        video=np.stack(sampled),
    )


def measure_chunks(
    subject: Subject, recordings: Sequence[Recording], say: Say | None = None
) -> ChunkErrors:
    """Every recorded request, answered as a whole."""
    answers = []
    for i, recording in enumerate(recordings):
        expected = recording.answer
        answer = subject.answer(recording.request, expected.latent)
        answers.append(
            (
                answer.chunk,
                answer.chunk.astype(np.float64) - expected.chunk,
                relative_l2(answer.video[:, 1:], expected.video[:, 1:]),
                relative_l2(answer.latent, expected.latent),
            )
        )
        if say is not None:
            say(f"{subject.name}: request {i + 1} of {len(recordings)}")
    return ChunkErrors(*(np.asarray(values, np.float64) for values in zip(*answers, strict=True)))


def reference_chunks(recordings: Sequence[Recording]) -> Floats:
    """[n, 32, 8] of the reference itself."""
    answers: list[Answer] = [recording.answer for recording in recordings]
    return np.stack([answer.chunk for answer in answers]).astype(np.float64)


def relative_l2(found: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """||found - expected|| / ||expected||."""
    difference = found.astype(np.float64) - expected
    return float(np.linalg.norm(difference) / np.linalg.norm(expected.astype(np.float64)))


def _video_error(found: Velocities, expected: Velocities) -> Tensor:
    return found.video.float() - expected.video.float()


def _norm_ratio(error: Tensor, expected: Tensor) -> float:
    norms = [float(torch.linalg.vector_norm(t, dtype=torch.float64)) for t in (error, expected)]
    return norms[0] / norms[1]


def _guided_l2(step: Sequence[tuple[Velocities, Velocities]], guidance: float) -> float:
    """Of one step's guided velocity; the conditional one's where there is no other branch."""
    both = []
    for values in zip(*step, strict=True):
        parts = [v.action.astype(np.float64) for v in values]
        both.append(parts[0] if len(parts) == 1 else parts[1] + guidance * (parts[0] - parts[1]))
    return float(np.linalg.norm(both[0] - both[1]) / np.linalg.norm(both[1]))
