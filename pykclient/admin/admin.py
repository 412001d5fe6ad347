"""Admin: manages topics, settings, groups and their offsets, and transactions.

Each method checks its arguments and lets the driver run the decisions of `AdminCore`. A client is
*open*, then *closed*. Calls from several threads queue.

Owner: the admin lock (`AdminDriver`).
Source: Java interface ``Admin``; KIP-133, KIP-339 (settings); KIP-222, KIP-396, KIP-496, KIP-848
(groups and their offsets); KIP-664 (transactions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from pykclient.admin.config import AdminConfig
from pykclient.admin.configs import (
    AlterConfigOp,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    check_resource,
)
from pykclient.admin.core import AdminCore
from pykclient.admin.driver import AdminDriver
from pykclient.admin.group_offsets import (
    AlterGroupOffsets,
    DeleteGroupOffsets,
    ListGroupOffsets,
    ListGroupOffsetsOnBroker,
)
from pykclient.admin.groups import DeleteGroups, FindCoordinators
from pykclient.admin.prepared_transactions import EndTransactions, prepared_by_id
from pykclient.admin.topics import (
    ALL_TOPICS,
    INT32_MAX,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeTopics,
    ListTopics,
    NewPartitions,
    NewTopic,
    PartitionsPresent,
    TopicsAbsent,
    TopicsPresent,
)
from pykclient.admin.transactions import (
    AbortTransactions,
    AbortTransactionSpec,
    DescribeProducers,
    transactions_request,
)
from pykclient.arguments import (
    check_text,
    is_number,
    name_list,
    offsets_by_partition,
    partition_list,
    shown_argument,
    value_list,
)
from pykclient.config.given_settings import hidden
from pykclient.errors import UsageError
from pykclient.network.io.canonical import with_canonical_names
from pykclient.network.io.secured import secured
from pykclient.network.io.selector import SelectorPort
from pykclient.network.live_client import LiveClient, describe_client, explain_names_of_others

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from pykclient.admin.call import AdminHandler
    from pykclient.admin.configs import ConfigEntry
    from pykclient.admin.groups import GroupDescription, GroupListing
    from pykclient.admin.topics import CreatedTopic, TopicDescription, TopicListing
    from pykclient.admin.transactions import (
        ProducerState,
        TransactionDescription,
        TransactionListing,
    )
    from pykclient.config.keywords import AdminSettings
    from pykclient.metrics import MetricName
    from pykclient.types import Node, OffsetAndMetadata, PreparedTransaction, TopicPartition

KeyT = TypeVar("KeyT", bound="Hashable")
ValueT = TypeVar("ValueT")


class Admin(LiveClient):
    """A client for topics, groups, transactions, settings and offsets.

    It may be used from many threads; their calls run one after the other. It does not survive a
    fork. Use it in a ``with`` block, or call `close`.

    Every call processes all the items it is given, such as topics. If one fails, its error is
    raised; if several fail, an `AdminCallError` has their errors by name. `timeout` is in seconds;
    None means `default_api_timeout_ms`.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[AdminSettings],
    ) -> None:
        """Create a client from the settings of `AdminConfig`: a mapping, keywords, or both.

        It connects at the first call.

        Raises:
            ConfigError: a setting is unknown, malformed or not supported yet.
        """
        given, named = hidden(settings, AdminConfig), hidden(keywords, AdminConfig)
        del settings, keywords  # tracebacks may show variables
        config = with_canonical_names(AdminConfig.from_settings(given, **named).named())
        sockets = SelectorPort.from_config(config)
        try:
            port = secured(sockets, config)
            self._core = AdminCore(config, port)
            self._driver = AdminDriver(self._core, port)
        except BaseException:
            sockets.shutdown()
            raise
        sockets.warn_if_dropped(
            self, f"{self!r} was not closed. Use it in a with block, or call close()"
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_driver"):  # its settings were invalid
            return object.__repr__(self)
        state = "closed" if self._driver.is_closed else "open"
        return describe_client(self, self._core.config, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Close all connections after the call under way has ended. A second close does nothing.

        A signal handler that closes the client during a call of the same thread makes that call
        raise `ClosedError`. In a child process it does nothing.

        Raises:
            KafkaTimeoutError: that call did not end within `timeout` seconds.
        """
        self._driver.close(timeout)

    def metrics(self) -> dict[MetricName, float]:
        """Return the metrics of the client's requests by name, in total and by broker.

        `docs/metrics.md` has the names, units and meanings. Metrics without a measurement are left
        out. Any thread may call it; it sends no request.
        """
        return self._core.metrics()

    # Topics.

    def create_topics(
        self, topics: Iterable[NewTopic], timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, and wait until every broker knows them and their partitions have leaders.

        A producer or consumer may then use them at once. The wait takes at most five seconds, and
        skips brokers that are down.

        Raises:
            TopicAlreadyExistsError, InvalidReplicationFactorError, InvalidConfigError and others:
                the broker's error for the one topic that was not created.
            AdminCallError: several topics were not created.
            UsageError: a topic is given twice, is not a `NewTopic`, or has an invalid name.
            KafkaTimeoutError: no response in time; the topics may have been created.
        """
        given = _new_topics(topics)
        by_name = {topic.name: topic for topic in given}
        if len(by_name) != len(given):
            raise UsageError("create_topics: a topic is given twice")
        handler = CreateTopics(by_name)
        return self._run(handler, by_name, "the creation of topics", timeout, spread=TopicsPresent)

    def create_partitions(
        self,
        new_partitions: Mapping[str, NewPartitions],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Increase the number of partitions of topics and wait until every broker knows them.

        Records stay where they are, so a key may go to another partition from then on. Running
        producers and consumers find new partitions within `metadata_max_age_ms`; until then, a
        group without `auto_offset_reset="earliest"` may miss the first records in them. The wait is
        limited as in `create_topics`. With `validate_only`, brokers only check the request.

        Raises:
            InvalidPartitionsError: the one topic already has as many partitions, or more: their
                number never decreases.
            UnknownTopicOrPartitionError, InvalidReplicaAssignmentError and others: the broker's
                error for the one topic that failed.
            AdminCallError: several topics failed.
            UsageError: a topic's name is invalid, or its value is not a `NewPartitions`.
            KafkaTimeoutError: no response in time; the partitions may have been created.
        """
        given = _new_partitions(new_partitions)
        handler = CreatePartitions(given, is_validated_only=validate_only)

        def spread(names: Sequence[str]) -> PartitionsPresent:
            return PartitionsPresent({name: given[name].total_count for name in names})

        what = "the creation of partitions of"
        self._run(handler, given, what, timeout, spread=None if validate_only else spread)

    def delete_topics(self, topics: Iterable[str], timeout: float | None = None) -> None:
        """Delete topics with all their records, and wait until no broker lists them.

        The wait is limited as in `create_topics`.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: the broker's
                error for the one topic that was not deleted.
            AdminCallError: several topics were not deleted.
            KafkaTimeoutError: no response in time; the topics may have been deleted.
        """
        names = name_list(topics, "topic", "delete_topics")
        what = "the deletion of topics"
        self._run(DeleteTopics(), names, what, timeout, spread=TopicsAbsent)

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> dict[str, TopicListing]:
        """Return the topics that this client may see, by name.

        Kafka's internal topics, such as `__consumer_offsets`, are included with `include_internal`.

        Raises:
            KafkaTimeoutError: no broker responded in time.
            BrokerError: a broker refuses.
        """
        topics = self._run(ListTopics(), (ALL_TOPICS,), "the list of", timeout)[ALL_TOPICS]
        if include_internal:
            return topics
        return {name: topic for name, topic in topics.items() if not topic.is_internal}

    def describe_topics(
        self, topics: Iterable[str], timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return topics with their partitions, leaders and replicas, by name.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: the broker's
                error for the one topic that cannot be described.
            AdminCallError: several topics cannot be described.
            KafkaTimeoutError: no broker responded in time.
        """
        names = name_list(topics, "topic", "describe_topics")
        return self._run(DescribeTopics(), names, "the description of topics", timeout)

    # Settings.

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        timeout: float | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return all settings of topics, brokers and other resources, by name.

        Sensitive settings have no value. `include_synonyms` adds the values that apply if a setting
        is removed, `include_documentation` (brokers 2.6 or newer, KIP-569) its meaning.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: the broker's
                error for the one resource that cannot be described.
            AdminCallError: several resources cannot be described.
            UnsupportedVersionError: the broker is too old for documentation.
            KafkaTimeoutError: no response in time; for a broker's settings, from that broker.
        """
        keys = list(dict.fromkeys(_resources(resources, "describe_configs")))
        handler = DescribeConfigs(
            has_synonyms=include_synonyms, has_documentation=include_documentation
        )
        return self._run(handler, keys, "the settings of", timeout)

    def incremental_alter_configs(
        self,
        configs: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        timeout: float | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some settings of topics, brokers and other resources; others stay as they are.

        The changes to one resource are atomic. Brokers 2.3 or newer (KIP-339); a change may take a
        moment to have effect. With `validate_only`, brokers only check the changes.

        Raises:
            InvalidConfigError: the broker rejects a setting or value of the one resource, with its
                reason.
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: another error of
                the broker for the one resource that was not changed.
            AdminCallError: several resources were not changed.
            UsageError: a resource has no change, or two for one setting.
            UnsupportedVersionError: the broker is too old.
            KafkaTimeoutError: no response in time; the settings may have been changed.
        """
        operations = _operations_by_resource(configs)
        handler = IncrementalAlterConfigs(operations, is_validated_only=validate_only)
        self._run(handler, operations, "the change of the settings of", timeout)

    # Groups.

    def list_groups(
        self,
        timeout: float | None = None,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
    ) -> dict[str, GroupListing]:
        """Return the groups of the cluster that this client may see, by name.

        `states` (such as ``["Stable", "Empty"]``; brokers 2.6 or newer, KIP-518) and `types`
        (``classic``, ``consumer``, ``share``, ``streams``; brokers 3.7 or newer, KIP-848) filter
        the groups; empty means all.

        Raises:
            UnsupportedVersionError: the one broker is too old for `states` or `types`.
            KafkaTimeoutError: a broker of the cluster did not respond in time.
            AdminCallError: several brokers failed; the errors are by their ids.
        """
        wanted_states = name_list(states, "state", "list_groups")
        wanted_types = name_list(types, "type", "list_groups")
        groups = self._driver.run(
            lambda limit: self._core.list_groups(wanted_states, wanted_types, limit), timeout
        )
        return {group.group_id: group for group in groups}

    def describe_groups(
        self, groups: Iterable[str], timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Return groups of both protocols with their members and assignments, by name.

        Raises:
            GroupIdNotFoundError, GroupAuthorizationFailedError and others: the broker's error for
                the one group that cannot be described.
            AdminCallError: several groups cannot be described.
            KafkaTimeoutError: a coordinator did not respond in time.
        """
        names = name_list(groups, "group", "describe_groups")
        found = self._driver.run(lambda limit: self._core.describe_groups(names, limit), timeout)
        return {name: found[name] for name in names}

    def find_coordinators(
        self, groups: Iterable[str], timeout: float | None = None
    ) -> dict[str, Node]:
        """Return the broker that coordinates each group, by name; the groups need not exist.

        Raises:
            GroupAuthorizationFailedError: this client may not see the one group.
            AdminCallError: it may not see several groups.
            KafkaTimeoutError: no broker responded in time.
        """
        names = name_list(groups, "group", "find_coordinators")
        return self._run(FindCoordinators(), names, "the coordinators of groups", timeout)

    def delete_groups(self, groups: Iterable[str], timeout: float | None = None) -> None:
        """Delete groups without members, with all their committed offsets.

        Raises:
            NonEmptyGroupError, GroupIdNotFoundError and others: the broker's error for the one
                group that was not deleted.
            AdminCallError: several groups were not deleted.
            KafkaTimeoutError: no response in time; the groups may have been deleted.
        """
        names = name_list(groups, "group", "delete_groups")
        self._run(DeleteGroups(), names, "the deletion of groups", timeout)

    def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
        *,
        require_stable: bool = False,
        coordinator_id: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, for some partitions or (None) all.

        Partitions without an offset are left out, so a group that does not exist has none.
        `require_stable` waits for transactions that are about to commit offsets of `partitions`
        (brokers 2.5 or newer, KIP-447). `coordinator_id` is the only broker to ask, to compare the
        responses of several; with it, the call does not wait for transactions.

        Raises:
            NotCoordinatorError: the broker `coordinator_id` does not coordinate the group.
            UnstableOffsetCommitError: with `coordinator_id`, a transaction is about to commit.
            GroupAuthorizationFailedError, TopicAuthorizationFailedError and others: the broker's
                error.
            KafkaTimeoutError: no response in time.
        """
        name = _group_name(group, "list_group_offsets")
        given = None if partitions is None else _partitions(partitions, "list_group_offsets")
        if coordinator_id is None:
            handler = ListGroupOffsets(given, is_stable=require_stable)
        elif is_number(coordinator_id, INT32_MAX):
            handler = ListGroupOffsetsOnBroker(
                given, is_stable=require_stable, coordinator_id=coordinator_id
            )
        else:
            raise UsageError(
                f"list_group_offsets: coordinator_id is {shown_argument(coordinator_id)}; give a "
                f"broker's id, or None for the group's coordinator"
            )
        return self._run(handler, (name,), "the offsets of group", timeout)[name]

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        timeout: float | None = None,
    ) -> None:
        """Commit offsets for a group without members; a group that does not exist is created.

        Raises:
            UnknownMemberIdError: the group has members.
            UnknownTopicOrPartitionError and others: the broker's error for the one partition whose
                offset was not committed.
            AdminCallError: several offsets were not committed.
            KafkaTimeoutError: no response in time; the offsets may have been committed.
        """
        name = _group_name(group, "alter_group_offsets")
        given = offsets_by_partition(offsets, "alter_group_offsets")
        self._run(
            AlterGroupOffsets(name, given), given, f"offsets of group {name!r}, partitions", timeout
        )

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> None:
        """Delete a group's committed offsets for partitions of topics that no member reads.

        Brokers 2.4 or newer (KIP-496). A partition may have no offset.

        Raises:
            GroupSubscribedToTopicError: a member reads the topic.
            GroupIdNotFoundError, UnknownTopicOrPartitionError and others: the broker's error for
                the one partition whose offset was not deleted.
            AdminCallError: several offsets were not deleted.
            KafkaTimeoutError: no response in time; the offsets may have been deleted.
        """
        name = _group_name(group, "delete_group_offsets")
        keys = _partitions(partitions, "delete_group_offsets")
        self._run(DeleteGroupOffsets(name), keys, f"offsets of group {name!r}, partitions", timeout)

    # Transactions.

    def list_transactions(
        self,
        timeout: float | None = None,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for: float | None = None,
        id_pattern: str | None = None,
    ) -> dict[str, TransactionListing]:
        """Return the transactional ids of the cluster that this client may see, by name.

        Brokers 3.0 or newer (KIP-664). The arguments filter them: `states` (such as
        ``["Ongoing"]``), `producer_ids`, transactions open for longer than `open_for` seconds
        (brokers 3.8 or newer, KIP-994), and ids that match the whole `id_pattern`, a regular
        expression of RE2J (brokers 4.1 or newer, KIP-1152).

        Raises:
            UnsupportedVersionError: the one broker is too old, or too old for an argument.
            UsageError: a state is unknown to brokers, or an argument cannot be sent.
            KafkaTimeoutError: a broker of the cluster did not respond in time.
            AdminCallError: several brokers failed; the errors are by their ids.
        """
        call = "list_transactions"
        request = transactions_request(
            name_list(states, "state", call), producer_ids, open_for, id_pattern
        )
        found = self._driver.run(
            lambda limit: self._core.list_transactions(request, limit), timeout
        )
        return {each.transactional_id: each for each in sorted(found)}

    def describe_transactions(
        self, transactional_ids: Iterable[str], timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return transactional ids with their current or last transactions, by name.

        Brokers 3.0 or newer (KIP-664).

        Raises:
            TransactionalIdNotFoundError, TransactionalIdAuthorizationFailedError and others: the
                broker's error for the one id that cannot be described.
            AdminCallError: several ids cannot be described.
            KafkaTimeoutError: a coordinator did not respond in time.
        """
        names = name_list(transactional_ids, "transactional id", "describe_transactions")
        found = self._driver.run(
            lambda limit: self._core.describe_transactions(names, limit), timeout
        )
        return {name: found[name] for name in names}

    def describe_producers(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that the leaders of partitions know, by partition.

        Brokers 2.8 or newer (KIP-664). A producer expires a day after its last batch
        (``producer.id.expiration.ms`` of brokers), but not during a transaction.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: the broker's
                error for the one partition.
            AdminCallError: several partitions failed.
            KafkaTimeoutError: a leader did not respond in time.
        """
        keys = _partitions(partitions, "describe_producers")
        what = "the producers of"
        return self._driver.run(
            lambda limit: self._core.run_at_leaders(DescribeProducers, keys, what, limit), timeout
        )

    def abort_transaction(self, spec: AbortTransactionSpec, timeout: float | None = None) -> None:
        """Abort a transaction in one partition, regardless of its coordinator.

        This is for hanging transactions: open in the partition but unknown to the coordinator, so
        that nothing ends them and read_committed consumers wait forever. A transaction in use is
        aborted as well, but only in this partition, and its producer may then commit the rest.
        ``pykclient transactions abort-hanging`` finds hanging transactions. Brokers 3.0 or newer;
        requires the permission ``ClusterAction``.

        Raises:
            InvalidProducerEpochError, TransactionCoordinatorFencedError: the leader has a newer
                epoch of the producer, or of its coordinator; describe the producers again.
            ClusterAuthorizationFailedError, UnknownTopicOrPartitionError and others: another error
                of the broker.
            UsageError: `spec` is not an `AbortTransactionSpec`.
            KafkaTimeoutError: no response in time; the transaction may have been aborted.
        """
        if not isinstance(spec, AbortTransactionSpec):
            raise UsageError(
                f"abort_transaction: {shown_argument(spec)} is not a transaction; give "
                f"AbortTransactionSpec(partition, producer_id, producer_epoch, coordinator_epoch)"
            )
        keys = _partitions([spec.partition], "abort_transaction")
        what = "the abortion of the transaction in"
        self._driver.run(
            lambda limit: self._core.run_at_leaders(
                lambda leaders: AbortTransactions(spec, leaders), keys, what, limit
            ),
            timeout,
        )

    def commit_prepared_transactions(
        self, prepared: Iterable[PreparedTransaction], timeout: float | None = None
    ) -> None:
        """Commit transactions that producers in any process have prepared.

        `prepared` are results of `Producer.prepare_transaction`. Committing again does nothing,
        until another producer has the transactional id: then the call fails as if the transaction
        had been aborted. To be able to repeat commits after that, record which ones have succeeded.
        All brokers with transactions.

        Raises:
            ProducerFencedError, InvalidProducerEpochError: a producer has called
                `init_transactions` with the id since, or the coordinator has aborted the
                transaction after its `transaction_timeout_ms`.
            InvalidTxnStateError: the transaction was aborted, by a call or after its time-out.
            InvalidProducerIdMappingError: brokers have dropped the id, unused for too long.
            TransactionalIdAuthorizationFailedError and others: another error of the broker.
            AdminCallError: several were given, and some were not committed; its `errors` are by
                transactional id, `KafkaTimeoutError` for those that were late.
            UsageError: one is not a `PreparedTransaction`, or two have the same id.
            KafkaTimeoutError: no response in time; it may be committed. Call again.
        """
        call, what = "commit_prepared_transactions", "the commit of transactions"
        self._end_transactions(prepared, call, timeout, what, is_commit=True)

    def abort_prepared_transactions(
        self, prepared: Iterable[PreparedTransaction], timeout: float | None = None
    ) -> None:
        """Abort transactions that producers in any process have prepared.

        Otherwise it is like `commit_prepared_transactions`.

        Raises:
            InvalidTxnStateError: the transaction was committed before, or the coordinator has
                aborted it after its `transaction_timeout_ms`.
            KafkaError: as in `commit_prepared_transactions`.
        """
        call, what = "abort_prepared_transactions", "the abortion of transactions"
        self._end_transactions(prepared, call, timeout, what, is_commit=False)

    def _end_transactions(
        self,
        prepared: Iterable[PreparedTransaction],
        call: str,
        timeout: float | None,
        what: str,
        *,
        is_commit: bool,
    ) -> None:
        by_id = prepared_by_id(prepared, call)
        handler = EndTransactions(by_id, is_commit=is_commit)
        self._driver.run(
            lambda limit: self._core.end_transactions(handler, by_id, what, limit), timeout
        )

    def _run(
        self,
        handler: AdminHandler[KeyT, ValueT],
        keys: Iterable[KeyT],
        what: str,
        timeout: float | None,
        *,
        spread: Callable[[Sequence[KeyT]], AdminHandler[int, int]] | None = None,
    ) -> dict[KeyT, ValueT]:
        return self._driver.run(
            lambda limit: self._core.run(handler, keys, what, limit, spread=spread), timeout
        )


def _new_topics(topics: Iterable[NewTopic]) -> list[NewTopic]:
    if isinstance(topics, NewTopic):
        raise UsageError(
            f"create_topics(NewTopic({topics.name!r})): give a list, as in "
            f"create_topics([NewTopic({topics.name!r})])"
        )
    found = value_list(topics, "create_topics: topics", "NewTopic(name, ...)")
    for topic in found:
        if not isinstance(topic, NewTopic):
            raise UsageError(
                f"create_topics: {shown_argument(topic)} is not a new topic; give "
                f"NewTopic(name, ...)"
            )
    return found


def _new_partitions(given: Mapping[str, NewPartitions]) -> dict[str, NewPartitions]:
    call = "create_partitions"
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{call}: new_partitions is {shown_argument(given)}; give a mapping of each topic's "
            f"name to NewPartitions(total_count)"
        )
    names = name_list(given, "topic", call)
    for name in names:
        if not isinstance(given[name], NewPartitions):
            raise UsageError(
                f"{call}: topic {name!r}: {shown_argument(given[name])} is given; give "
                f"NewPartitions(total_count)"
            )
    return {name: given[name] for name in names}


def _resources(resources: Iterable[ConfigResource], call: str) -> list[ConfigResource]:
    if isinstance(resources, ConfigResource):
        raise UsageError(f"{call}: give a list of resources, as in {call}([ConfigResource(...)])")
    found = value_list(resources, f"{call}: resources", "ConfigResource(type, name)")
    for resource in found:
        check_resource(resource, call)
    return found


def _operations_by_resource(
    configs: Mapping[ConfigResource, Iterable[AlterConfigOp]],
) -> dict[ConfigResource, list[AlterConfigOp]]:
    call = "incremental_alter_configs"
    if not isinstance(configs, Mapping):
        raise UsageError(
            f"{call}: configs is {shown_argument(configs)}; give a mapping of each "
            f"ConfigResource(type, name) to a list of AlterConfigOp(name, value)"
        )
    operations = {}
    for resource, given in configs.items():
        check_resource(resource, call)
        changes = value_list(given, f"{call}: {resource}", "AlterConfigOp(name, value)")
        for each in changes:
            if not isinstance(each, AlterConfigOp):
                raise UsageError(
                    f"{call}: {resource}: {shown_argument(each)} is not a change; give "
                    f"AlterConfigOp(name, value)"
                )
        names = [each.name for each in changes]
        if not names:
            raise UsageError(f"{call}: {resource}: there is no change")
        if len(set(names)) != len(names):
            raise UsageError(f"{call}: {resource}: a setting is given twice")
        operations[resource] = changes
    return operations


def _group_name(group: str, call: str) -> str:
    if not isinstance(group, str):
        raise UsageError(f"{call}: group is {shown_argument(group)}; give its name")
    check_text(group, "group", call)
    return group


def _partitions(partitions: Iterable[TopicPartition], call: str) -> list[TopicPartition]:
    return list(dict.fromkeys(partition_list(partitions, call)))


explain_names_of_others(Admin)
