"""``pykclient spark``: manage sinks' transactions, and queries' checkpoints (`checkpoint.py`).

Owner: the main thread.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.parts import add_parts
from pykclient.cli.spark.checkpoint import add_checkpoint_part
from pykclient.cli.table import write_rows
from pykclient.types import by_topic

if TYPE_CHECKING:
    import argparse

    from spark_connector.exactly_once.cluster import OpenTransaction
    from spark_connector.exactly_once.protocol import Settled

DESCRIPTION: Final = (
    "Repair what Spark queries left behind: transactions of exactly-once sinks, and checkpoints."
)
BAD_STATUS: Final = 1


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "spark", help="repair what a Spark query left behind", description=DESCRIPTION
    )
    parts = add_parts(parser, "parts", "PART")
    aim = "show a sink's open transactions, and settle them if its query will not restart"
    part = parts.add_parser("transactions", help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    add_cluster_options(part)
    part.add_argument(
        "sink",
        nargs="?",
        metavar="SINK",
        help="the sinkId of the sink; without it, list all sinks",
    )
    part.add_argument(
        "--execute",
        action="store_true",
        help="commit what the query has decided, and abort the rest; without this option nothing "
        "changes. A query that is still running then fails, without losing anything",
    )
    part.set_defaults(run=run_transactions)
    add_checkpoint_part(parts)


def run_transactions(options: argparse.Namespace) -> int:
    # Imported here: other commands do not need it.
    from spark_connector.exactly_once.cluster import SinkCluster, list_sinks
    from spark_connector.exactly_once.names import checked_sink_id
    from spark_connector.exactly_once.protocol import SinkProtocol

    admin_settings = client_settings(options, "admin")
    if options.sink is None:
        rows = [{"sink": name, "open": count} for name, count in list_sinks(admin_settings).items()]
        write_rows("sink", rows, is_json=options.json)
        if options.execute:
            sys.stderr.write("pykclient: nothing was changed; name the sink to settle\n")
        return BAD_STATUS if options.execute else 0
    sink_id = checked_sink_id(options.sink)
    producer_settings = client_settings(options, "producer", is_bounded=False)
    producer_settings["max.block.ms"] = round(options.timeout * 1000)
    with SinkCluster.of_record(sink_id, producer_settings, admin_settings) as cluster:
        record, found = cluster.record(), cluster.open_transactions()
        write_rows("transaction", [_row(each) for each in found], is_json=options.json)
        if record is None and not found:
            sys.stderr.write(
                f"pykclient: no query has written to sink {sink_id!r}; "
                "`pykclient spark transactions` shows the existing ones\n"
            )
            return BAD_STATUS
        if not options.execute:
            _advise(len(found))
            return 0
        return _report(cluster.run(SinkProtocol(sink_id, atomicity="").settle()))


def _row(found: OpenTransaction) -> dict[str, object]:
    start_ms = found.start_ms
    return {
        "transactional_id": found.transactional_id,
        "turn": found.turn,
        "is_decided": "yes" if found.is_decided else "no",
        "open_ms": None if start_ms is None else time.time_ns() // 1_000_000 - start_ms,
        "timeout_ms": found.timeout_ms,
        "partitions": by_topic(found.partitions),
    }


def _advise(open_count: int) -> None:
    if not open_count:
        sys.stderr.write("pykclient: no transactions are open\n")
    else:
        sys.stderr.write(
            "pykclient: nothing was changed; if the query will not restart, give --execute to "
            "commit what is decided, and abort the rest\n"
        )


def _report(settled: Settled) -> int:
    committed = len(settled.decided) - len(settled.missing)
    sys.stderr.write(
        f"pykclient: {committed} transactions were committed, {len(settled.aborted)} aborted\n"
    )
    if settled.missing:
        tasks = ", ".join(f"task {each.task}: {each.row_count}" for each in settled.missing)
        sys.stderr.write(
            f"pykclient: rows of the last batch are missing, since brokers aborted them ({tasks}); "
            "the query writes them again when it restarts\n"
        )
        return BAD_STATUS
    return 0
