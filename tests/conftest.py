"""What all tests share: Hypothesis profiles, chosen with HYPOTHESIS_PROFILE (fast or ci)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Test machines are shared and slow at times: an example that takes long is no failure.
settings.register_profile(
    "fast", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci", max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
