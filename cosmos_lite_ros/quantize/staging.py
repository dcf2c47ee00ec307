# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A folder that appears whole or not at all: filled under a hidden name, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cosmos_lite_ros.errors import BadInputError, EnvironmentLacksError
from cosmos_lite_ros.quantize.files import sync_folder

_LOCK: Final = ".lock"


def hidden_name(out: Path) -> Path:
    """Where ``out`` is filled."""
    return out.with_name(f".{out.name}.unfinished")


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A new empty folder beside ``out`` that becomes ``out`` where the block ends well.

    Otherwise it is removed. What a killed run left there is removed first; a run that is still
    going holds a lock on it.

    Raises:
        BadInputError: ``out`` exists, or another process is filling it.
        EnvironmentLacksError: the folder cannot be written.
    """
    refuse_existing(out)
    hidden, lock = hidden_name(out), -1
    try:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            lock = _locked(hidden)
        except OSError as error:
            raise EnvironmentLacksError(
                f"cannot write to {out.parent} ({error.strerror or error}): choose another folder"
            ) from error
        refuse_existing(out)  # by a run that has just ended
        for left in hidden.iterdir():
            if left.name != _LOCK:
                _remove(left)
        yield hidden
        refuse_existing(out)
        sync_folder(hidden)
        # The lock goes with it: without one another run could take the folder before its renaming.
        hidden.rename(out)
        (out / _LOCK).unlink()
        sync_folder(out.parent)
    except BaseException:
        if lock >= 0:
            shutil.rmtree(hidden, ignore_errors=True)
        raise
    finally:
        if lock >= 0:
            os.close(lock)


def refuse_existing(out: Path) -> None:
    """Raise BadInputError where there is something of that name already."""
    if out.exists() or out.is_symlink():
        raise BadInputError(f"{out} exists: choose another folder, or remove it")


def _locked(hidden: Path) -> int:
    """Descriptor of the lock in the hidden folder, which is made where absent."""
    busy = BadInputError(
        f"another process is writing {hidden}: wait for it, or choose another name"
    )
    hidden.mkdir(exist_ok=True)
    path = hidden / _LOCK
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The run that held it may have finished, or cleaned up, in between.
        if not path.exists() or not os.path.samestat(os.fstat(lock), path.stat()):
            raise busy
    except BlockingIOError:
        os.close(lock)
        raise busy from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
