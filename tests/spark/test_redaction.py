"""The pattern of docs/spark.md for Spark's redaction has each setting that is a secret."""

from __future__ import annotations

import re

import pytest

from pykclient.config.client_properties import config_class
from pykclient.config.unknown_keys import EVERY_CLIENT
from tests.spark.redaction import advised_pattern

OTHERS = ("sasl.oauthbearer.config", "sasl_oauthbearer_config")
"""Settings of plain text that may hold a secret."""


def secret_options() -> set[str]:
    """Return the names of all options with a secret, of other libraries, too, in each spelling."""
    names = {
        name
        for client in EVERY_CLIENT
        for setting in config_class(client).settings()
        if setting.is_password
        for name in (setting.key, setting.name, *setting.aliases)
    }
    names |= {spelled for name in names for spelled in (name.replace(".", "_"), *OTHERS)}
    return {f"kafka.{name}" for name in names}


@pytest.mark.promise("no plan, log, event log or error of a Spark query shows a secret")
def test_the_advised_pattern_has_every_secret_option() -> None:
    pattern = re.compile(advised_pattern())
    options = secret_options()
    assert {"kafka.ssl.key.pem", "kafka.ssl_key_pem", "kafka.sasl_plain_password"} <= options
    assert [name for name in sorted(options) if not pattern.search(name)] == []
    for shown in ("kafka.bootstrap.servers", "kafka.ssl.keystore.location", "subscribe"):
        assert not pattern.search(shown)
    # Spark looks at the text of values as well.
    for begin in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"):
        assert pattern.search(f"-----BEGIN {begin}-----")
