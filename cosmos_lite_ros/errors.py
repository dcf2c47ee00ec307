# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Errors that reach a user: one line saying what was found, what was expected and what to do."""

from __future__ import annotations


class CosmosLiteError(Exception):
    """Base of every error of this package; ``exit_code`` is what a command line ends with."""

    exit_code = 1


class BadInputError(CosmosLiteError, ValueError):
    """A value, file or argument from the user that cannot be used."""

    exit_code = 2


class CheckpointError(BadInputError):
    """A checkpoint that is incomplete, foreign or damaged."""


class ImageError(BadInputError):
    """An image that cannot become right RGB; the message names the encoding and the remedy."""


class EnvironmentLacksError(CosmosLiteError):
    """The machine lacks something: a package, a GPU, disk or memory."""

    exit_code = 3
