"""How many examples: few by default, as many as ``KVSCOPE_FUZZ_EXAMPLES`` says for a long run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvscope",
    max_examples=int(os.environ.get("KVSCOPE_FUZZ_EXAMPLES", "60")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("kvscope")
