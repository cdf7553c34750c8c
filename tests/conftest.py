"""How tests run here: fixtures come as small plugins, and Hypothesis looks harder when told to.

Servers start when the first test asks for one, so a run of unit tests starts none. `FOREBAY_TEST_THOROUGH=1`
lets Hypothesis try ten times as many examples.
"""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = [
    "fixtures.fix_postgres",
    "fixtures.fix_valkey",
    "fixtures.fix_chromium",
    "fixtures.fix_ordinary_user",
]

# Not derandomized: every run is to look somewhere new. A failure prints the blob that reproduces it, and a
# machine under load is no reason to fail, hence no deadline.
settings.register_profile("default", derandomize=False, print_blob=True, deadline=None, max_examples=100)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000, stateful_step_count=100)
settings.load_profile("thorough" if os.environ.get("FOREBAY_TEST_THOROUGH") == "1" else "default")
