# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Read and rewrite the header stamp of a serialized message without decoding it.

Where a std_msgs/Header is the first field, its stamp always lies in bytes 4..12: after the 4-byte
CDR encapsulation header come ``int32 sec`` and ``uint32 nanosec``, in the byte order that the
encapsulation header names.
"""

from __future__ import annotations

import struct
from typing import Final

_LITTLE: Final = struct.Struct("<iI")
_BIG: Final = struct.Struct(">iI")
_AT: Final = 4
_NS: Final = 1_000_000_000


def _layout(data: bytes) -> struct.Struct:
    # The second byte of the encapsulation header is odd for little endian (0x0001 is CDR_LE).
    return _LITTLE if data[1] & 1 else _BIG


def header_stamp_ns(data: bytes) -> int | None:
    """Stamp of a message whose first field is a Header, ns; None where it is too short."""
    if len(data) < _AT + _LITTLE.size:
        return None
    sec, nanosec = _layout(data).unpack_from(data, _AT)
    return int(sec) * _NS + int(nanosec)


def with_stamp(data: bytes, stamp_ns: int) -> bytes:
    """The same message with another stamp; nothing else changes.

    Args:
        data: CDR bytes of a message whose first field is a Header.
        stamp_ns: the new stamp, ns, within int32 seconds.
    """
    sec, nanosec = divmod(stamp_ns, _NS)
    stamp = _layout(data).pack(sec, nanosec)
    return b"".join((data[:_AT], stamp, memoryview(data)[_AT + len(stamp) :]))
