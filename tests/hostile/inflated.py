"""Responses of brokers in which something is there very often, and usual ones of the same size.

Owner: none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import Message, Structure
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pykclient.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.protocol.reader import ELEMENTS_MAX, NUMBERS_PER_ELEMENT_MAX
from tests.hostile.client import TOPIC
from tests.hostile.payloads import INT16, compact, varint
from tests.hostile.peer import GOOD, Received, ScriptedBroker
from tests.records.batches import build

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping

TEXT_SIZE_BYTES_MAX: Final = 30_000
"""Size of a text in versions with sizes of 16 bits."""
INVALID_REQUEST: Final = 42
PLACEHOLDER: Final = "a text that is replaced"

TARGETS: Final[tuple[tuple[str, ApiKey], ...]] = (
    ("describe_configs", ApiKey.DESCRIBE_CONFIGS),
    ("join_kip848", ApiKey.CONSUMER_GROUP_HEARTBEAT),
    ("list_topics", ApiKey.API_VERSIONS),
    ("list_topics", ApiKey.METADATA),
    ("send", ApiKey.METADATA),
    ("send", ApiKey.INIT_PRODUCER_ID),
    ("send", ApiKey.PRODUCE),
    ("end_offsets", ApiKey.LIST_OFFSETS),
    ("poll", ApiKey.FETCH),
    ("committed", ApiKey.FIND_COORDINATOR),
    ("committed", ApiKey.OFFSET_FETCH),
    ("join", ApiKey.JOIN_GROUP),
    ("join", ApiKey.SYNC_GROUP),
    ("join_kip848", ApiKey.METADATA),
    ("list_groups", ApiKey.LIST_GROUPS),
    ("describe_groups", ApiKey.DESCRIBE_GROUPS),
    ("list_group_offsets", ApiKey.OFFSET_FETCH),
    ("describe_producers", ApiKey.DESCRIBE_PRODUCERS),
    ("list_transactions", ApiKey.LIST_TRANSACTIONS),
    ("describe_transactions", ApiKey.DESCRIBE_TRANSACTIONS),
)
"""Calls, and the API whose response to them is inflated."""


Inflate = Callable[[Message, int], tuple[str, bytes]]
"""Makes of a good response and its version what was inflated, and the bytes of the response."""


class InflatedBroker(ScriptedBroker):
    """A broker whose responses of one API are inflated."""

    def __init__(
        self, api: ApiKey, inflate: Inflate, versions: Mapping[ApiKey, int] | None = None
    ) -> None:
        self._api, self._inflate = api, inflate
        self.sent_bytes = 0
        """Bytes sent of these responses so far."""
        self.shape = "not asked"
        self._made: dict[int, bytes] = {}
        super().__init__({api: self._respond}, versions)

    def _respond(self, received: Received) -> bytes:
        version = received.header.api_version
        if version not in self._made:
            self.shape, self._made[version] = self._inflate(self._good(received), version)
        frame = received.frame(self._made[version])
        self.sent_bytes += len(frame)
        return frame

    def _good(self, received: Received) -> Message:
        if self._api is ApiKey.API_VERSIONS:
            return self._list_versions(received)
        response = fetch_response() if self._api is ApiKey.FETCH else GOOD[self._api](received)
        assert isinstance(response, Message)
        return response


def fetch_response() -> FetchResponse:
    data = PartitionData(
        partition_index=0,
        high_watermark=10**6,
        last_stable_offset=10**6,
        log_start_offset=0,
        aborted_transactions=[AbortedTransaction(1, 0)],
        records=build([(1, None, b"value", ())]),
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])


def usual_metadata(response: Message, version: int, *, size_bytes: int) -> tuple[str, bytes]:
    """Describe each topic with six partitions."""
    assert isinstance(response, MetadataResponse)
    response = copy.deepcopy(response)
    topic = response.topics[0]
    topic.partitions = _repeated(topic.partitions, 5, are_equal=False)
    count = size_bytes // _element_size_bytes(response.topics, version)
    response.topics = _repeated(response.topics, count, are_equal=False)
    out = bytearray()
    response.write(out, version)
    return "usual", bytes(out)


def inflated(
    chance: random.Random, size_bytes: int, response: Message, version: int
) -> tuple[str, bytes]:
    """Make some place of a response, which `chance` chooses, about `size_bytes` large."""
    response = copy.deepcopy(response)
    kind = type(response)
    is_flexible = kind.flexible_from is not None and version >= kind.flexible_from
    places = list(_places(response, kind.__name__))
    if is_flexible and (not places or chance.random() < 0.15):
        body = bytearray()
        response.write(body, version)
        return "tags", bytes(body[:-1]) + _tags(size_bytes)
    owner, field, path = chance.choice(places)
    value = getattr(owner, field)
    if field == "error_message":
        # An error comes with a text of the broker's.
        owner.error_code = INVALID_REQUEST  # type: ignore[attr-defined]
    if isinstance(value, str):
        sign = chance.choice(["x", "\n", "é", "\x1b"])
        if is_flexible:
            return path, _with_long_text(response, owner, field, version, sign, size_bytes)
        setattr(owner, field, sign * (TEXT_SIZE_BYTES_MAX // 2))
    elif isinstance(value, bytes | memoryview):
        make = _GROUP_DATA.get(field)
        if make is None:
            path += " again and again"
            setattr(owner, field, bytes(value) * (size_bytes // max(1, len(value))))
        else:
            shape = chance.choice(GROUP_SHAPES)
            path += f" of {shape}"
            setattr(owner, field, make(topics_of(shape, size_bytes)))
    else:
        is_numbers = bool(value) and isinstance(value[0], int)
        count = size_bytes // _element_size_bytes(value, version)
        limit = ELEMENTS_MAX * NUMBERS_PER_ELEMENT_MAX if is_numbers else ELEMENTS_MAX
        count = min(count, limit - 20)
        are_equal = chance.random() < 0.4
        path += " alike" if are_equal else ""
        setattr(owner, field, _repeated(value, count, are_equal=are_equal))
    out = bytearray()
    response.write(out, version)
    return path, bytes(out)


def with_group_data(
    response: Message, version: int, *, shape: str, size_bytes: int
) -> tuple[str, bytes]:
    """Give the first member this many bytes of partitions, in a shape of `GROUP_SHAPES`."""
    response = copy.deepcopy(response)
    places = _places(response, type(response).__name__)
    owner, field = next((owner, field) for owner, field, _ in places if field in _GROUP_DATA)
    setattr(owner, field, _GROUP_DATA[field](topics_of(shape, size_bytes)))
    out = bytearray()
    response.write(out, version)
    return shape, bytes(out)


def _tags(size_bytes: int) -> bytes:
    """As many tags as a client takes, with as much in each as there is room for."""
    count = min(size_bytes // 2, ELEMENTS_MAX // 2)
    content = bytes(size_bytes // count - 2)
    each = (varint(number) + varint(len(content)) + content for number in range(count))
    return varint(count) + b"".join(each)


def _with_long_text(
    response: Message, owner: Structure, field: str, version: int, sign: str, size_bytes: int
) -> bytes:
    """Write a text that is longer than a client may write."""
    setattr(owner, field, PLACEHOLDER)
    out = bytearray()
    response.write(out, version)
    text = (sign * (size_bytes // 2)).encode()
    return bytes(out).replace(compact(PLACEHOLDER), varint(len(text) + 1) + text)


def _places(structure: Structure, path: str) -> Iterator[tuple[Structure, str, str]]:
    """Yield the fields that can be inflated."""
    for name in structure.__slots__:
        value = getattr(structure, name)
        if isinstance(value, str) or (isinstance(value, bytes) and name != "topic_id"):
            yield structure, name, f"{path}.{name}"
        elif isinstance(value, list) and value:
            yield structure, name, f"{path}.{name}"
            if isinstance(value[0], Structure):
                yield from _places(value[0], f"{path}.{name}")
        elif isinstance(value, Structure):
            yield from _places(value, f"{path}.{name}")


TopicNumbers = list[tuple[str, range]]
"""Partitions of topics, of which one may be there more than once."""


def topics_of(shape: str, size_bytes: int) -> TopicNumbers:
    """Return partitions that take about this many bytes of an assignment."""
    numbers_max = ELEMENTS_MAX * NUMBERS_PER_ELEMENT_MAX - 20
    if shape == "many topics":
        count = min(size_bytes // 40, ELEMENTS_MAX // 2)
        return [(f"topic-{number}", range(1)) for number in range(count)]
    if shape == "one topic":
        return [(TOPIC, range(min(size_bytes // 4, numbers_max)))]
    if shape == "one topic again and again":
        count = min(size_bytes // 20, ELEMENTS_MAX // 2)
        return [(TOPIC, range(2 * number, 2 * number + 2)) for number in range(count)]
    if shape == "one partition again and again":
        return [(TOPIC, range(1))] * min(size_bytes // 20, ELEMENTS_MAX // 2)
    each_count = min(size_bytes // 4, numbers_max) // 10
    return [
        (TOPIC if number == 0 else f"topic-{number}", range(each_count)) for number in range(10)
    ]


GROUP_SHAPES: Final = (
    *("many topics", "one topic", "one topic again and again"),
    *("one partition again and again", "some topics with many partitions each"),
)


def _subscription(topics: TopicNumbers) -> bytes:
    """Return a member's subscription to topics, and its partitions of them."""
    found = ConsumerProtocolSubscription(
        topics=list(dict.fromkeys(name for name, _ in topics)),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(name, list(numbers))
            for name, numbers in topics
        ],
    )
    out = bytearray(INT16(1))
    found.write(out, 1)
    return bytes(out)


def _assignment(topics: TopicNumbers) -> bytes:
    """Return a member's partitions."""
    found = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(name, list(numbers))
            for name, numbers in topics
        ],
    )
    out = bytearray(INT16(0))
    found.write(out, 0)
    return bytes(out)


_GROUP_DATA: Final = {
    "metadata": _subscription,
    "assignment": _assignment,
    "member_metadata": _subscription,
    "member_assignment": _assignment,
}


def _element_size_bytes(value: list[Any], version: int) -> int:
    if not isinstance(value[0], Structure):
        return 4
    out = bytearray()
    value[0].write(out, version)
    return len(out) + 6


def _repeated(value: list[Any], count: int, *, are_equal: bool) -> list[Any]:
    if isinstance(value[0], int) and not are_equal:
        return [*value, *range(value[-1] + 1, value[-1] + 1 + count)]
    if are_equal or not isinstance(value[0], Structure):
        return [*value, *[value[0]] * count]
    return [*value, *(_numbered(value[0], number) for number in range(1, count + 1))]


def _numbered(element: Structure, number: int) -> Structure:
    """Return a copy with names and numbers of its own."""
    found = copy.copy(element)
    for name in found.__slots__:
        value = getattr(found, name)
        if name == "topic_id":
            setattr(found, name, number.to_bytes(16))
        elif isinstance(value, str) and name != "host":
            setattr(found, name, f"{value}{number}")
        elif isinstance(value, int) and name.endswith(("index", "node_id", "api_key")):
            setattr(found, name, value + number if name != "api_key" else number % 30_000)
    return found
