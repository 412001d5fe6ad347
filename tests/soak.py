"""Which tests run when: with few seeds, with the newest version, and with brokers of their own.

Owner: none; it holds no state.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.cluster import BOOTSTRAP_VARIABLE
from pykclient.testing.cluster.jars import KAFKA_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN_BROKERS = pytest.mark.skipif(
    bool(os.environ.get(BOOTSTRAP_VARIABLE)),
    reason=f"needs brokers of its own; {BOOTSTRAP_VARIABLE} names others",
)
"""For what breaks brokers, or looks into their files."""

NEWEST, *BETWEEN, OLDEST = KAFKA_VERSIONS

_SOAKED = [pytest.param(version, marks=pytest.mark.soak) for version in BETWEEN]

NEWEST_AND_OLDEST = [NEWEST, OLDEST, *_SOAKED]
"""Versions of Kafka for what depends on the version; those between for soak."""

NEWEST_FIRST = [NEWEST, *_SOAKED, pytest.param(OLDEST, marks=pytest.mark.soak)]
"""Versions of Kafka for what is not about a version: the newest, the others for soak."""


def seeds(count: int, *, soak_count: int, step: int = 1) -> Sequence[object]:
    """Parameters for the seeds below `soak_count`, of which those from `count` on are for soak.

    With `step` only the first of each so many is a parameter.
    """
    return [
        *range(0, count, step),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(count, soak_count, step)),
    ]
