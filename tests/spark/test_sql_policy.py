"""Whoever may write SQL gives options, and may not run code, read files or have requests sent.

The driver's process has one variable, which allows a module with a source of tokens, and none that
allows anything else. Commands of SQL set none.
"""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

from pykclient.testing import ClusterSecurity, FakeKafka
from tests.test_policy import SERVERS, TRIED, Tried, each_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

OAUTH: Final = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
REFUSED: Final = r"text from Spark's options may not |Option 'kafka\.\S+' cannot be used"
CLASSES: Final = "org.apache.kafka.common.config.provider"


@pytest.fixture(scope="module")
def brokers() -> Iterator[FakeKafka]:
    """Brokers of the attacker, which ask for a token."""
    security = ClusterSecurity(listeners=("SASL_PLAINTEXT",), mechanisms=("OAUTHBEARER",))
    with FakeKafka(security=security) as fake:
        yield fake


@pytest.fixture
def requested() -> Iterator[list[str]]:
    """Provide the paths requested from a server of the inner network, behind its address."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    paths.append(f"http://127.0.0.1:{server.server_port}/latest")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield paths
    server.shutdown()
    thread.join()
    server.server_close()


def select(spark: SparkSession, brokers: FakeKafka, settings: dict[str, str]) -> str:
    """Return Spark's error for reading a view with these settings."""
    options = {f"kafka.{key}": value for key, value in settings.items()}
    options |= {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": "t"}
    text = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    try:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING pykafka OPTIONS ({text})")
        spark.sql("SELECT * FROM v").collect()
    except PySparkException as error:
        return str(error)
    pytest.fail("the view can be read")


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
def test_sql_runs_no_command(spark: SparkSession, brokers: FakeKafka, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    settings = {**OAUTH, "oauth_cb": "os:system", "sasl.oauthbearer.config": f"touch {trace}"}
    spark.sql("SET spark.executorEnv.PYKCLIENT_ALLOWED_IMPORTS=os")
    complaint = select(spark, brokers, settings)
    assert not trace.exists()
    assert "oauth_cb: text from Spark's options may not name the function 'os:system'" in complaint
    assert "Text may name a source of tokens in sasl_oauth_token_provider." in complaint
    settings["sasl_oauth_token_provider"] = "os:getpid"
    del settings["oauth_cb"], settings["sasl.oauthbearer.config"]
    complaint = select(spark, brokers, settings)
    assert "add os to PYKCLIENT_ALLOWED_IMPORTS in the environment of the driver" in complaint


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
def test_sql_names_a_source_of_tokens_that_the_driver_allows(
    spark: SparkSession, brokers: FakeKafka
) -> None:
    options = {f"kafka.{key}": value for key, value in OAUTH.items()} | {
        "kafka.bootstrap.servers": brokers.bootstrap_servers,
        "kafka.sasl_oauth_token_provider": "tests.spark.token_source:Provider",
    }
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value", "'allowed' AS topic")
    rows.write.format("pykafka").options(**options).mode("append").save()
    text = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW allowed USING pykafka "
        f"OPTIONS ({text}, subscribe 'allowed')"
    )
    (row,) = spark.sql("SELECT count(*) AS count FROM allowed").collect()
    assert row["count"] == 3
    # The module has imported others, which are not allowed by that.
    named = {**OAUTH, "sasl_oauth_token_provider": "tests.spark.token_source:time.time"}
    complaint = select(spark, brokers, named)
    assert (
        "may not name 'tests.spark.token_source:time.time', which is defined in time" in complaint
    )
    named["sasl_oauth_token_provider"] = "tests.spark.small_sources:Provider"
    complaint = select(spark, brokers, named)
    assert "add tests.spark.small_sources to PYKCLIENT_ALLOWED_IMPORTS in the env" in complaint


def test_the_view_of_the_page_is_created(spark: SparkSession) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    (text,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert "localhost:9092" in text
    assert "subscribe 'orders'" in text
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value", "'orders' AS topic")
    with FakeKafka() as fake:
        address = {"kafka.bootstrap.servers": fake.bootstrap_servers}
        rows.write.format("pykafka").options(**address).mode("append").save()
        spark.sql(text.replace("localhost:9092", fake.bootstrap_servers))
        (row,) = spark.sql("SELECT count(*) AS count FROM orders").collect()
    assert row["count"] == 3


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
def test_sql_reads_no_variable_and_no_file(
    spark: SparkSession, brokers: FakeKafka, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("canary-5f20")
    for provider, reference in (
        ("EnvVarConfigProvider", "${p:HOME}"),
        ("DirectoryConfigProvider", f"${{p:{tmp_path}:secret}}"),
        ("FileConfigProvider", f"${{p:{tmp_path}/secret:canary-5f20}}"),
    ):
        settings = {
            "client.id": reference,
            "config.providers": "p",
            "config.providers.p.class": f"{CLASSES}.{provider}",
        }
        complaint = select(spark, brokers, settings)
        assert f"may not use the configuration provider '{provider}'" in complaint
        assert f"add {provider} to PYKCLIENT_ALLOWED_CONFIG_PROVIDERS and " in complaint


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
def test_sql_has_no_request_sent(
    spark: SparkSession, brokers: FakeKafka, requested: list[str], tmp_path: Path
) -> None:
    (url,) = requested
    key = "sasl.oauthbearer.token.endpoint.url"
    client = {
        "sasl.oauthbearer.client.id": "a",
        "sasl.oauthbearer.client.secret": "b",
    }
    complaint = select(spark, brokers, {**OAUTH, **client, key: url})
    assert requested == [url]
    assert f"add {url} to PYKCLIENT_ALLOWED_URLS in the environment of the driver" in complaint
    (tmp_path / "token").write_text("canary-5f20")
    complaint = select(spark, brokers, {**OAUTH, key: f"file://{tmp_path}/token"})
    assert f"add {tmp_path}/token to PYKCLIENT_ALLOWED_FILES in" in complaint


@pytest.mark.soak
@pytest.mark.parametrize(
    "tried",
    [each for each in TRIED if not each.is_local and each.client != "producer"],
    ids=each_of,
)
def test_sql_names_nothing_that_the_driver_does_not_allow(
    spark: SparkSession, brokers: FakeKafka, tried: Tried
) -> None:
    """Try each setting that names code, a file or a URL; a reader uses none of a producer's."""
    settings = {key: each for key, each in tried.settings.items() if key not in SERVERS}
    complaint = select(spark, brokers, settings)
    assert re.search(REFUSED, complaint), complaint[:2_000]
