"""Kafka versions for a campaign.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.testing.cluster.jars import KAFKA_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping


def versions_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions named in `CHAOS_VERSIONS`, by default all tested ones.

    Raises:
        ValueError: a version is not tested.
    """
    names = environment.get("CHAOS_VERSIONS", ",".join(KAFKA_VERSIONS)).split(",")
    if unknown := set(names) - set(KAFKA_VERSIONS):
        raise ValueError(f"{sorted(unknown)} are none of {', '.join(KAFKA_VERSIONS)}")
    return tuple(names)
