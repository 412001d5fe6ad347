"""`send` in C: find the batch, choose the partition, append, return the delivery.

It has the classes and functions of `accel.pure`, with the same results and errors; rare cases
(unusual buffers or headers, errors) are left to the pure ones. No Python code runs from the first
byte of a record to its last. Under the GIL a record is therefore appended as a whole or not at all,
and an appender needs no lock; in free-threaded builds each appender has one.

Owner: see each class of `accel.pure`.
Source: as the pure twins; KIP-480, KIP-794; Java class ``DefaultRecord``.
"""

cimport cython
from cpython.array cimport array, clone, resize_smart
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from pykclient.accel.compiled.batch_result cimport BatchResult, Callbacks
from pykclient.accel.compiled.hashes cimport (
    EACH_RECORD,
    MURMUR2,
    NULL_IS_PLACED,
    ROUND_ROBIN,
    is_hashed,
    partition_of,
)
from pykclient.accel.compiled.lock cimport give_core_lock, take_core_lock
from pykclient.accel.compiled.memory cimport give_memory, grow_memory
from pykclient.accel.compiled.varint cimport put_varint, varint_size

from time import time_ns
from types import GenericAlias

from pykclient.accel.pure.appender import (
    HEADER_COUNT_MAX, as_bytes, encode_headers, timestamp_error,
)
from pykclient.accel.pure.delivery import refuse_to_leave
from pykclient.arguments import check_callable

__all__ = ["Delivery", "RecordAppender", "SendCore", "TopicAppenders", "partition_of_key"]

cdef enum:
    CHUNK_BYTES = 16_384
    HEAD_ROOM_BYTES = 64  # room for the batch header, so that records need not move

cdef Py_ssize_t HEADERS_MAX = HEADER_COUNT_MAX
cdef array NUMBERS = array("q")


@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Delivery:
    """Delivery(batch, index)\n--\n\nThe pending result of one record.

    It has the methods of a `concurrent.futures.Future` that only read. `batch` is None if no code
    waits for records (a batch built outside a producer).
    """

    # The garbage collector does not track it: a done batch drops its callbacks, so no cycle through
    # it lasts.

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, batch, Py_ssize_t index):
        self.batch = batch
        self.index = index

    def __repr__(self):
        state = "without a batch" if self.batch is None else self.batch.describe(self.index)
        return f"<Delivery: {state}>"

    def __reduce__(self):
        """Raise an error: a delivery can be neither pickled nor copied.

        Raises:
            UsageError: always.
        """
        refuse_to_leave()

    cdef bint is_well(self):
        return isinstance(self.batch, BatchResult) and (<BatchResult>self.batch).is_well

    def done(self):
        """Return whether the record's result is known."""
        assert self.batch is not None
        if self.is_well():
            return True
        return self.batch.is_done(self.index)

    def result(self, timeout=None):
        """Wait and return the record's metadata.

        `timeout` is in seconds; None waits until the record is delivered or has failed.

        Raises:
            KafkaTimeoutError: the time ran out; the record may still be delivered.
            KafkaError: the record failed.
        """
        assert self.batch is not None
        if self.is_well():
            return (<BatchResult>self.batch).where(self.index)
        return self.batch.result(self.index, timeout)

    def get(self, timeout=None):
        """Return the same as `result`."""
        return self.result(timeout)

    def exception(self, timeout=None):
        """Wait like `result` and return the error of the record, or None if it succeeded.

        Raises:
            KafkaTimeoutError: the time ran out.
        """
        assert self.batch is not None
        if self.is_well():
            return None
        return self.batch.exception(self.index, timeout)

    def add_done_callback(self, function):
        """Call `function` with this delivery when there is a result, or at once if there is."""
        assert self.batch is not None
        check_callable(function, "add_done_callback: function", "the delivery")
        self.batch.add_done_callback(self.index, lambda: function(self))


@cython.final
cdef class RecordAppender:
    """The records of one open batch, encoded as they come, until it is full or sealed.

    `callbacks` and, in parallel, `first_indexes` and `timestamps_ms` are read once it is sealed:
    each run of records with one timestamp has there its first record's index and the timestamp.
    The lock that it is given it does not need.

    Owner: the GIL, or its own lock where there is none.
    """

    __class_getitem__ = classmethod(GenericAlias)

    def __cinit__(self, Py_ssize_t capacity_bytes, batch, lock):
        self.capacity_bytes = capacity_bytes
        self.base_timestamp_ms = self.max_timestamp_ms = self.last_timestamp_ms = -1
        self.callbacks = Callbacks.__new__(Callbacks)
        self.first_indexes = clone(NUMBERS, 0, zero=False)
        self.timestamps_ms = clone(NUMBERS, 0, zero=False)
        self.batch = batch

    def __dealloc__(self):
        give_memory(&self.memory)

    @property
    def size_bytes(self):
        """Size of the records in bytes, without batch header and compression."""
        return self.size

    def append(self, timestamp_ms, key, value, headers=None, on_delivery=None):
        """Encode one record; return its delivery, or None when it does not fit or all is sealed.

        Raises:
            SerializationError: the key, the value or a header is not bytes.
            EncodeError: the timestamp is negative or beyond 64 bits.
        """
        if key is not None and not PyBytes_CheckExact(key):
            key = as_bytes(key, "key")
        if value is not None and not PyBytes_CheckExact(value):
            value = as_bytes(value, "value")
        header_part = header_part_of(headers) if headers else None
        return self.put(
            checked_timestamp(timestamp_ms), <bytes>key, <bytes>value, header_part, on_delivery
        )

    def grow(self, Py_ssize_t capacity_bytes):
        """Increase the capacity; no effect once sealed."""
        take_core_lock(&self.lock)
        if not self.is_sealed and capacity_bytes > self.capacity_bytes:
            self.capacity_bytes = capacity_bytes
        give_core_lock(&self.lock)

    def seal(self):
        """Seal the appender. An append either came before, completely, or returns None."""
        take_core_lock(&self.lock)
        self.is_sealed = True
        self.capacity_bytes = -1
        give_core_lock(&self.lock)

    def view(self):
        """Return the encoded records. Seal first, and release the view before the appender is
        dropped.
        """
        return memoryview(self)

    def frame(self, Py_ssize_t head_bytes):
        """Return the encoded records after `head_bytes` bytes of space, all writable.

        No two frames share memory. Seal first.
        """
        if not self.is_sealed or head_bytes < 0:
            raise BufferError("only of a sealed appender, and behind a head of 0 bytes or more")
        if self.is_framed or head_bytes > HEAD_ROOM_BYTES or not self.size:
            framed = bytearray(head_bytes)
            framed += self.view()
            return memoryview(framed)
        self.is_framed = True
        memset(self.buffer - head_bytes, 0, head_bytes)
        return memoryview(Frame.__new__(Frame, self, head_bytes))

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        # Sealed memory never moves. Open memory may, and a view would then refer to freed memory.
        if not self.is_sealed:
            raise BufferError("only a sealed appender has a view")
        PyBuffer_FillInfo(buffer, self, self.buffer, self.size, 1, flags)

    cdef Delivery put(
        self, int64_t timestamp_ms, bytes key, bytes value, bytes header_part, object on_delivery
    ):
        """Append a checked record; None if it does not fit or the batch is sealed."""
        cdef Py_ssize_t key_size = -1 if key is None else PyBytes_GET_SIZE(key)
        cdef Py_ssize_t value_size = -1 if value is None else PyBytes_GET_SIZE(value)
        cdef Py_ssize_t header_size = 1 if header_part is None else PyBytes_GET_SIZE(header_part)
        cdef Py_ssize_t body_size, end
        cdef int64_t delta_ms
        cdef unsigned char* out
        cdef Delivery delivery = Delivery.__new__(Delivery)
        body_size = varint_size(key_size) + varint_size(value_size) + header_size + 1
        if key_size > 0:
            body_size += key_size
        if value_size > 0:
            body_size += value_size
        take_core_lock(&self.lock)
        try:
            delta_ms = timestamp_ms - self.base_timestamp_ms if self.count else 0
            body_size += varint_size(delta_ms) + varint_size(self.count)
            end = self.size + varint_size(body_size) + body_size
            if end > self.capacity_bytes and (self.count or self.is_sealed):
                return None
            if end > self.allocated:
                self.make_room(end)
            if timestamp_ms != self.last_timestamp_ms:
                self.note_timestamp(timestamp_ms)
            if on_delivery is not None:
                self.callbacks.add(self.count, on_delivery)
            out = put_varint(self.buffer + self.size, body_size)
            out[0] = 0  # the attributes, which nothing uses in this version
            out = put_varint(out + 1, delta_ms)
            out = put_varint(out, self.count)
            out = put_field(out, key, key_size)
            out = put_field(out, value, value_size)
            if header_part is None:
                out[0] = 0
            else:
                memcpy(out, PyBytes_AS_STRING(header_part), header_size)
            delivery.batch = self.batch
            delivery.index = self.count
            self.size = end
            self.count += 1
        finally:
            give_core_lock(&self.lock)
        return delivery

    cdef int make_room(self, Py_ssize_t size) except -1:
        """Grow the memory to `size` bytes: twice as large as before, but no larger than needed."""
        cdef Py_ssize_t wanted = min(max(2 * self.allocated, CHUNK_BYTES), self.capacity_bytes)
        cdef Py_ssize_t used = HEAD_ROOM_BYTES + self.size if self.allocated else 0
        grow_memory(&self.memory, used, HEAD_ROOM_BYTES + max(wanted, size))
        self.buffer = self.memory.start + HEAD_ROOM_BYTES
        self.allocated = self.memory.size - HEAD_ROOM_BYTES
        return 0

    cdef int note_timestamp(self, int64_t timestamp_ms) except -1:
        """Start a run of records with this timestamp."""
        cdef array first_indexes = self.first_indexes, timestamps_ms = self.timestamps_ms
        cdef Py_ssize_t place = len(first_indexes)
        resize_smart(first_indexes, place + 1)
        first_indexes.data.as_longlongs[place] = self.count
        resize_smart(timestamps_ms, place + 1)
        timestamps_ms.data.as_longlongs[place] = timestamp_ms
        if not self.count:
            self.base_timestamp_ms = timestamp_ms
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.last_timestamp_ms = timestamp_ms
        return 0


@cython.final
cdef class Frame:
    """The records of a sealed appender, in place, with the space before them."""

    cdef RecordAppender appender
    cdef Py_ssize_t head_bytes

    def __cinit__(self, RecordAppender appender not None, Py_ssize_t head_bytes):
        self.appender = appender
        self.head_bytes = head_bytes

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef unsigned char* start = self.appender.buffer - self.head_bytes
        PyBuffer_FillInfo(buffer, self, start, self.head_bytes + self.appender.size, 0, flags)


@cython.final
cdef class TopicAppenders:
    """The open batches of one topic, as `SendCore.send` finds them.

    `open` holds an appender or None per partition. `sticky` is the one for records without a key,
    None while none is chosen; it is one of `open`. `key_rule` decides which records with keys go
    there, too. If it gives each record its own partition, `choices` are the partitions to choose
    from, and `turn` counts the choices.

    Owner: the slow path, which replaces items as a whole; `send` only reads, and advances `turn`.
    """

    cdef readonly list open
    cdef public list choices
    cdef public int key_rule
    cdef public uint32_t turn
    cdef RecordAppender _sticky
    cdef core_lock lock

    __class_getitem__ = classmethod(GenericAlias)

    def __cinit__(self, Py_ssize_t partition_count, *, int key_rule=MURMUR2, uint32_t turn=0):
        self.open = [None] * partition_count
        self.key_rule = key_rule
        self.choices = []
        self.turn = turn

    cpdef Py_ssize_t next_choice(self):
        """Return the partition of the next record, or -1 if there is none to choose from.

        `turn` is a counter for `ROUND_ROBIN`, and the state of a xorshift for `RANDOM`: not 0.
        """
        cdef list choices = self.choices
        cdef uint32_t turn
        cdef uint32_t count = 0 if choices is None else <uint32_t>len(choices)
        if not count:
            return -1
        take_core_lock(&self.lock)
        turn = self.turn
        if self.key_rule & ROUND_ROBIN:
            self.turn = turn + 1
            turn %= count
        else:
            turn ^= turn << 13
            turn ^= turn >> 17
            turn ^= turn << 5
            self.turn = turn
            turn = <uint32_t>(<uint64_t>turn * count >> 32)
        give_core_lock(&self.lock)
        return choices[turn]

    @property
    def sticky(self):
        """The appender for records without a key; None while none is chosen."""
        return self.take_sticky()

    @sticky.setter
    def sticky(self, RecordAppender appender):
        cdef RecordAppender before
        take_core_lock(&self.lock)
        before, self._sticky = self._sticky, appender
        give_core_lock(&self.lock)

    cdef inline RecordAppender take_sticky(self):
        cdef RecordAppender appender
        take_core_lock(&self.lock)
        appender = self._sticky
        give_core_lock(&self.lock)
        return appender

    cdef inline RecordAppender of_partition(self, object partition):
        """Return the open appender of a partition that a caller named; None if it does not exist.
        """
        cdef Py_ssize_t index
        if not PyLong_CheckExact(partition):
            return None
        try:
            index = partition
        except OverflowError:
            return None
        return self.at(index)

    cdef inline RecordAppender of_key(self, bytes key):
        cdef Py_ssize_t partition_count = len(self.open)
        if not partition_count:
            return None
        return self.at(partition_of_bytes(self.key_rule, key, <uint32_t>partition_count))

    cdef inline RecordAppender at(self, Py_ssize_t index):
        if not 0 <= index < len(self.open):
            return None
        appender = self.open[index]
        return <RecordAppender>appender if type(appender) is RecordAppender else None


cdef class SendCore:
    """`send` without waiting: finds the open batch, appends, returns the delivery.

    `topics` holds what may be sent without a thought; a topic that is not there, a batch that is
    full, and every argument that is not plain bytes go to `send_slowly`. An empty `topics` sends
    everything there. Where `wall_clock_ns` is the system's clock, it is read without a call.

    Owner: any thread may send; `topics` belongs to the slow path.
    """

    cdef readonly dict topics
    cdef object send_slowly
    cdef object wall_clock_ns
    cdef bint is_system_clock

    __class_getitem__ = classmethod(GenericAlias)

    def __cinit__(self, *arguments, **keywords):
        self.topics = {}

    def __init__(self, send_slowly, wall_clock_ns, dict topics=None):
        if topics is not None:
            self.topics = topics
        self.send_slowly = send_slowly
        self.wall_clock_ns = wall_clock_ns
        self.is_system_clock = wall_clock_ns is time_ns

    def send(
        self,
        topic,
        value=None,
        key=None,
        *,
        partition=None,
        timestamp_ms=None,
        headers=None,
        on_delivery=None,
    ):
        """Append a record to a batch, usually without waiting, and return its `Delivery`.

        `topic` is a name, or a `ProducerRecord` with everything but `on_delivery`. `value` and
        `key` are bytes, None for null, or objects for the configured serializers. Without a
        `partition` the partitioner chooses: by the key's hash as in Java, or the sticky partition
        for records without a key. `timestamp_ms` is in milliseconds since 1970, None for now;
        `headers` are pairs of a name and bytes or None (KIP-82), or a dict of them.

        `on_delivery(metadata, error)` is called in the sender thread when the record is delivered
        or has failed, in the order in which a partition's records were sent. `error` is None or a
        `KafkaError`, and then `metadata` has no offset. It must not block: a `send` in it that
        would have to wait raises `BufferExhaustedError`.

        This waits up to `max_block_ms` for metadata of an unknown topic, and for memory when
        `buffer_memory` is used up.

        Raises:
            ClosedError, ForkedClientError: the producer was closed, or belongs to another process.
            SerializationError: a serializer failed, or a value is not bytes and has no serializer.
            RecordTooLargeError: more than `max_request_size` or `buffer_memory` allow.
            KafkaTimeoutError: no metadata in time; the message says why.
            BufferExhaustedError: no memory in time.
            UsageError: a field has an invalid value.
            KafkaError: brokers refuse the topic or the client permanently (`InvalidTopicError`,
                `TopicAuthorizationFailedError`, `UnsupportedVersionError` and others).
        """
        # Anything but a str may be valid on the slow path, or have no hash.
        cdef object found = self.topics.get(topic) if PyUnicode_CheckExact(topic) else None
        cdef RecordAppender appender
        cdef Delivery delivery
        cdef Py_ssize_t chosen
        cdef int64_t time_ms = -1
        cdef int overflow
        if timestamp_ms is not None and PyLong_CheckExact(timestamp_ms):
            time_ms = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if (
            type(found) is TopicAppenders
            and (value is None or PyBytes_CheckExact(value))
            and (key is None or PyBytes_CheckExact(key))
            # A lazy iterable can be read only once, and the slow path may have to read it, too.
            and (headers is None or type(headers) is list or type(headers) is tuple)
            and (timestamp_ms is None or time_ms >= 0)
            and (on_delivery is None or callable(on_delivery))
        ):
            if partition is not None:
                appender = (<TopicAppenders>found).of_partition(partition)
            # Most records are like this.
            elif key is None and not (<TopicAppenders>found).key_rule & NULL_IS_PLACED:
                appender = (<TopicAppenders>found).take_sticky()
            elif (<TopicAppenders>found).key_rule & EACH_RECORD:
                chosen = (<TopicAppenders>found).next_choice()
                appender = (<TopicAppenders>found).at(chosen)
                if 0 <= chosen < len((<TopicAppenders>found).open):
                    partition = chosen
            elif not is_hashed(
                (<TopicAppenders>found).key_rule, -1 if key is None else PyBytes_GET_SIZE(key)
            ):
                appender = (<TopicAppenders>found).take_sticky()
            else:
                appender = (<TopicAppenders>found).of_key(<bytes>key)
            if appender is not None:
                header_part = header_part_of(headers) if headers else None
                delivery = appender.put(
                    self.now_ms() if timestamp_ms is None else time_ms,
                    <bytes>key,
                    <bytes>value,
                    header_part,
                    on_delivery,
                )
                if delivery is not None:
                    return delivery
        return self.send_slowly(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    cdef inline int64_t now_ms(self) except? -1:
        cdef timespec now
        if self.is_system_clock:
            clock_gettime(CLOCK_REALTIME, &now)
            return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000
        return checked_timestamp(self.wall_clock_ns() // 1_000_000)


def partition_of_key(bytes key not None, uint32_t partition_count, int rule=MURMUR2):
    """Return the partition of a key by the hash of a rule, which must have one."""
    if not partition_count:
        raise ZeroDivisionError("a topic has no partition")
    return partition_of_bytes(rule, key, partition_count)


cdef inline uint32_t partition_of_bytes(int rule, bytes key, uint32_t partition_count):
    """Data of None where an empty key is meant."""
    if key is None:
        return partition_of(rule, NULL, 0, partition_count)
    return partition_of(
        rule, <const unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), partition_count
    )


cdef inline unsigned char* put_field(unsigned char* out, bytes field, Py_ssize_t size):
    """Write the size of a field, -1 for null, and its bytes; return their end."""
    out = put_varint(out, size)
    if size <= 0:
        return out
    memcpy(out, PyBytes_AS_STRING(field), size)
    return out + size


cdef int64_t checked_timestamp(object timestamp_ms) except -1:
    cdef int64_t number
    try:
        number = timestamp_ms
    except OverflowError:
        raise timestamp_error(timestamp_ms) from None
    if number < 0:
        raise timestamp_error(timestamp_ms)
    return number


cdef bytes header_part_of(object headers):
    """Return the encoded headers of a record, with their count first."""
    cdef Py_ssize_t size
    cdef tuple pairs
    cdef bytes part
    if type(headers) is list or type(headers) is tuple:
        pairs = tuple(headers)  # a copy that no other thread changes
        size = plain_header_size(pairs) if len(pairs) <= HEADERS_MAX else -1
        if size >= 0:
            part = PyBytes_FromStringAndSize(NULL, size)
            put_headers(<unsigned char*>PyBytes_AS_STRING(part), pairs)
            return part
    return encode_headers(headers)


cdef Py_ssize_t plain_header_size(tuple pairs) except -2:
    """Return the encoded size of headers with their count; -1 if they are not all plain pairs."""
    cdef Py_ssize_t size = varint_size(len(pairs)), name_size, value_size
    for pair in pairs:
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            return -1
        name, value = (<tuple>pair)[0], (<tuple>pair)[1]
        if not PyUnicode_CheckExact(name) or not (value is None or PyBytes_CheckExact(value)):
            return -1
        try:
            PyUnicode_AsUTF8AndSize(name, &name_size)
        except UnicodeEncodeError:
            return -1
        value_size = 0 if value is None else PyBytes_GET_SIZE(value)
        size += varint_size(name_size) + name_size
        size += varint_size(-1 if value is None else value_size) + value_size
    return size


cdef int put_headers(unsigned char* out, tuple pairs) except -1:
    cdef Py_ssize_t name_size
    cdef const char* name_data
    out = put_varint(out, len(pairs))
    for pair in pairs:
        name, value = (<tuple>pair)[0], (<tuple>pair)[1]
        name_data = PyUnicode_AsUTF8AndSize(name, &name_size)
        out = put_varint(out, name_size)
        memcpy(out, name_data, name_size)
        out += name_size
        out = put_field(out, <bytes>value, -1 if value is None else PyBytes_GET_SIZE(value))
    return 0
