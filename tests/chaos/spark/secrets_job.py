"""A driver: sets a secret for everything that takes an option, and prints plans and errors.

Owner: the process itself.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET_OPTION = "kafka.client.rack"
"""A setting that takes any text, is sent to tasks, and is used there."""
JAAS = "kafka.sasl.jaas.config"
PROTOCOL = "kafka.security.protocol"


def failing(attempt: Callable[[], object]) -> None:
    """Print the error of an attempt, with its causes; it must fail."""
    try:
        attempt()
    except Exception:  # noqa: BLE001 - Spark's error, of any class, is under test
        sys.stdout.write(f"FAILED {traceback.format_exc()}\n")
    else:
        raise AssertionError("a secret that no client can use was accepted")


def main() -> None:
    job = json.loads(sys.argv[1])
    secret = Path(job["secret"]).read_text()
    spark = SparkSession.builder.getOrCreate()
    servers = {"kafka.bootstrap.servers": job["servers"]}
    # A setting that reaches the tasks; the plan would show it.
    read = {**servers, "subscribe": job["source"], SECRET_OPTION: secret}
    write = {**servers, "topic": job["sink"], SECRET_OPTION: secret}
    frame = spark.read.format("pykafka").options(**read).load()
    frame.explain(True)
    frame.select("value").write.format("pykafka").mode("append").options(**write).save()
    stream = (
        spark.readStream.format("pykafka").options(**read).option("startingOffsets", "earliest")
    )
    query = stream.load().select("value").writeStream.format("pykafka").options(**write)
    started = (
        query.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start()
    )
    started.awaitTermination()
    started.explain(True)

    refused = spark.read.format("pykafka").options(**servers, subscribe=job["source"])
    failing(lambda: refused.option(PROTOCOL, "SASL_PLAINTEXT").option(JAAS, secret).load().count())
    failing(
        lambda: (
            refused.option(PROTOCOL, "SSL").option("kafka.ssl.keystore.key", secret).load().count()
        )
    )
    failing(
        lambda: (
            frame.select("value")
            .write.format("pykafka")
            .mode("append")
            .options(**servers, topic=job["sink"])
            .option(PROTOCOL, "SASL_PLAINTEXT")
            .option(JAAS, secret)
            .save()
        )
    )
    streamed = (
        stream.option(PROTOCOL, "SASL_PLAINTEXT")
        .option(JAAS, secret)
        .load()
        .writeStream.format("noop")
    )
    failing(lambda: streamed.trigger(availableNow=True).start().awaitTermination())
    options = {
        **servers,
        "subscribe": job["source"],
        PROTOCOL: "SASL_SSL",
        "kafka.ssl.keystore.key": secret,
        JAAS: secret,
    }
    listed = ", ".join(f"`{key}` '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW seen USING pykafka OPTIONS ({listed})")
    failing(lambda: spark.table("seen").count())
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    spark.conf.set("spark.sql.debug.maxToStringFields", 1000)
    pem = f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----"
    every = {**dict.fromkeys(job["options"], secret), "kafka.misspelled": pem}
    writing = frame.select("value").write.format("pykafka").mode("append")
    # The plan is logged before a client reads the options.
    failing(lambda: writing.options(**servers, topic=job["sink"], **every).save())
    sys.stdout.write("DONE\n")


if __name__ == "__main__":
    main()
