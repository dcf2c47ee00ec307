# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From action chunks to commands: buffer, time, gate and state machine. NumPy only."""
