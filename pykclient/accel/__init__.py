"""The hot loops, twice: chooses the compiled or the pure implementation, once, at import.

`implementation` names the choice. The environment variable ``PYKCLIENT_ACCEL`` forces it:
``pure`` or ``compiled``.

Owner: no state after import.
"""

from __future__ import annotations

import os
from typing import Final

from pykclient.accel import pure
from pykclient.errors.base import ConfigError

__all__ = [
    "ConsumerRecord",
    "Delivery",
    "RecordAppender",
    "SendCore",
    "TopicAppenders",
    "crc32c",
    "decode_records",
    "implementation",
    "iterate_records",
    "murmur2",
]


def choose(wanted: str | None) -> str:
    """Return the implementation to use: `wanted`, or the fastest there is when it is None.

    Raises:
        ConfigError: there is no such implementation, or it is not built.
    """
    if wanted in (None, "", "pure"):
        return "pure"
    if wanted == "compiled":
        raise ConfigError(
            "PYKCLIENT_ACCEL=compiled: this build has no compiled core; "
            "unset PYKCLIENT_ACCEL or set it to pure"
        )
    raise ConfigError(f"PYKCLIENT_ACCEL={wanted}: the choices are pure and compiled")


implementation: Final = choose(os.environ.get("PYKCLIENT_ACCEL"))

ConsumerRecord = pure.ConsumerRecord
Delivery = pure.Delivery
RecordAppender = pure.RecordAppender
SendCore = pure.SendCore
TopicAppenders = pure.TopicAppenders
crc32c = pure.crc32c
decode_records = pure.decode_records
iterate_records = pure.iterate_records
murmur2 = pure.murmur2
