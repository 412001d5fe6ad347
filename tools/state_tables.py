"""`python -m tools.state_tables [--check]`: write docs/design/states.md, or compare it.

The states and where each goes come from the tables in the code; when it goes there is said in
`tools/state_reasons.toml`. A reason for a transition that no table has is an error.
"""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.generated_document import write_or_compare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from enum import Enum

PATH: Final = Path("docs/design/states.md")
REASONS: Final = Path(__file__).parent / "state_reasons.toml"
INTRODUCTION: Final = """\
# States

<!-- Written by `python -m tools.state_tables` from the code and its reasons. Do not edit. -->

Every state machine of the library is an `Enum` and one table of transitions in the module named;
each change of state asserts that the table has it.
"""


class Machine(NamedTuple):
    """A machine: its key in the reasons, what it is, and where its table is."""

    key: str
    what: str
    module: str
    table: str = "NEXT"

    @property
    def transitions(self) -> dict[str, list[str]]:
        """The table, as the names of states in the order of their enumeration."""
        table: Mapping[Enum, Iterable[Enum]] = getattr(import_module(self.module), self.table)
        order = list(type(next(iter(table))))
        return {_name(state): [_name(to) for to in order if to in table[state]] for state in order}


MACHINES: Final = (
    Machine("batch", "A batch of the producer", "pykclient.producer.accumulator.batch"),
    Machine("result", "The result of a batch", "pykclient.producer.delivery"),
    Machine(
        "producer_id", "The producer id", "pykclient.producer.sender.idempotence", "NEXT_IDENTITY"
    ),
    Machine(
        "sequence",
        "The sequence of a partition",
        "pykclient.producer.sender.idempotence",
        "NEXT_RUN",
    ),
    Machine("transaction", "Transactions", "pykclient.producer.sender.transaction_state"),
    Machine("exactly_once", "A batch of `ExactlyOnce`", "pykclient.exactly_once"),
    Machine(
        "sink", "The record of Spark's exactly-once sink", "spark_connector.exactly_once.record"
    ),
    Machine("connection", "A connection", "pykclient.network.broker.connection"),
    Machine("handshake", "A connection's handshake", "pykclient.network.broker.handshake"),
    Machine(
        "authentication",
        "An authentication by SASL",
        "pykclient.network.broker.authentication",
    ),
    Machine("tls", "The TLS stream of a connection", "pykclient.network.io.tls"),
    Machine("node", "Whether a node can be reached", "pykclient.network.broker.nodes"),
    Machine("metadata", "Metadata", "pykclient.network.cluster.metadata"),
    Machine("coordinator", "A coordinator, by key", "pykclient.network.coordinators"),
    Machine("position", "A position", "pykclient.consumer.subscription"),
    Machine("session", "A fetch session", "pykclient.consumer.fetch.session"),
    Machine(
        "classic", "A member of a classic group", "pykclient.consumer.group.classic.membership"
    ),
    Machine("kip848", "A member of a KIP-848 group", "pykclient.consumer.group.kip848.membership"),
    Machine(
        "auto", "A member with `group_protocol=auto`, above both", "pykclient.consumer.group.auto"
    ),
    Machine("admin_key", "A key of an admin call", "pykclient.admin.call"),
    Machine(
        "fake_classic",
        "A classic group of the fake cluster",
        "pykclient.testing.fake.groups.classic.state",
    ),
    Machine(
        "fake_transaction",
        "A transactional id of the fake cluster",
        "pykclient.testing.fake.transactions.metadata",
    ),
    Machine(
        "fake_authentication",
        "A client's authentication at a fake broker",
        "pykclient.testing.fake.authentication",
    ),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    return write_or_compare(arguments, "tools.state_tables", PATH, lambda _: document(reasons))


def document(reasons: Mapping[str, Mapping[str, str]]) -> str:
    """Return the whole document.

    Raises:
        ValueError: a reason is given for a machine or a transition that there is not.
    """
    unknown = set(reasons) - {machine.key for machine in MACHINES}
    if unknown:
        raise ValueError(f"there is no state machine {', '.join(sorted(unknown))}")
    parts = [INTRODUCTION]
    for machine in MACHINES:
        parts.append(f"## {machine.what}\n\n`{machine.module}`\n")
        parts.append("| state | goes to | when |\n| --- | --- | --- |")
        parts.extend(_rows(machine, reasons.get(machine.key, {})))
        parts.append("")
    return "\n".join(parts)


def _rows(machine: Machine, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the rows of one machine: one for each reason, with all states that share it."""
    left = dict(reasons)
    for state, following in machine.transitions.items():
        by_reason: dict[str, list[str]] = {}
        for to in following:
            key = f"{state} > {to}"
            shared = f"any > {to}"
            used = key if key in reasons else shared
            left.pop(used, None)
            by_reason.setdefault(reasons.get(used, ""), []).append(to)
        if not following:
            yield f"| {state} | | |"
        for number, (reason, targets) in enumerate(by_reason.items()):
            yield f"| {'' if number else state} | {', '.join(targets)} | {reason} |"
    if left:
        raise ValueError(f"{machine.key} has no transition {', '.join(sorted(left))}")


def _name(state: Enum) -> str:
    return state.name.lower().replace("_", " ")


if __name__ == "__main__":
    raise SystemExit(main())
