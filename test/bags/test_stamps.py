# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Stamps are read and moved in the serialized bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cosmos_lite_ros.bags.stamps import header_stamp_ns, with_stamp
from cosmos_lite_ros.bags.types import default_typestore

STORE = default_typestore()
STAMPS = st.integers(-(2**31) * 10**9, 2**31 * 10**9 - 1)


def serialized(stamp_ns: int, little: bool) -> bytes:
    sec, nanosec = divmod(stamp_ns, 10**9)
    types = STORE.types
    stamp = types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec)
    message = types["sensor_msgs/msg/JointState"](
        header=types["std_msgs/msg/Header"](stamp=stamp, frame_id="base"),
        name=["a", "b"],
        position=np.array([0.25, -1.5]),
        velocity=np.zeros(0),
        effort=np.zeros(0),
    )
    return bytes(STORE.serialize_cdr(message, message.__msgtype__, little_endian=little))


@given(old=STAMPS, new=STAMPS, little=st.booleans())
def test_only_the_stamp_changes(old: int, new: int, little: bool) -> None:
    data = serialized(old, little)
    assert header_stamp_ns(data) == old
    moved = with_stamp(data, new)
    assert header_stamp_ns(moved) == new
    assert moved == serialized(new, little)


@given(st.binary(max_size=11))
def test_too_short_for_a_header(data: bytes) -> None:
    assert header_stamp_ns(data) is None
