"""``pykclient broker``: a broker for experiments and tests, without Java.

It is the fake cluster of `pykclient.testing` with one broker. It runs until Ctrl-C or SIGTERM,
which end it normally with status 0.

Owner: the main thread, which waits; the broker has its own thread.
"""

from __future__ import annotations

import signal
import socket
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from pykclient.cli.argument import as_path

if TYPE_CHECKING:
    import argparse

PORT: Final = 9092
PORT_MAX: Final = 65_535
LOOPBACK: Final = "127.0.0.1"

DESCRIPTION: Final = (
    "Serve Kafka's protocol to any client, for experiments and tests: one broker, with "
    "transactions and compaction, without replicas, quotas and security. Without --data everything "
    "is lost when it ends."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "broker", help="run a broker for experiments and tests", description=DESCRIPTION
    )
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        help="address to listen at (default: %(default)s, which only this machine reaches)",
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help="0 chooses a free port (default: %(default)s)"
    )
    parser.add_argument(
        "--advertised-host",
        metavar="HOST",
        help="host that clients connect to, if not --host: required with --host 0.0.0.0",
    )
    parser.add_argument(
        "--data", type=as_path, metavar="DIR", help="keep topics and offsets in this folder"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=1,
        metavar="N",
        help="partitions of a topic that sets no number (default: %(default)s)",
    )
    parser.add_argument(
        "--no-auto-create",
        action="store_true",
        help="do not create a topic when a client writes to it or looks it up",
    )
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    # Imported here: other commands do not need it.
    from pykclient.testing import FakeKafka

    if not 0 <= options.port <= PORT_MAX:
        options.parser.error(f"--port {options.port}: give a number from 0 to {PORT_MAX}")
    if options.advertised_host is None and _is_wildcard(options.host):
        options.parser.error(
            f"--host {options.host} is not an address that clients can connect to; give also "
            "--advertised-host, the name by which they reach this machine"
        )
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with FakeKafka(
            host=options.host,
            port=options.port,
            advertised_host=options.advertised_host,
            data=options.data,
            default_partition_count=options.partitions,
            auto_create_topics=not options.no_auto_create,
        ) as broker:
            if not _is_loopback(options.host):
                sys.stderr.write(
                    f"pykclient: the broker at --host {options.host} is open to everyone who can "
                    "reach it: it neither encrypts nor asks for a password\n"
                )
            where = "in memory" if options.data is None else f"in {options.data}"
            sys.stdout.write(
                f"Broker for experiments and tests at {broker.bootstrap_servers}, {where}; "
                "Ctrl-C ends it\n"
            )
            sys.stdout.flush()
            broker.wait()
    except KeyboardInterrupt:
        sys.stderr.write("pykclient: the broker has ended\n")
    finally:
        signal.signal(signal.SIGTERM, handler)
    return 0


def _is_wildcard(host: str) -> bool:
    """Return whether a host means every address of this machine: 0.0.0.0, ::, 0 or 0::0."""
    return any(address.is_unspecified for address in _addresses(host))


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    return all(address.is_loopback for address in _addresses(host))


def _addresses(host: str) -> list[IPv4Address | IPv6Address]:
    """Return the addresses of a host; none if it is invalid, which FakeKafka reports."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return []
    return [ip_address(found)]
