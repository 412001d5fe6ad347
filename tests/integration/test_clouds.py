"""The settings of docs/clouds.md make clients, which write and read where the same is demanded."""

from __future__ import annotations

import os
import re
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykclient import Admin, Consumer, NewTopic, Producer, from_properties
from pykclient.admin.config import AdminConfig
from pykclient.config.assertion import Assertion
from pykclient.config.oidc import AZURE_IMDS, AZURE_IMDS_URL, GCP_METADATA_URL
from pykclient.config.setting import Password
from pykclient.errors import ConfigError
from pykclient.network.sasl.assertion import SignedAssertions
from pykclient.testing import ClusterSecurity, FakeKafka
from tests.integration.identity_server import IdentityServer
from tests.pages.programs import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = DOCS / "clouds.md"
BLOCK: Final = re.compile(
    r"^## (?P<service>[^\n]+)|^```properties\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
LOGIN_URL: Final = re.compile(r"https://login[^/]*/[^;\s\"]*")
TOKEN_FOLDER: Final = "/var/run/secrets/azure/tokens"
"""The folder of assertions that something else writes."""
PROFILES: Final = {
    "Redpanda": "redpanda",
    "WarpStream": "warpstream",
    "Azure Event Hubs": "event-hubs",
}
TIMEOUT_S: Final = 10.0
VALUES: Final = [b"%d" % number for number in range(20)]


def blocks() -> Iterator[Any]:
    service, count = "", 0
    for found in BLOCK.finditer(PAGE.read_text("utf-8")):
        if found["service"]:
            service, count = found["service"], 0
            continue
        count += 1
        yield pytest.param(service, found["text"], id=f"{service} {count}")


def secured_like(config: AdminConfig, service: str) -> FakeKafka:
    """Return a broker that demands what the settings offer, as the service it is."""
    security = ClusterSecurity(listeners=("MTLS",))
    if config.oidc is not None or config.has_gcp_tokens:
        security = ClusterSecurity(
            listeners=(config.security_protocol,), mechanisms=(config.sasl_mechanism,)
        )
    elif config.sasl_mechanism == "AWS_MSK_IAM" or config.has_aws_tokens:
        security = ClusterSecurity(
            listeners=(config.security_protocol,),
            mechanisms=(config.sasl_mechanism,),
            users={os.environ["AWS_ACCESS_KEY_ID"]: os.environ["AWS_SECRET_ACCESS_KEY"]},
        )
    elif config.credentials is not None:
        user, password = config.credentials
        assert isinstance(password, Password)
        assert not {"'", '"'} & {*user, *password.value}, "quotation marks of the form"
        security = ClusterSecurity(
            listeners=(config.security_protocol,),
            mechanisms=(config.sasl_mechanism,),
            users={user: password.value},
        )
    return FakeKafka(security=security, profile=PROFILES.get(service, "kafka"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the folder of files that settings name without a folder, with AWS credentials."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    return tmp_path


def put_files(fake: FakeKafka, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put the downloads of a service into the folder; the system trusts its authority as well."""
    settings = fake.client_settings()
    authority = Path(settings["ssl_truststore_location"])
    for name in ("ca.pem", "ca.crt"):
        (folder / name).write_bytes(authority.read_bytes())
    if "ssl_keystore_location" in settings:
        for name in ("client.pem", "service.cert", "service.key", "user.crt", "user.key"):
            (folder / name).write_bytes(Path(settings["ssl_keystore_location"]).read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(authority))
    return settings["bootstrap_servers"]


@pytest.mark.promise("settings copied from the consoles of cloud services work unchanged")
@pytest.mark.parametrize(("service", "text"), [*blocks()])
def test_the_settings_of_a_service_work(
    service: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "client.properties"
    text = prepared(text, folder, monkeypatch)
    file.write_text(text)
    config = AdminConfig.from_settings(from_properties(file, client="admin"))
    with secured_like(config, service) as fake, issuer(config, fake, folder) as identity:
        servers = put_files(fake, folder, monkeypatch)
        # The addresses are the only thing that is not as on the page.
        text = re.sub(r"(?m)^(bootstrap.servers)=.*$", rf"\1={servers}", text)
        if identity is not None:
            text = LOGIN_URL.sub(identity.token_url, text)
            if "azure_imds" in text:
                text += f"sasl.oauthbearer.token.endpoint.url={identity.imds_url}\n"
            allow_urls(monkeypatch, identity.token_url, identity.imds_url)
            monkeypatch.setenv("GCE_METADATA_HOST", identity.origin.rpartition("/")[2])
        file.write_text(text)
        topic = f"t-{uuid.uuid4().hex}"
        with Admin(from_properties(file, client="admin")) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        with Producer(from_properties(file, client="producer")) as producer:
            deliveries = [producer.send(topic, value) for value in VALUES]
            offsets = [delivery.result(timeout=TIMEOUT_S).offset for delivery in deliveries]
        assert offsets == [*range(len(VALUES))]
        settings = from_properties(file, client="consumer")
        with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            read: list[object] = []
            while len(read) < len(VALUES):
                records = consumer.poll(timeout=TIMEOUT_S)
                assert records, "nothing came"
                read += [record.value for record in records]
            consumer.commit()
        assert read == VALUES
        if identity is not None and config.oidc is not None:
            scopes = {request.form.get("scope", "") for request in identity.requests}
            assert scopes == {config.oidc.scope}


@contextmanager
def issuer(config: AdminConfig, fake: FakeKafka, folder: Path) -> Iterator[IdentityServer | None]:
    """Provide the identity server that the settings name, where they name one."""
    oidc = config.oidc
    if oidc is None and not config.has_gcp_tokens:
        yield None
        return
    has_https = oidc is not None and oidc.grant != AZURE_IMDS
    with IdentityServer(folder, fake.certificates if has_https else None) as identity:
        identity.is_signing = False  # fake brokers verify no signature
        identity.is_opaque = config.has_gcp_tokens
        if oidc is not None and isinstance(oidc.client_secret, Password):
            identity.clients = {oidc.client_id: oidc.client_secret.value}
        elif oidc is not None and oidc.assertion is not None:
            assert oidc.assertion.file is not None
            assertion = asserted(identity, oidc.client_id)
            Path(oidc.assertion.file).write_text(assertion)
        yield identity


def asserted(identity: IdentityServer, client_id: str) -> str:
    """Return an assertion that the server takes from now on."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    identity.assertion_keys[client_id] = key.public_key()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    claims = {"iss": client_id, "sub": client_id, "aud": identity.token_url}
    source = Assertion(
        None, None, Password(pem.decode()), None, "RS256", claims, 600, 60, False, None
    )
    return SignedAssertions(source).assertion(int(time.time())).value


def prepared(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return settings whose files are in a folder, where the process allows what they name.

    As Java's clients do, ours request tokens, and read them, where the process allows it.
    """
    allow_urls(monkeypatch, *LOGIN_URL.findall(text))
    monkeypatch.setenv("PYKCLIENT_ALLOWED_FILES", str(folder))
    (folder / "azure-identity-token").write_text("a.b.c")
    return text.replace(TOKEN_FOLDER, str(folder))


def allow_urls(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    allowed = (*urls, AZURE_IMDS_URL, GCP_METADATA_URL)
    monkeypatch.setenv("PYKCLIENT_ALLOWED_URLS", ",".join(allowed))


@pytest.mark.parametrize(("service", "text"), [*blocks()])
def test_clients_are_made_without_a_network(
    service: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is connected to, files aside; a setting changed by a letter is refused."""
    assert service
    text = prepared(text, folder, monkeypatch)
    file = folder / "client.properties"
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("ssl")))
    Producer(from_properties(file, client="producer")).close(timeout=0)
    Consumer(from_properties(file, client="consumer")).close(timeout=0)
    Admin(from_properties(file, client="admin")).close()
    file.write_text(text.replace("security", "secureity", 1))
    with pytest.raises(ConfigError, match=r"Did you mean 'security[._]protocol'"):
        Producer(from_properties(file, client="producer"))


def test_the_page_has_every_service() -> None:
    services = {param.values[0] for param in blocks()}
    assert services == {
        *("Confluent Cloud", "Amazon MSK", "Aiven", *PROFILES),
        *("Azure HDInsight", "Google Cloud Managed Service for Apache Kafka", "Strimzi"),
        *("Cloudera", "Other services with a password"),
    }
