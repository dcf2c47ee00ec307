#!/usr/bin/env python3
# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Record the tiny request of ``policy/tiny_request.py`` as a CPU answers it, every scheme."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from cosmos_lite_ros.policy.linears import Linears
from cosmos_lite_ros.policy.tiny_request import RECORD, tiny_answer
from cosmos_lite_ros.quantize.schemes import SCHEMES


def main() -> None:
    """Write the file anew."""
    found: dict[str, dict[str, dict[str, list[object]]]] = {}
    for family in ("edge", "nano"):
        found[family] = {}
        for scheme in SCHEMES.values():
            linears = Linears(scheme, torch.bfloat16)
            answer = tiny_answer(family, linears, torch.device("cpu"))  # type: ignore[arg-type]
            found[family][scheme.name] = {k: v.round(5).tolist() for k, v in answer.items()}
            print(family, scheme.name, flush=True)
    RECORD.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
