"""AdminCore: the admin client without waiting: its engine, and the decisions of its calls.

Owner: the admin lock.
Source: Java class ``KafkaAdminClient``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pykclient.admin.call import AdminCall, AdminCalls
from pykclient.admin.groups import (
    ALL_BROKERS,
    DescribeClassicGroups,
    DescribeConsumerGroups,
    ListBrokers,
    ListGroups,
)
from pykclient.admin.topics import DescribeTopics
from pykclient.admin.transactions import DescribeTransactions, ListTransactions
from pykclient.errors import (
    AdminCallError,
    ClosedError,
    GroupIdNotFoundError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.broker.client import NetworkClient
from pykclient.network.broker.errors import both
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.drive import Until, now_ms
from pykclient.network.engine import Engine
from pykclient.network.log import ClientLog, LongWaits
from pykclient.network.retry import Attempt, Backoff
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from pykclient.admin.call import AdminHandler
    from pykclient.admin.config import AdminConfig
    from pykclient.admin.groups import GroupDescription, GroupListing
    from pykclient.admin.prepared_transactions import EndTransactions
    from pykclient.admin.transactions import TransactionDescription, TransactionListing
    from pykclient.metrics import MetricName
    from pykclient.network.drive import Decisions
    from pykclient.network.io.port import Port
    from pykclient.protocol.messages.list_transactions import ListTransactionsRequest
    from pykclient.types import Node

SPREAD_MS_MAX: Final = 5_000
"""Maximum time that a call waits until all brokers have a change in their metadata."""

NOT_OF_KIP_848: Final = (GroupIdNotFoundError, UnsupportedVersionError)
"""Errors that mean the group is not of KIP-848, or the broker does not support KIP-848."""

KeyT = TypeVar("KeyT", bound="Hashable")
ValueT = TypeVar("ValueT")


class TimeLimit(NamedTuple):
    """The deadline of a call, and its time-out from the start."""

    deadline_ms: int
    timeout_ms: int


class AdminCore:
    def __init__(self, config: AdminConfig, port: Port) -> None:
        self.config = config
        self.metadata = Metadata(config, allow_auto_topic_creation=False)
        self.metadata.set_topics(())
        self.is_close_requested = False
        """True if the call under way must end because the client is being closed."""
        self._retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._client = NetworkClient(config, port, self.metadata)
        self._calls = AdminCalls()
        self._log = ClientLog("pykclient.admin", config.client_id)
        self._waits = LongWaits(self._log)
        self.engine = Engine(self._client, [self.metadata, self._calls])

    def metrics(self) -> dict[MetricName, float]:
        return self._client.metrics(now_ms())

    # Decisions.

    def run(
        self,
        handler: AdminHandler[KeyT, ValueT],
        keys: Iterable[KeyT],
        what: str,
        limit: TimeLimit,
        *,
        spread: Callable[[Sequence[KeyT]], AdminHandler[int, int]] | None = None,
        coordinators: dict[str, Node] | None = None,
    ) -> Decisions[dict[KeyT, ValueT]]:
        """Make a call; `spread` then waits until brokers have the change in their metadata."""
        call = self.new_call(handler, keys, limit.deadline_ms, coordinators)
        yield from self._finish(call, limit.deadline_ms)
        if call.values and spread is not None:
            yield from self._spread(spread(list(call.values)), limit.deadline_ms)
        return self.result(call, what, limit)

    def list_groups(
        self, states: Sequence[str], types: Sequence[str], limit: TimeLimit
    ) -> Decisions[tuple[GroupListing, ...]]:
        brokers = yield from self.run(ListBrokers(), (ALL_BROKERS,), "the list of", limit)
        handler = ListGroups(states, types, self.watch_brokers())
        listed = yield from self.run(handler, brokers[ALL_BROKERS], "the groups of brokers", limit)
        return tuple(group for groups in listed.values() for group in groups)

    def describe_groups(
        self, names: Sequence[str], limit: TimeLimit
    ) -> Decisions[dict[str, GroupDescription]]:
        """Request groups as KIP-848 groups first, then the remaining ones as classic groups."""
        what = "the description of groups"
        found: dict[str, Node] = {}
        call = self.new_call(DescribeConsumerGroups(found), names, limit.deadline_ms, found)
        yield from self._finish(call, limit.deadline_ms)
        others = [n for n, error in call.errors.items() if isinstance(error, NOT_OF_KIP_848)]
        classic = self.new_call(DescribeClassicGroups(found), others, limit.deadline_ms, found)
        yield from self._finish(classic, limit.deadline_ms)
        for name in others:
            del call.errors[name]
        call.errors.update(classic.errors)
        call.values.update(classic.values)
        if classic.unfinished:
            self.result(classic, what, limit)
        return self.result(call, what, limit)

    def list_transactions(
        self, request: ListTransactionsRequest, limit: TimeLimit
    ) -> Decisions[tuple[TransactionListing, ...]]:
        brokers = yield from self.run(ListBrokers(), (ALL_BROKERS,), "the list of", limit)
        handler = ListTransactions(request, self.watch_brokers())
        what = "the transactions of brokers"
        listed = yield from self.run(handler, brokers[ALL_BROKERS], what, limit)
        return tuple(each for listings in listed.values() for each in listings)

    def describe_transactions(
        self, names: Sequence[str], limit: TimeLimit
    ) -> Decisions[dict[str, TransactionDescription]]:
        found: dict[str, Node] = {}
        handler = DescribeTransactions(found)
        what = "the description of transactional ids"
        return (yield from self.run(handler, names, what, limit, coordinators=found))

    def end_transactions(
        self, handler: EndTransactions, names: Collection[str], what: str, limit: TimeLimit
    ) -> Decisions[None]:
        """End transactions; for several, the error has the failures by name."""
        call = self.new_call(handler, names, limit.deadline_ms)
        yield from self._finish(call, limit.deadline_ms)
        errors = self._errors(call, what, limit)
        if errors and len(names) > 1:
            raise _of_several(what, errors, len(names))
        self.result(call, what, limit)

    def run_at_leaders(
        self,
        handler: Callable[[Mapping[TopicPartition, int]], AdminHandler[TopicPartition, ValueT]],
        partitions: Iterable[TopicPartition],
        what: str,
        limit: TimeLimit,
    ) -> Decisions[dict[TopicPartition, ValueT]]:
        """Make a call at the leaders of partitions, and retry at a leader that has just changed.

        `handler` is called with the brokers of the leaders. It must treat a former leader's error
        as final.
        """
        values: dict[TopicPartition, ValueT] = {}
        left = list(partitions)
        attempt = Attempt(self._retry_backoff)
        while True:
            leaders = yield from self._leaders(left, limit)
            call = self.new_call(handler(leaders), left, limit.deadline_ms)
            yield from self._finish(call, limit.deadline_ms)
            values.update(call.values)
            moved = {
                key: error
                for key, error in call.errors.items()
                if isinstance(error, NotLeaderOrFollowerError)
            }
            if not moved or len(moved) < len(call.errors) or call.unfinished:
                call.values.update(values)
                return self.result(call, what, limit)
            left = list(moved)
            attempt.back_off(moved[left[0]], now_ms())
            if attempt.due_ms >= limit.deadline_ms:
                return self.result(call, what, limit)
            yield Until(lambda: self.is_close_requested, attempt.due_ms)

    def _leaders(
        self, partitions: Sequence[TopicPartition], limit: TimeLimit
    ) -> Decisions[dict[TopicPartition, int]]:
        topics = yield from self.run(
            DescribeTopics(),
            dict.fromkeys(partition.topic for partition in partitions),
            "the leaders of topics",
            limit,
        )
        leaders = {
            TopicPartition(name, info.partition): info.leader_id
            for name, topic in topics.items()
            for info in topic.partitions
        }
        found = {}
        for partition in partitions:
            if partition not in leaders:
                raise UnknownTopicOrPartitionError(f"{partition} does not exist")
            leader_id = leaders[partition]
            if leader_id is None:
                raise LeaderNotAvailableError(f"{partition} has no leader")
            found[partition] = leader_id
        return found

    def _finish(self, call: AdminCall[KeyT, ValueT], deadline_ms: int) -> Decisions[None]:
        """Wait until a call is done or its time is up. Raises fatal errors."""
        self.metadata.take_fatal_error()  # from the last call: this one tries again
        self._calls.call = call
        wait = self._waits.begin(call.name, lambda: self._why_unfinished(call), now_ms())
        try:
            for until_ms in dict.fromkeys((wait.until_ms(deadline_ms), deadline_ms)):
                if (yield Until(partial(self._is_over, call), until_ms)):
                    break
                wait.look(now_ms())
        finally:
            self._calls.call = None
        fatal_error = self.metadata.take_fatal_error()
        if not call.is_done and fatal_error is not None:
            raise fatal_error
        if self.is_close_requested:
            raise ClosedError("this admin client is closed; make a new one")

    def _is_over(self, call: AdminCall[KeyT, ValueT]) -> bool:
        is_ended = self.is_close_requested or self.metadata.fatal_error is not None
        return call.is_done or is_ended

    def _spread(self, handler: AdminHandler[int, int], deadline_ms: int) -> Decisions[None]:
        """Wait a limited time until all brokers know of a change."""
        until_ms = min(deadline_ms, now_ms() + SPREAD_MS_MAX)
        call = self.new_call(handler, self.metadata.cluster.nodes, until_ms)
        yield from self._finish(call, until_ms)
        if call.unfinished:
            self._log.warning(
                "brokers %s do not have the change in their metadata yet: %s",
                ", ".join(map(str, call.unfinished)),
                call.last_error,
            )

    # Steps of decisions.

    def watch_brokers(self) -> Callable[[int], bool]:
        """Return a function that checks whether a broker has left the cluster since now.

        The metadata may be too old to have the broker.
        """
        version = self.metadata.cluster.version

        def is_gone(broker_id: int) -> bool:
            cluster = self.metadata.cluster
            return cluster.version > version and broker_id not in cluster.nodes

        return is_gone

    def new_call(
        self,
        handler: AdminHandler[KeyT, ValueT],
        keys: Iterable[KeyT],
        deadline_ms: int,
        coordinators: dict[str, Node] | None = None,
    ) -> AdminCall[KeyT, ValueT]:
        return AdminCall(
            handler,
            keys,
            self.metadata,
            config=self.config,
            backoff=self._retry_backoff,
            deadline_ms=deadline_ms,
            coordinators=coordinators,
        )

    def result(
        self, call: AdminCall[KeyT, ValueT], what: str, limit: TimeLimit
    ) -> dict[KeyT, ValueT]:
        errors = self._errors(call, what, limit)
        distinct = list({id(error): error for error in errors.values()}.values())
        if len(distinct) == 1:
            raise distinct[0]
        if distinct:
            raise _of_several(what, errors, len(errors) + len(call.values))
        return call.values

    def _errors(
        self, call: AdminCall[KeyT, ValueT], what: str, limit: TimeLimit
    ) -> dict[KeyT, KafkaError]:
        """Return the error of each key that has failed or is not done in time."""
        errors: dict[KeyT, KafkaError] = dict(call.errors)
        if call.unfinished:
            why = self._why_unfinished(call) or "the brokers did not respond"
            names = ", ".join(map(str, call.unfinished))
            late = KafkaTimeoutError(f"waited {limit.timeout_ms} ms for {what} {names}: {why}")
            late.__cause__ = call.last_error
            errors.update(dict.fromkeys(call.unfinished, late))
        return errors

    def _why_unfinished(self, call: AdminCall[KeyT, ValueT]) -> str:
        reason = "" if call.last_error is None else str(call.last_error)
        return both(reason, self._client.describe_failures())


def _of_several(
    what: str, errors: Mapping[KeyT, KafkaError], requested_count: int
) -> AdminCallError:
    reasons = "; ".join(f"{key}: {error}" for key, error in errors.items())
    return AdminCallError(
        f"{what}: {len(errors)} of {requested_count} failed: {reasons}",
        errors={str(key): error for key, error in errors.items()},
    )
