"""A driver that prints the hosts on which its tasks ran.

It runs again whenever the file named in its argument exists, and removes that file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

LOOK_S = 0.05


def host(_: int) -> str:
    return os.environ["SPARK_LOCAL_IP"]


def main() -> None:
    request = Path(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    while True:
        hosts: set[str] = set()
        while len(hosts) < 2:
            hosts.update(spark.sparkContext.parallelize(range(8), 8).map(host).collect())
        sys.stdout.write(f"HOSTS {json.dumps(sorted(hosts))}\n")
        sys.stdout.flush()
        while not request.exists():
            time.sleep(LOOK_S)
        request.unlink()


if __name__ == "__main__":
    main()
