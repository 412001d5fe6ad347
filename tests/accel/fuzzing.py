"""The number of generated cases for each test that compares both cores.

`make test` runs a bounded number, the same each time; PYKCLIENT_FUZZ_CASES sets another number, of
new ones (`make fuzz`).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

fuzz = settings(
    max_examples=int(os.environ.get("PYKCLIENT_FUZZ_CASES", "200")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
