"""How many examples: few by default and always the same, as many new ones as ``KVSCOPE_FUZZ_EXAMPLES`` says."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvscope",
    max_examples=int(os.environ.get("KVSCOPE_FUZZ_EXAMPLES", "60")),
    deadline=None,
    derandomize="KVSCOPE_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("kvscope")
