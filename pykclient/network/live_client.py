"""LiveClient: how a client shows itself, and what it refuses, being bound to its process.

A method that confluent-kafka or kafka-python has, and this client has under another name or not at
all, is an AttributeError with what takes its place.

Owner: none; it holds no state.
Source: ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.config.client import ClientConfig

_NOT_NEEDED: Final = "it is not needed: a thread of its own sends, and calls back"
INSTEAD: Final[dict[str, dict[str, str]]] = {
    "Producer": {
        "produce": "use send(topic, value, key=..., on_delivery=...)",
        "produce_batch": "use send_batch(topic, values, ...)",
        "send_and_wait": "use send(topic, value).result(timeout)",
        "poll": _NOT_NEEDED,
        "list_topics": "use partitions_for(topic), or Admin.list_topics()",
    },
    "Consumer": {
        "consume": "use poll(timeout, max_records)",
        "getone": "use poll(timeout, 1)",
        "getmany": "use poll(timeout)",
        "get_watermark_offsets": "use beginning_offsets(partitions) and end_offsets(partitions)",
        "topics": "use list_topics()",
        "highwater": "use current_lag(partition), or end_offsets(partitions)",
        "partitions_for_topic": "use partitions_for(topic)",
        "store_offsets": "use store_offset(record)",
        "incremental_assign": "use assign(partitions), which keeps the positions of those it had",
        "incremental_unassign": "use assign(partitions) with those that are left",
        "unassign": "use unsubscribe()",
        "memberid": "use group_metadata().member_id",
        "consumer_group_metadata": "use group_metadata()",
    },
    "Admin": {
        "poll": _NOT_NEEDED,
        "list_consumer_groups": "use list_groups()",
        "describe_consumer_groups": "use describe_groups(groups)",
        "delete_consumer_groups": "use delete_groups(groups)",
        "list_consumer_group_offsets": "use list_group_offsets(group)",
        "alter_consumer_group_offsets": "use alter_group_offsets(group, offsets)",
        "alter_configs": "use incremental_alter_configs(configs)",
        "list_offsets": "use end_offsets(partitions) and offsets_for_times(...) of a Consumer",
    },
}
"""What takes the place of other clients' methods, by the names of the classes here."""


_LISTENER: Final = "give listener=RebalanceListener(on_assigned=, on_revoked=, on_lost=)"
_COMMITS: Final = "commit() waits, and commit_async() does not"
KEYWORDS_INSTEAD: Final = {
    "timeout_ms": "the time is timeout, in seconds",
    "num_messages": "give max_records",
    "message": "give the record, as the first argument",
    "asynchronous": _COMMITS,
    "on_assign": _LISTENER,
    "on_revoke": _LISTENER,
    "on_lost": _LISTENER,
}
"""What takes the place of other clients' arguments of a consumer's methods, by their names."""


class _Elsewhere:
    """A method that other clients have: to look it up is an error with what takes its place.

    It is not `__getattr__` that does this, with which every look-up of a method takes longer.
    """

    def __init__(self, name: str, instead: str) -> None:
        self.__doc__ = f"Not here: {instead}."
        self._name = name
        self._instead = instead

    def __get__(self, client: object, kind: type) -> NoReturn:
        raise AttributeError(
            f"{kind.__name__} has no {self._name}(): {self._instead}", name=self._name, obj=client
        )


class LiveClient:
    """A client that is neither pickled nor copied."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        elsewhere = {name for kind in type(self).__mro__ for name in INSTEAD.get(kind.__name__, ())}
        return [name for name in super().__dir__() if name not in elsewhere]

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__name__
        raise UsageError(
            f"a {kind} cannot be pickled or copied: it has connections, locks and threads of this "
            f"process. Send its settings (a dict, or functools.partial({kind}, ...)) and make one "
            f"where it is used"
        )


def explain_keywords(error: BaseException, keywords: Iterable[str]) -> None:
    """Have a refused call say what takes the place of the arguments that other clients have."""
    if type(error) is TypeError and "unexpected keyword argument" in str(error):
        for name in keywords:
            if name in KEYWORDS_INSTEAD:
                error.add_note(f"There is no {name} here: {KEYWORDS_INSTEAD[name]}.")


def explain_methods_of_others(kind: type[LiveClient]) -> None:
    """Have a client say what takes the place of methods that other clients have.

    They are set where type checkers and editors do not see them.
    """
    for name, instead in INSTEAD[kind.__name__].items():
        setattr(kind, name, _Elsewhere(name, instead))


def describe_client(client: LiveClient, config: ClientConfig, state: str, about: str = "") -> str:
    """Return a client as `repr` shows it: its id, where its cluster is, and its state."""
    addresses = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    name = config.client_id or "without client_id"
    return f"<{type(client).__name__} {name} at {addresses}{about}: {state}>"
