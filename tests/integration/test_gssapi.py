"""GSSAPI with a real broker and tickets of the tests' KDC; and its messages without them."""

from __future__ import annotations

import sys
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin
from pykclient.admin.config import AdminConfig
from pykclient.config.kerberos import KerberosLogin
from pykclient.errors import AuthenticationError, ConfigError, KafkaTimeoutError
from pykclient.network.sasl.gssapi import Gssapi
from pykclient.testing import ClusterSecurity
from tests.integration.kdc import REALM, Kdc, free_port, why_none
from tests.integration.test_security_matrix import administer, consume, produce
from tests.soak import NEWEST_FIRST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SETTINGS = {"security_protocol": "SASL_SSL", "bootstrap_servers": "h:9092"}
NEEDS_KDC = pytest.mark.skipif(bool(why_none()), reason=why_none())


# Settings.


def config(**changes: object) -> AdminConfig:
    return AdminConfig.from_settings({**SETTINGS, **changes})


@pytest.mark.parametrize(
    ("settings", "login"),
    [
        ({}, KerberosLogin("kafka", None, None, None, None)),
        (
            {
                "sasl_jaas_config": (
                    f'{MODULE} required useKeyTab=true storeKey=true keyTab="/a.keytab" '
                    f'principal="alice@X" serviceName="broker";'
                )
            },
            KerberosLogin("broker", None, "alice@X", "/a.keytab", None),
        ),
        (
            {
                "sasl.kerberos.keytab": "/a.keytab",
                "sasl.kerberos.principal": "alice@X",
                "sasl.kerberos.service.name": "broker",
            },
            KerberosLogin("broker", None, "alice@X", "/a.keytab", None),
        ),
        (
            {"sasl_kerberos_name": "alice@X", "sasl_kerberos_domain_name": "d"},
            KerberosLogin("kafka", "d", "alice@X", None, None),
        ),
        (
            {
                "sasl_jaas_config": (
                    f'{MODULE} required useTicketCache=true renewTicket=true ticketCache="/c";'
                )
            },
            KerberosLogin("kafka", None, None, None, "/c"),
        ),
    ],
)
def test_credentials_are_read_as_java_librdkafka_and_kafka_python_have_them(
    settings: dict[str, object], login: KerberosLogin
) -> None:
    assert config(**settings).kerberos == login


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sasl_kerberos_keytab": "a"}, "sasl_kerberos_keytab needs sasl_kerberos_principal"),
        (
            {
                "sasl_kerberos_principal": "a",
                "sasl_jaas_config": f'{MODULE} required principal="b";',
            },
            "sasl_kerberos_principal and principal in sasl_jaas_config disagree",
        ),
        (
            {"sasl_jaas_config": f"{MODULE} required useFirstPass=true;"},
            "has the option useFirstPass, which is not supported for Kerberos",
        ),
        (
            {"sasl_jaas_config": 'a.PlainLoginModule required username="a";'},
            f"sasl_mechanism=GSSAPI needs {MODULE}",
        ),
    ],
)
def test_what_contradicts_itself_or_is_unknown_is_refused(
    settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**settings)
    assert reason in str(caught.value)


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(
        ConfigError, match=r"which is the default.*pip install 'pykclient\[gssapi\]"
    ):
        Admin(SETTINGS)


# Messages: what the offer of layers comes to. The context is a stand-in, which wraps nothing.


class GssFailure(Exception):
    min_code = 0


class Context:
    """A context that is complete after its second step, as with mutual authentication."""

    def __init__(self, **_: object) -> None:
        self.complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token == b"bad":
            raise GssFailure("Major (1): x, Minor (7): Clock skew too great")
        self.complete = token is not None
        return None if self.complete else b"request"

    def unwrap(self, data: bytes) -> Any:
        return SimpleNamespace(message=data.removeprefix(b"wrapped "))

    def wrap(self, data: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + data)


FLAGS = SimpleNamespace(mutual_authentication=1, integrity=2, out_of_sequence_detection=4)
STAND_IN = SimpleNamespace(
    exceptions=SimpleNamespace(GSSError=GssFailure),
    RequirementFlag=FLAGS,
    NameType=SimpleNamespace(hostbased_service=1, kerberos_principal=2),
    Name=lambda name, _: name,
    Credentials=lambda **_: SimpleNamespace(name="alice@X"),
    SecurityContext=Context,
)


def begun() -> Gssapi:
    mechanism = Gssapi(STAND_IN, KerberosLogin("kafka", None, None, None, None), "h")
    assert mechanism.begin() == b"request"
    assert mechanism.user == "alice@X"
    return mechanism


def test_no_layer_is_chosen_among_those_that_are_offered() -> None:
    mechanism = begun()
    assert mechanism.respond(b"reply") == b""
    assert mechanism.respond(b"wrapped \x07\x00\xff\xff") == b"wrapped \x01\x00\x00\x00"
    assert mechanism.respond(b"") is None


@pytest.mark.parametrize("offer", [b"\x06\x00\xff\xff", b"\x00\x00\x00\x00", b"", b"\x01\x00"])
def test_a_broker_that_requires_a_layer_is_refused(offer: bytes) -> None:
    mechanism = begun()
    mechanism.respond(b"reply")
    with pytest.raises(AuthenticationError, match="requires a Kerberos security layer"):
        mechanism.respond(b"wrapped " + offer)


def test_a_failure_has_the_librarys_reason_and_the_cure() -> None:
    with pytest.raises(
        AuthenticationError, match="service kafka@h: Clock skew too great; set this machine's clock"
    ):
        begun().respond(b"bad")


# A broker and a KDC.


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with Kdc(tmp_path_factory.mktemp("kdc")) as found:
        yield found


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def kerberized(
    request: pytest.FixtureRequest, kdc: Kdc, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    keytab = kdc.keytab("kafka/127.0.0.1")
    kdc.keytab("kafka/other.test")
    security = ClusterSecurity(listeners=("SASL_PLAINTEXT",), mechanisms=("PLAIN",))
    broker = {
        "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": (
            f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
            f'principal="kafka/127.0.0.1@{REALM}";'
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
        cluster = kafka_cluster_factory(version=request.param, config=broker, security=security)
    with cluster:
        yield cluster


@pytest.fixture
def environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def alice(kdc: Kdc, kerberized: KafkaCluster, environment: None, tmp_path: Path) -> dict[str, Any]:
    assert environment is None
    name = f"alice-{tmp_path.name}".replace("_", "-")[:40]
    return {
        "bootstrap_servers": kerberized.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_kerberos_keytab": kdc.keytab(name),
        "sasl_kerberos_principal": f"{name}@{REALM}",
    }


@pytest.mark.promise("GSSAPI authenticates both sides, with a ticket from a keytab or from kinit")
@pytest.mark.kafka
@NEEDS_KDC
@OWN_BROKERS
def test_clients_work_by_a_keytab_and_by_a_ticket_that_is_there(
    kdc: Kdc, alice: dict[str, Any], tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    for use in (administer, produce, consume):
        use(alice, topic)
    cache = tmp_path / "cache"
    kdc.kinit(alice["sasl_kerberos_principal"].partition("@")[0], cache)
    by_ticket = {
        **{name: alice[name] for name in ("bootstrap_servers", "security_protocol")},
        "sasl_jaas_config": f'{MODULE} required useTicketCache=true ticketCache="FILE:{cache}";',
    }
    with Admin(by_ticket) as admin:
        assert topic in admin.list_topics()


@pytest.mark.kafka
@NEEDS_KDC
@OWN_BROKERS
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"sasl_kerberos_keytab": None, "sasl_kerberos_principal": None},
            "run kinit, or give sasl_kerberos_keytab",
        ),
        (
            {"sasl_kerberos_principal": f"mallory@{REALM}"},
            f"gave no ticket of mallory@{REALM}: check that it has",
        ),
        ({"sasl_kerberos_principal": "alice@NO.REALM"}, "gave no ticket of alice@NO.REALM"),
        (
            {"sasl_kerberos_service_name": "http"},
            "not found in Kerberos database; check the principal, sasl_kerberos_service_name",
        ),
        ({"sasl_kerberos_domain_name": "other.test"}, "the broker refused the user"),
    ],
)
def test_mistakes_are_errors_with_the_librarys_reason(
    alice: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    settings = {name: value for name, value in {**alice, **changes}.items() if value is not None}
    with Admin(settings) as admin, pytest.raises(AuthenticationError) as caught:
        admin.list_topics()
    assert reason in str(caught.value)


@pytest.mark.kafka
@NEEDS_KDC
@OWN_BROKERS
def test_a_keytab_that_is_away_is_refused_and_a_kdc_that_is_away_tried_again(
    kdc: Kdc, alice: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"no/such\.keytab' cannot be read: no such file"):
        Admin({**alice, "sasl_kerberos_keytab": "/no/such.keytab"})
    cache = tmp_path / "cache"
    kdc.kinit(alice["sasl_kerberos_principal"].partition("@")[0], cache)
    away = tmp_path / "krb5.conf"
    away.write_text(kdc.config.read_text().replace(str(kdc.port), str(free_port())))
    monkeypatch.setenv("KRB5_CONFIG", str(away))
    settings = {
        **{name: alice[name] for name in ("bootstrap_servers", "security_protocol")},
        "sasl_jaas_config": f'{MODULE} required ticketCache="FILE:{cache}";',
    }
    with Admin(settings) as admin:
        with pytest.raises(KafkaTimeoutError, match="Cannot contact any KDC for realm"):
            admin.list_topics(timeout=2.0)
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
        admin.list_topics()
