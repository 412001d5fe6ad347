"""``pykclient spark``: transactions of exactly-once sinks, and checkpoints (`checkpoint.py`).

A query that does not come back leaves transactions open, and readers of what is committed wait
behind them until their time is over. Settling a sink does what the query would do at its next
start.

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
    "Mend what Spark queries left: transactions of exactly-once sinks, and checkpoints."
)
BAD_STATUS: Final = 1


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "spark", help="mend what a Spark query left", description=DESCRIPTION
    )
    parts = add_parts(parser, "parts", "PART")
    aim = "show what the query of a sink has open, and settle it where it will not come back"
    part = parts.add_parser("transactions", help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    add_cluster_options(part)
    part.add_argument(
        "sink",
        nargs="?",
        metavar="SINK",
        help="the sink, by its option sinkId; without it all sinks are listed",
    )
    part.add_argument(
        "--execute",
        action="store_true",
        help="commit what the query has decided, and abort the rest; without it nothing changes. A "
        "query that still runs fails then, and loses nothing",
    )
    part.set_defaults(run=run_transactions)
    add_checkpoint_part(parts)


def run_transactions(options: argparse.Namespace) -> int:
    # The commands of other parts do not wait for it.
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
                "`pykclient spark transactions` lists those that there are\n"
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
        sys.stderr.write("pykclient: nothing is open\n")
    else:
        sys.stderr.write(
            "pykclient: nothing was changed; if the query will not come back, give --execute to "
            "commit what is decided, and abort the rest\n"
        )


def _report(settled: Settled) -> int:
    committed = len(settled.decided) - len(settled.missing)
    sys.stderr.write(
        f"pykclient: {committed} transactions are committed, {len(settled.aborted)} aborted\n"
    )
    if settled.missing:
        tasks = ", ".join(f"task {each.task}: {each.row_count}" for each in settled.missing)
        sys.stderr.write(
            f"pykclient: of the last batch rows are missing, which brokers had aborted ({tasks}); "
            "the query writes them again when it is started\n"
        )
        return BAD_STATUS
    return 0
