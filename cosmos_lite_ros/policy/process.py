# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What this process holds of the host's memory. No torch."""

from __future__ import annotations

import re
from pathlib import Path


def host_anonymous_bytes() -> int:
    """Anonymous memory of this process (RssAnon), bytes; 0 where the kernel does not say."""
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0
