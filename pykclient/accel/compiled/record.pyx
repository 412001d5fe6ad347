"""The record that a consumer returns, built when the application reaches it.

Owner: see each class.
Source: Java class ``org.apache.kafka.clients.consumer.ConsumerRecord``.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from pykclient.accel.compiled.decoder cimport FrameColumns, Place, bytes_at, headers_at

from itertools import repeat
from types import GenericAlias

from pykclient.types import TopicPartition, utc_datetime

__all__ = ["ConsumerRecord", "iterate_records"]

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* something)
    Py_ssize_t Py_REFCNT(object data)
    Py_ssize_t PyBytes_GET_SIZE(object data)
    const char* PyBytes_AS_STRING(object data)

cdef extern from *:
    """
    #include <structmember.h>
    #define RECORD struct __pyx_obj_9pykclient_5accel_8compiled_6record_ConsumerRecord
    #define KEY_AT offsetof(RECORD, key)
    #define VALUE_AT offsetof(RECORD, value)
    static PyMemberDef members[] = {
        {"key", T_OBJECT_EX, 0, READONLY, NULL}, {"value", T_OBJECT_EX, 0, READONLY, NULL}
    };
    static int add_member(PyObject* record_type, int index, Py_ssize_t offset) {
        PyTypeObject* type = (PyTypeObject*)record_type;
        PyObject* descriptor;
        int result = -1;
        members[index].offset = offset;
        descriptor = PyDescr_NewMember(type, &members[index]);
        if (descriptor != NULL) {
            result = PyDict_SetItemString(type->tp_dict, members[index].name, descriptor);
            PyType_Modified(type);
            Py_DECREF(descriptor);
        }
        return result;
    }
    #ifdef Py_GIL_DISABLED
    #define HAS_GIL 0
    #else
    #define HAS_GIL 1
    #endif
    """
    Py_ssize_t KEY_AT
    Py_ssize_t VALUE_AT
    int add_member(object record_type, int index, Py_ssize_t offset) except -1
    bint HAS_GIL


@cython.final
@cython.no_gc
cdef class Origin:
    """The values that all records of a run share."""

    cdef object topic
    cdef object partition
    cdef object timestamp_type
    cdef object leader_epoch


@cython.final
@cython.freelist(256)
cdef class ConsumerRecord:
    """ConsumerRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers, \
leader_epoch, serialized_key_size, serialized_value_size)\n--\n\nOne record, as a consumer returns it.

    `topic`, `partition` and `offset` are its location; `timestamp_ms` is in milliseconds since
    1970, and `timestamp_type` its origin. `key` and `value` are bytes, or a deserializer's result;
    None is null. `headers` are pairs of a name and bytes or None, in order. `leader_epoch` is None
    if the broker did not report it; the sizes are those of the bytes before deserialization, -1 for
    null. Attributes, `==` and `repr` are stable; that it is a tuple is not.
    """

    # A record has copies of its bytes, so that keeping it keeps nothing else alive. The garbage
    # collector tracks it only if a deserializer made its key or value.

    cdef Origin origin
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef object key
    cdef object value
    cdef object _headers
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(
        self,
        topic,
        partition,
        int64_t offset,
        int64_t timestamp_ms,
        timestamp_type,
        key,
        value,
        headers,
        leader_epoch,
        int32_t serialized_key_size,
        int32_t serialized_value_size,
    ):
        self.origin = origin_of(topic, partition, timestamp_type, leader_epoch)
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self._headers = headers
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    @property
    def topic(self):
        """The topic's name."""
        return self.origin.topic

    @property
    def partition(self):
        """The partition's number."""
        return self.origin.partition

    @property
    def topic_partition(self):
        """The partition that the record was read from."""
        return TopicPartition(self.origin.topic, self.origin.partition)

    @property
    def timestamp(self):
        """The timestamp in UTC; None if there is none, or it is after the year 9999."""
        return utc_datetime(self.timestamp_ms)

    def header(self, name, default=None):
        """Return the value of the last header with a name; None if it is null.

        `default` is returned if no header has the name.
        """
        for each, value in reversed(self.headers):
            if each == name:
                return value
        return default

    @property
    def timestamp_type(self):
        """The origin of the timestamp."""
        return self.origin.timestamp_type

    @property
    def leader_epoch(self):
        """The epoch of the leader that wrote the record, None if the broker did not report it."""
        return self.origin.leader_epoch

    @property
    def headers(self):
        """Pairs of a name and a value, in order."""
        # Kept as bytes until they are read; few applications read them.
        with cython.critical_section(self):
            if PyBytes_CheckExact(self._headers):
                self._headers = headers_at(
                    <const unsigned char*>PyBytes_AS_STRING(self._headers),
                    PyBytes_GET_SIZE(self._headers),
                )
            return self._headers

    def _fields(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
            self.serialized_key_size,
            self.serialized_value_size,
        )

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return ConsumerRecord, self._fields()

    def __repr__(self):
        return (
            "ConsumerRecord(topic=%r, partition=%r, offset=%r, timestamp_ms=%r, "
            "timestamp_type=%r, key=%r, value=%r, headers=%r, leader_epoch=%r, "
            "serialized_key_size=%r, serialized_value_size=%r)"
        ) % self._fields()


@cython.final
cdef class RecordIterator:
    """An iterator that builds each record when the loop reaches it.

    While a loop takes the next record, its variable still has the last one. The record before
    that is reused if only this iterator refers to it.
    """

    cdef FrameColumns columns
    cdef Origin origin
    cdef Py_ssize_t row
    cdef ConsumerRecord last
    cdef ConsumerRecord before_last

    def __iter__(self):
        return self

    def __length_hint__(self):
        return max(0, self.columns.count - self.row)

    def __next__(self):
        cdef Py_ssize_t row = self.row
        cdef Place* place
        cdef ConsumerRecord record
        cdef const unsigned char* start
        if row >= self.columns.count:
            raise StopIteration
        self.row = row + 1
        place = self.columns.places + row
        start = self.columns.frame.start
        record = None
        if HAS_GIL:  # without one, another thread could be taking it
            record = self.before_last
            self.before_last = self.last
        if record is None or Py_REFCNT(record) > 1:
            record = ConsumerRecord.__new__(ConsumerRecord)
            record.origin = self.origin
            PyObject_GC_UnTrack(<void*>record)
        if HAS_GIL:
            self.last = record
        record.offset = place.offset
        record.timestamp_ms = place.timestamp_ms
        record.key = bytes_at(start, place.key_at, place.key_size)
        record.value = bytes_at(start, place.value_at, place.value_size)
        if place.headers_size == 0:
            record._headers = ()
        else:
            record._headers = PyBytes_FromStringAndSize(
                <const char*>start + place.headers_at, place.headers_size
            )
        record.serialized_key_size = place.key_size
        record.serialized_value_size = place.value_size
        return record


def iterate_records(
    columns, *, topic, partition, timestamp_type, leader_epoch, keys=None, values=None
):
    """Return an iterator over the records of `columns`, and an object that counts the remaining
    ones.

    Each record is made when it is taken. The object's `operator.length_hint` is exact whenever no
    record is being taken. `keys` and `values` replace the raw ones if they were deserialized; the
    sizes are those of the raw ones.
    """
    cdef RecordIterator records
    if keys is None and values is None and type(columns) is FrameColumns:
        records = RecordIterator.__new__(RecordIterator)
        records.columns = columns
        records.origin = origin_of(topic, partition, timestamp_type, leader_epoch)
        return records, records
    offsets = iter(columns.offsets)
    raw_keys, raw_values = columns.keys, columns.values
    made = map(
        ConsumerRecord,
        repeat(topic),
        repeat(partition),
        offsets,
        columns.timestamps_ms,
        repeat(timestamp_type),
        raw_keys if keys is None else keys,
        raw_values if values is None else values,
        columns.headers,
        repeat(leader_epoch),
        [-1 if key is None else len(key) for key in raw_keys],
        [-1 if value is None else len(value) for value in raw_values],
    )
    return made, offsets


cdef Origin origin_of(topic, partition, timestamp_type, leader_epoch):
    cdef Origin origin = Origin.__new__(Origin)
    origin.topic = topic
    origin.partition = partition
    origin.timestamp_type = timestamp_type
    origin.leader_epoch = leader_epoch
    return origin


# The interpreter reads such members itself; a property costs a call.
add_member(ConsumerRecord, 0, KEY_AT)
add_member(ConsumerRecord, 1, VALUE_AT)
