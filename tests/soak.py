"""Soak: of seeds and of versions a few are for every run of the tests, the rest for `make soak`.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.jars import KAFKA_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NEWEST_FIRST", "seeds"]

NEWEST_FIRST = [
    KAFKA_VERSIONS[0],
    *(pytest.param(version, marks=pytest.mark.soak) for version in KAFKA_VERSIONS[1:]),
]
"""Versions of Kafka for what is not about a version: the newest, the others for soak."""


def seeds(count: int, *, soak_count: int, step: int = 1) -> Sequence[object]:
    """Parameters for the seeds below `soak_count`, of which those from `count` on are for soak.

    With `step` only the first of each so many is a parameter.
    """
    return [
        *range(0, count, step),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(count, soak_count, step)),
    ]
