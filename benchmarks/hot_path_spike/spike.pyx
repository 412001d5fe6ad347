# cython: language_level=3, boundscheck=False, wraparound=False
"""A compiled core to throw away, only complete enough to time where the boundary belongs.

It handles values and keys of a few hundred bytes, no headers, and checks nothing. Nothing imports
it but run.py.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec


cdef inline Py_ssize_t put_varint(unsigned char* out, long long number) noexcept nogil:
    cdef unsigned long long rest = (<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63)
    cdef Py_ssize_t size = 0
    while rest > 0x7F:
        out[size] = <unsigned char>(rest & 0x7F | 0x80)
        rest >>= 7
        size += 1
    out[size] = <unsigned char>rest
    return size + 1


cdef inline Py_ssize_t varint_size(long long number) noexcept nogil:
    cdef unsigned long long rest = (<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63)
    cdef Py_ssize_t size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline Py_ssize_t put_record(
    unsigned char* out, long long timestamp_delta, long long index,
    bytes key, bytes value,
) noexcept:
    cdef Py_ssize_t key_size = -1 if key is None else PyBytes_GET_SIZE(key)
    cdef Py_ssize_t value_size = -1 if value is None else PyBytes_GET_SIZE(value)
    cdef Py_ssize_t body = (
        2 + varint_size(timestamp_delta) + varint_size(index) + varint_size(key_size)
        + varint_size(value_size) + (key_size if key_size > 0 else 0)
        + (value_size if value_size > 0 else 0)
    )
    cdef Py_ssize_t position = put_varint(out, body)
    out[position] = 0
    position += 1
    position += put_varint(out + position, timestamp_delta)
    position += put_varint(out + position, index)
    position += put_varint(out + position, key_size)
    if key_size > 0:
        memcpy(out + position, PyBytes_AS_STRING(key), key_size)
        position += key_size
    position += put_varint(out + position, value_size)
    if value_size > 0:
        memcpy(out + position, PyBytes_AS_STRING(value), value_size)
        position += value_size
    out[position] = 0
    return position + 1


cdef inline unsigned int hash_key(bytes data) noexcept:
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(data)
    cdef unsigned int m = 0x5BD1E995u, h = 0x9747B28Cu ^ <unsigned int>length, k
    while length >= 4:
        k = at[0] | at[1] << 8 | at[2] << 16 | <unsigned int>at[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h = (h * m) ^ k
        at += 4
        length -= 4
    if length:
        if length == 3:
            h ^= at[2] << 16
        if length >= 2:
            h ^= at[1] << 8
        h ^= at[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


def encode_record(long long timestamp_delta, long long index, bytes key, bytes value):
    """Placement 1: only the encoder is compiled."""
    cdef unsigned char scratch[4096]
    cdef Py_ssize_t size = put_record(scratch, timestamp_delta, index, key, value)
    return PyBytes_FromStringAndSize(<char*>scratch, size)


@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Delivery:
    """Not tracked by the garbage collector: a batch drops its callbacks once it is done."""
    cdef readonly object batch
    cdef readonly int index


@cython.final
cdef class TrackedDelivery:
    cdef readonly object batch
    cdef readonly int index


@cython.final
cdef class Appender:
    """Placement 2: append and delivery are compiled, one object per batch."""
    cdef unsigned char* out
    cdef Py_ssize_t size
    cdef public Py_ssize_t capacity
    cdef readonly int count
    cdef readonly object batch
    cdef readonly long long base_timestamp

    def __cinit__(self, Py_ssize_t capacity, batch):
        self.out = <unsigned char*>malloc(capacity)
        self.capacity = capacity
        self.batch = batch

    def __dealloc__(self):
        free(self.out)

    cdef inline Delivery put(self, long long timestamp, bytes key, bytes value):
        cdef Py_ssize_t bound = 32
        cdef Delivery delivery
        if key is not None:
            bound += PyBytes_GET_SIZE(key)
        if value is not None:
            bound += PyBytes_GET_SIZE(value)
        if self.size + bound > self.capacity:
            return None
        if self.count == 0:
            self.base_timestamp = timestamp
        delivery = Delivery.__new__(Delivery)
        delivery.batch = self.batch
        delivery.index = self.count
        self.size += put_record(
            self.out + self.size, timestamp - self.base_timestamp, self.count, key, value
        )
        self.count += 1
        return delivery

    def append(self, long long timestamp, bytes key, bytes value, headers=None):
        return self.put(timestamp, key, value)

    def append_tracked(self, long long timestamp, bytes key, bytes value, headers=None):
        """As `append`, with a delivery that the garbage collector tracks."""
        cdef TrackedDelivery delivery
        if self.size + 32 + PyBytes_GET_SIZE(value) > self.capacity:
            return None
        if self.count == 0:
            self.base_timestamp = timestamp
        delivery = TrackedDelivery.__new__(TrackedDelivery)
        delivery.batch = self.batch
        delivery.index = self.count
        self.size += put_record(
            self.out + self.size, timestamp - self.base_timestamp, self.count, key, value
        )
        self.count += 1
        return delivery

    def encoded(self):
        return PyBytes_FromStringAndSize(<char*>self.out, self.size)


cdef inline long long clock_ms() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <long long>now.tv_sec * 1000 + now.tv_nsec // 1000000


@cython.final
cdef class TopicAppender:
    """Placement 3: choice of the partition, append and delivery are compiled, per topic."""
    cdef readonly list appenders
    cdef public int sticky

    def __init__(self, int partition_count):
        self.appenders = [None] * partition_count

    cdef inline Delivery put(self, bytes value, bytes key, partition, timestamp):
        cdef int chosen
        cdef object appender
        cdef long long timestamp_ms = clock_ms() if timestamp is None else timestamp
        if partition is not None:
            chosen = partition
        elif key is None:
            chosen = self.sticky
        else:
            chosen = (hash_key(key) & 0x7FFFFFFF) % len(self.appenders)
        appender = self.appenders[chosen]
        if appender is None:
            return None
        return (<Appender>appender).put(timestamp_ms, key, value)

    def append(self, bytes value, bytes key, partition, timestamp, headers, on_delivery):
        if headers is not None or on_delivery is not None:
            return None
        return self.put(value, key, partition, timestamp)


cdef class SendCore:
    """Placement 4: the whole `send` is compiled; what it cannot do goes to `send_slowly`.

    Not final: placement 5 is a Python subclass of it, which has no layer above either.
    """
    cdef public dict topics
    cdef public object slow

    def __init__(self, slow):
        self.topics = {}
        self.slow = slow

    def send(
        self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None,
        on_delivery=None,
    ):
        cdef object found = self.topics.get(topic)
        cdef Delivery delivery
        if (
            found is not None and headers is None and on_delivery is None
            and (value is None or type(value) is bytes) and (key is None or type(key) is bytes)
        ):
            delivery = (<TopicAppender>found).put(value, key, partition, timestamp_ms)
            if delivery is not None:
                return delivery
        return self.slow(topic, value, key, partition, timestamp_ms, headers, on_delivery)


# ---------------------------------------------------------------------------------- decode


@cython.final
cdef class Shared:
    """What the records of a batch have in common."""
    cdef readonly str topic
    cdef readonly int partition


@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Record:
    cdef readonly Shared shared
    cdef readonly long long offset, timestamp_ms
    cdef readonly object key, value, headers


@cython.final
cdef class TrackedRecord:
    cdef readonly Shared shared
    cdef readonly long long offset, timestamp_ms
    cdef readonly object key, value, headers


cdef inline long long get_varint(const unsigned char* data, Py_ssize_t* position) noexcept nogil:
    cdef unsigned long long number = 0
    cdef int shift = 0
    while True:
        number |= <unsigned long long>(data[position[0]] & 0x7F) << shift
        position[0] += 1
        if data[position[0] - 1] < 0x80:
            break
        shift += 7
    return <long long>(number >> 1) ^ -<long long>(number & 1)


cdef inline object get_bytes(const unsigned char* data, Py_ssize_t* position):
    cdef long long size = get_varint(data, position)
    if size < 0:
        return None
    position[0] += size
    return PyBytes_FromStringAndSize(<char*>data + position[0] - size, size)


def decode_columns(bytes data, int count, long long base_offset, long long base_timestamp):
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t position = 0
    cdef list offsets = [], timestamps = [], keys = [], values = [], headers = []
    cdef int _
    for _ in range(count):
        get_varint(at, &position)
        position += 1
        timestamps.append(base_timestamp + get_varint(at, &position))
        offsets.append(base_offset + get_varint(at, &position))
        keys.append(get_bytes(at, &position))
        values.append(get_bytes(at, &position))
        get_varint(at, &position)
        headers.append(())
    return offsets, timestamps, keys, values, headers


def decode_records(bytes data, int count, long long base_offset, long long base_timestamp):
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t position = 0
    cdef list rows = []
    cdef Shared shared = Shared.__new__(Shared)
    cdef Record record
    cdef int _
    for _ in range(count):
        record = Record.__new__(Record)
        record.shared = shared
        get_varint(at, &position)
        position += 1
        record.timestamp_ms = base_timestamp + get_varint(at, &position)
        record.offset = base_offset + get_varint(at, &position)
        record.key = get_bytes(at, &position)
        record.value = get_bytes(at, &position)
        record.headers = ()
        get_varint(at, &position)
        rows.append(record)
    return rows


def decode_tracked_records(bytes data, int count, long long base_offset, long long base_timestamp):
    cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t position = 0
    cdef list rows = []
    cdef Shared shared = Shared.__new__(Shared)
    cdef TrackedRecord record
    cdef int _
    for _ in range(count):
        record = TrackedRecord.__new__(TrackedRecord)
        record.shared = shared
        get_varint(at, &position)
        position += 1
        record.timestamp_ms = base_timestamp + get_varint(at, &position)
        record.offset = base_offset + get_varint(at, &position)
        record.key = get_bytes(at, &position)
        record.value = get_bytes(at, &position)
        record.headers = ()
        get_varint(at, &position)
        rows.append(record)
    return rows


@cython.final
cdef class Chunk:
    """Makes each record when the loop asks for it, so that short-lived objects reuse memory."""
    cdef bytes data
    cdef Py_ssize_t position
    cdef int left
    cdef long long base_offset, base_timestamp
    cdef Shared shared

    def __init__(self, bytes data, int count, long long base_offset, long long base_timestamp):
        self.data = data
        self.left = count
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.shared = Shared.__new__(Shared)

    def __iter__(self):
        return self

    def __next__(self):
        cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(self.data)
        cdef Record record
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        record = Record.__new__(Record)
        record.shared = self.shared
        get_varint(at, &self.position)
        self.position += 1
        record.timestamp_ms = self.base_timestamp + get_varint(at, &self.position)
        record.offset = self.base_offset + get_varint(at, &self.position)
        record.key = get_bytes(at, &self.position)
        record.value = get_bytes(at, &self.position)
        record.headers = ()
        get_varint(at, &self.position)
        return record
