"""Assignors of the setting ``partition_assignment_strategy``.

Kafka's four and ``fewest-brokers`` have names, which the config has checked. Any other value is a
class or an object, which is checked for the members of an assignor.

Owner: none, it has no state.
Source: ``ConsumerPartitionAssignor.getAssignorInstances`` of Java; KIP-429.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.config.setting import resolve_class_setting
from pykclient.consumer.group.assignors.assignor import RebalanceProtocol
from pykclient.consumer.group.assignors.fewest_brokers import FewestBrokersAssignor
from pykclient.consumer.group.assignors.range import RangeAssignor
from pykclient.consumer.group.assignors.round_robin import RoundRobinAssignor
from pykclient.consumer.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.consumer.group.assignors.assignor import Assignor

KEY: Final = "partition.assignment.strategy"
BUILT_IN: Final[dict[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    "fewest-brokers": FewestBrokersAssignor,
}
MEMBERS: Final = ("name", "protocols", "user_data", "assign", "on_assignment")
"""Members that an assignor must have."""


def make_assignors(chosen: Sequence[object]) -> tuple[Assignor, ...]:
    """Create the assignors of the setting, in its order.

    Raises:
        ConfigError: one cannot be imported or created, or lacks a member; two have the same name;
            or no rebalance protocol is common to all.
    """
    made = tuple(_make(each) for each in chosen)
    names = [assignor.name for assignor in made]
    if len(set(names)) < len(names):
        raise ConfigError(f"{KEY} has two assignors with one name: {', '.join(names)}.")
    common_protocol(made)
    return made


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the most advanced protocol that all assignors support.

    Raises:
        ConfigError: there is none.
    """
    common = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigError(
            f"{KEY}={names}: no rebalance protocol (eager, cooperative) is common to all of them."
        )
    return max(common)


def _make(chosen: object) -> Assignor:
    if isinstance(chosen, str) and chosen in BUILT_IN:
        return BUILT_IN[chosen]()
    made = resolve_class_setting(KEY, chosen)
    missing = [name for name in MEMBERS if not hasattr(made, name)]
    if missing:
        raise ConfigError(f"{KEY} has {made!r:.100}, which lacks {', '.join(missing)}.")
    return cast("Assignor", made)
