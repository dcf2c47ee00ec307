# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``~/preflight``: what the executor itself can see before motion.

The core judges joint states, the arm's place, the receiver of commands, the measured latency and
the clock; here is what only the node sees: the operator's enable, the policy's own status, other
publishers, the gripper and the quality of service.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from cosmos_lite_ros.execution.core import ExecutorCore
from cosmos_lite_ros.execution.modes import why_impossible
from cosmos_lite_ros.execution.settings import ExecutorSettings
from cosmos_lite_ros.msg import PolicyStatus
from cosmos_lite_ros.ros.executor_inputs import PolledSubscription

# policy_status comes twice a second.
_SILENT_S = 5.0
_STATES = {
    PolicyStatus.LOADING: "LOADING",
    PolicyStatus.WARMING: "WARMING",
    PolicyStatus.READY: "READY",
    PolicyStatus.BUSY: "BUSY",
    PolicyStatus.ERROR: "ERROR",
}


class PolicyWatch:
    """The newest policy_status; taken when somebody asks, by the main thread only."""

    def __init__(self, subscription: PolledSubscription) -> None:
        self._subscription = subscription
        self._newest: PolicyStatus | None = None
        self._heard_s = 0.0

    def newest(self) -> PolicyStatus | None:
        """The status, None where none has come or it is too old to mean anything."""
        for message, age_ns in self._subscription.take():
            self._newest, self._heard_s = message, time.monotonic() - age_ns * 1e-9
        return self._newest if time.monotonic() - self._heard_s < _SILENT_S else None


@dataclass(frozen=True)
class Findings:
    """What the node has seen; faults are one line each, empty where there is none."""

    settings: ExecutorSettings
    policy: PolicyStatus | None
    publisher_fault: str
    gripper: str
    topics: tuple[str, ...]

    def in_effect(self, topic: str) -> str:
        """What will be done, in one line."""
        settings, policy = self.settings, self.policy
        commands = f"DRY RUN on {topic}" if settings.dry_run else f"commands on {topic}"
        known = "policy unknown"
        if policy is not None:
            weights = ", RANDOM WEIGHTS" if policy.random_weights else ""
            known = f"policy {_STATES.get(policy.state, policy.state)}{weights}"
        return (
            f"{settings.robot}, mode {settings.mode}, {commands}, velocity_scale "
            f"{settings.velocity_scale:g}, acceleration_scale {settings.acceleration_scale:g}, "
            f"{known}"
        )


def found_problems(findings: Findings, core: ExecutorCore, now_ns: int, ros_ns: int) -> list[str]:
    """One line for each thing that is not as motion needs it, without what the core finds."""
    lines = [findings.publisher_fault, *findings.topics, findings.gripper]
    if not core.interlocks.emergency_stop and not core.interlocks.enabled(now_ns):
        lines.append(core.interlocks.missing(now_ns, ros_ns))
    lines.append(_policy_problem(findings.settings, findings.policy))
    return [line for line in lines if line]


def _policy_problem(settings: ExecutorSettings, policy: PolicyStatus | None) -> str:
    if policy is None:
        return "no policy_status has been heard: start the policy"
    if policy.state == PolicyStatus.ERROR:
        return f"the policy has failed: {policy.error}"
    if policy.state not in (PolicyStatus.READY, PolicyStatus.BUSY):
        state = _STATES.get(policy.state, str(policy.state))
        return (
            f"the policy is {state} ({policy.step}, {100 * policy.progress:.0f} %), expected READY"
        )
    if policy.random_weights and not (settings.dry_run or settings.allow_random_weights):
        return "the policy has random weights: use dry_run, or allow_random_weights in a simulator"
    return why_impossible(settings, float(policy.latency_p95_s))
