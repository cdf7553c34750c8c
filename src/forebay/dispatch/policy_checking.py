"""What must hold of an auto-resume policy before it is kept. Pure: all faults at once, each with its field named."""

from __future__ import annotations

import math
from collections.abc import Iterator

from forebay.dispatch.checking import ATTEMPTS_MAX, SECONDS_MAX
from forebay.dispatch.faults import FieldFault
from forebay.dispatch.retries import ResumePolicy
from forebay.model.queue import NAME_CHARACTERS_MAX

TEXT_CHARS_MAX = 10_000


def policy_faults(policy: ResumePolicy) -> Iterator[FieldFault]:
    if not 0 < len(policy.name) <= NAME_CHARACTERS_MAX:
        yield FieldFault("name", f"has {len(policy.name)} characters, allowed are 1 to {NAME_CHARACTERS_MAX}")
    if not (policy.error_text or policy.flow or policy.action):
        yield FieldFault("errorText", "at least one of errorText, flow and action is needed")
    for field, text in (("errorText", policy.error_text), ("flow", policy.flow), ("action", policy.action)):
        if len(text) > TEXT_CHARS_MAX:
            yield FieldFault(field, f"has {len(text)} characters, allowed are {TEXT_CHARS_MAX}")
    if not 2 <= policy.max_attempts <= ATTEMPTS_MAX:
        yield FieldFault("maxAttempts", f"{policy.max_attempts} is refused, allowed are 2 to {ATTEMPTS_MAX}")
    if policy.priority is not None and not -ATTEMPTS_MAX <= policy.priority <= ATTEMPTS_MAX:
        yield FieldFault("priority", f"{policy.priority} is refused, allowed are {-ATTEMPTS_MAX} to {ATTEMPTS_MAX}")
    for field, seconds in (("delaySeconds", policy.delay_seconds), ("maxDelaySeconds", policy.max_delay_seconds)):
        if not 0 <= seconds <= SECONDS_MAX:
            yield FieldFault(field, f"{seconds} is refused, allowed is 0 to {SECONDS_MAX:.0f} seconds")
    if policy.max_delay_seconds < policy.delay_seconds:
        yield FieldFault("maxDelaySeconds", f"{policy.max_delay_seconds} is less than the delay")
    if not (math.isfinite(policy.multiplier) and policy.multiplier >= 1):
        yield FieldFault("multiplier", f"{policy.multiplier} is below 1")
