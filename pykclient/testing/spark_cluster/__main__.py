"""``python -m pykclient.testing.spark_cluster``: a Spark cluster until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys

from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.spark_cluster.cluster import WORKER_HOSTS, SparkCluster


def main() -> int:
    """Start the cluster, print its addresses, and wait; return 1 without Spark or its Java."""
    parser = argparse.ArgumentParser(
        prog="python -m pykclient.testing.spark_cluster", description=__doc__
    )
    parser.add_argument("--cores", type=int, default=2, help="cores of each worker")
    parser.add_argument("--memory", default="1500m", help="memory of each worker")
    options = parser.parse_args()
    # Do the same as at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with SparkCluster(cores=options.cores, memory=options.memory) as cluster:
            sys.stdout.write(
                f"Spark's master: {cluster.master_url}, {cluster.web_url}; "
                f"workers on {', '.join(WORKER_HOSTS)}; logs in {cluster.folder}. Ctrl-C ends it.\n"
            )
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        pass
    except MissingPrerequisiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
