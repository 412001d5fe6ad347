"""Which assignors a consumer has: the setting ``partition_assignment_strategy`` made objects.

Kafka's four are known by their names and by their Java classes; anything else is a class-valued
setting, checked for what an assignor must have.

Owner: no state.
Source: ``ConsumerPartitionAssignor.getAssignorInstances`` of Java; KIP-429.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pykclient.config.setting import Kind, object_list, resolve_class_setting
from pykclient.consumer.group.assignors.assignor import RebalanceProtocol
from pykclient.consumer.group.assignors.range import RangeAssignor
from pykclient.consumer.group.assignors.round_robin import RoundRobinAssignor
from pykclient.consumer.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.consumer.group.assignors.assignor import Assignor

__all__ = ["assignor_list", "common_protocol", "make_assignors"]

KEY: Final = "partition.assignment.strategy"
JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
BUILT_IN: Final[dict[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
JAVA_NAMES: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
MEMBERS: Final = ("name", "protocols", "user_data", "assign", "on_assignment")
"""What an assignor must have."""


def assignor_list() -> Kind[tuple[object, ...]]:
    """Several assignors: names, Java's class names, or what `object_list` takes; at least one."""
    others = object_list()

    def parse(value: object) -> tuple[object, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not items:
            raise ValueError("Give at least one.")
        return tuple(_built_in_name(item) or others.parse([item])[0] for item in items)

    return Kind(
        parse,
        f"a list of {', '.join(BUILT_IN)}, or assignors of your own ({others.allowed})",
        lambda value: ",".join(map(_java_name, value)),
    )


def make_assignors(chosen: Sequence[object]) -> tuple[Assignor, ...]:
    """Make the assignors of the setting, in its order.

    Raises:
        ConfigError: one cannot be imported or made, lacks what an assignor has, two have one name,
            or no rebalance protocol is common to all.
    """
    made = tuple(_make(each) for each in chosen)
    names = [assignor.name for assignor in made]
    if len(set(names)) < len(names):
        raise ConfigError(f"{KEY} has two assignors of one name: {', '.join(names)}.")
    common_protocol(made)
    return made


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the most advanced protocol that all assignors work with.

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


def _java_name(item: object) -> str:
    by_name = {name: java_name for java_name, name in JAVA_NAMES.items()}
    return f"{JAVA_PACKAGE}{by_name[item]}" if item in by_name else str(item)


def _built_in_name(item: object) -> str | None:
    if not isinstance(item, str):
        return None
    name = item.strip()
    name = JAVA_NAMES.get(name.removeprefix(JAVA_PACKAGE), name)
    return name if name in BUILT_IN else None
