"""A driver: prints on which hosts its tasks ran, and stays until it is ended."""

from __future__ import annotations

import json
import os
import signal
import sys

from pyspark.sql import SparkSession


def host(_: int) -> str:
    return os.environ["SPARK_LOCAL_IP"]


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    hosts: set[str] = set()
    while len(hosts) < 2:
        hosts.update(spark.sparkContext.parallelize(range(8), 8).map(host).collect())
    sys.stdout.write(f"HOSTS {json.dumps(sorted(hosts))}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
