"""A driver: reads a topic, and prints where its executors, and it, import the package from.

Owner: the process itself.
"""

from __future__ import annotations

import importlib
import json
import sys

from pyspark.sql import SparkSession


def package_file(_: int) -> str:
    return str(importlib.import_module("spark_connector").__file__)


def main() -> None:
    options = json.loads(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    count = spark.read.format("pykafka").options(**options).load().count()
    files = set(spark.sparkContext.parallelize(range(4), 4).map(package_file).collect())
    sys.stdout.write(f"READ {json.dumps([count, sorted(files), package_file(0)])}\n")


if __name__ == "__main__":
    main()
