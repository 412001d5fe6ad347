"""What a real Kafka needs that this package does not carry: a JVM and Kafka's jars.

Their absence is an error of its own, so that a test may be skipped for this reason and no other.
The message always names what is missing, what was looked at, and how to get it.

Owner: none; it holds no state.
"""

from __future__ import annotations

from pykclient.errors.base import KafkaError

__all__ = ["MissingPrerequisiteError"]


class MissingPrerequisiteError(KafkaError):
    """Something that must be on this machine is not; the message says how to get it."""
