"""The table of what is generated. To use another API, add its name here and run the tool."""

from __future__ import annotations

__all__ = ["APIS", "DATA", "MASKED"]

APIS = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "FindCoordinator",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "SaslAuthenticate",
    "DescribeCluster",
)
"""Names as in the schemas, without "Request" and "Response"; one module each."""

DATA: dict[str, tuple[str, ...]] = {}
"""Module name -> schemas that belong to no API."""

MASKED = frozenset({"AuthBytes", "Password", "SaltedPassword", "Salt", "Hmac"})
"""Fields whose values never show in a message's representation."""
