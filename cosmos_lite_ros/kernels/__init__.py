# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pointwise GPU kernels of the request path, each with a torch twin that runs anywhere.

A module ``NAME.py`` holds the public functions and their twins; ``NAME_triton.py`` holds the
Triton kernels and is imported only when a tensor on a CUDA device arrives. The public functions
write into tensors of the caller, allocate nothing on the GPU, never synchronise and may be captured
into a CUDA graph after one call with the same shapes outside of it (the first call compiles).
"""
