# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Our Fast DDS profile: a shared-memory segment that holds images.

The default segment (512 KB) is smaller than one 640x360 rgb8 frame, so of three cameras at 15 Hz
only a third of the frames arrive. The *publisher's* segment counts: camera drivers need it too.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Fast DDS 2 (Jazzy) and Fast DDS 3 (Kilted and later) read different names.
_PROFILE_VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
_QOS_FROM_XML = "RMW_FASTRTPS_USE_QOS_FROM_XML"


def share_folder() -> Path:
    """The folder that holds ``config`` and ``launch``: of the source tree, or installed.

    Raises:
        FileNotFoundError: neither is there.
    """
    source = Path(__file__).resolve().parents[2]
    if (source / "config" / "fastdds.xml").is_file():
        return source
    installed = Path(sys.prefix) / "share" / "cosmos_lite_ros"  # pip install, without an index
    if (installed / "config" / "fastdds.xml").is_file():
        return installed
    from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

    try:
        return Path(get_package_share_directory("cosmos_lite_ros"))
    except (PackageNotFoundError, OSError) as error:  # OSError: no AMENT_PREFIX_PATH at all
        raise FileNotFoundError(f"no config folder beside {source} and no installation") from error


def dds_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that point Fast DDS at config/fastdds.xml; none where a profile is chosen.

    Args:
        environment: what is set already, such as ``os.environ``.
    """
    if any(environment.get(name) for name in _PROFILE_VARIABLES):
        return {}
    try:
        profile = share_folder() / "config" / "fastdds.xml"
    except FileNotFoundError:
        return {}
    if not profile.is_file():
        return {}
    found = dict.fromkeys(_PROFILE_VARIABLES, str(profile))
    # Only transports come from the file; quality of service stays what the code says.
    if _QOS_FROM_XML not in environment:
        found[_QOS_FROM_XML] = "0"
    return found


def use_shipped_dds_profile() -> bool:
    """Point Fast DDS at config/fastdds.xml, unless the user has chosen a profile; True if set.

    It must run before ``rclpy.init``. It changes this process and its children only. Segments that
    killed processes have left are removed, so that a node that is started again and again does not
    fill the memory.
    """
    remove_stale_segments()
    found = dds_environment(os.environ)
    os.environ.update(found)
    return bool(found)


def remove_stale_segments(folder: Path = Path("/dev/shm")) -> int:
    """Remove this user's Fast DDS segments that no process holds; returns how many.

    A process that is killed leaves its segment behind, 64 MB with our profile. Fast DDS holds a
    lock on a file beside each segment for as long as its owner lives.
    """
    removed = 0
    for lock in [*folder.glob("fastrtps_*_el"), *folder.glob("fastdds_*_el")]:
        segment = lock.with_name(lock.name.removesuffix("_el"))
        if "port" in segment.name:
            continue
        try:
            if lock.stat().st_uid != os.getuid():
                continue
            handle = os.open(lock, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            segment.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
            removed += 1
        except OSError:
            pass  # held by a living process
        finally:
            os.close(handle)
    return removed
