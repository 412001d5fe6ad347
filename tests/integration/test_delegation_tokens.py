"""A delegation token of a real cluster authenticates, with ``tokenauth=true`` as Java has it.

Java's client is beside ours, with the same settings: both are accepted, or both are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from pykclient import Admin
from pykclient.errors import AuthenticationError
from pykclient.testing import ClusterSecurity
from tests.integration.java_tools import JavaError, java_list_topics, run_tool
from tests.soak import OWN_BROKERS
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

JAVA_VERSION: Final = "4.3.1"
MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM: Final = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
SECURITY: Final = ClusterSecurity(
    listeners=("SASL_PLAINTEXT",), mechanisms=("SCRAM-SHA-256",), users={"alice": "alice-secret"}
)


def login(user: str, password: str, option: str = "") -> dict[str, str]:
    return {
        **SCRAM,
        "sasl.jaas.config": f'{MODULE} required username="{user}" password="{password}" {option};',
    }


@pytest.mark.promise("delegation tokens and client assertions authenticate as in Java's client")
def test_a_delegation_token_authenticates(
    kafka_cluster_factory: KafkaClusterFactory, tmp_path: Path
) -> None:
    config = {"delegation.token.secret.key": "key of the brokers"}
    with kafka_cluster_factory(config=config, security=SECURITY) as cluster:
        servers = {"bootstrap.servers": cluster.client_settings()["bootstrap_servers"]}
        file = tmp_path / "alice.properties"
        lines = (f"{key}={value}\n" for key, value in login("alice", "alice-secret").items())
        file.write_text("".join(lines))
        printed = run_tool(
            cluster.version,
            "org.apache.kafka.tools.DelegationTokenCommand",
            *("--bootstrap-server", servers["bootstrap.servers"], "--create"),
            *("--command-config", str(file), "--max-life-time-period", "-1"),
        ).decode()
        found = re.search(r"^(\S+) (\S+) +User:alice", printed, re.MULTILINE)
        assert found is not None, printed
        token = found[1], found[2]

        def is_known() -> bool:
            """Tell whether the token works: a broker may learn of it after the controller."""
            try:
                with Admin({**servers, **login(*token, "tokenauth=true")}) as admin:
                    return admin.list_topics() == {}
            except AuthenticationError:
                return False

        await_true(is_known, "the token authenticates")
        right = {**servers, **login(*token, "tokenauth=true")}
        assert java_list_topics(JAVA_VERSION, right) == set()
        wrong = {
            "no delegation token": login(*token),
            "another HMAC": login(token[0], token[1][::-1], "tokenauth=true"),
            "another token": login("no-such-token", token[1], "tokenauth=true"),
            "a user's password": login("alice", "alice-secret", "tokenauth=true"),
        }
        for case, settings in wrong.items():
            with (
                pytest.raises(AuthenticationError),
                Admin({**servers, **settings}) as admin,
            ):
                pytest.fail(f"{case}: {admin.list_topics()}")
            with pytest.raises(JavaError, match="SaslAuthenticationException"):
                pytest.fail(f"{case}: {java_list_topics(JAVA_VERSION, {**servers, **settings})}")
