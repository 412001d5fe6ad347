"""The shared result of a batch's records, and their delivery callbacks.

`Callbacks` is an append-only sequence. The result behaves like that of `accel.pure.delivery`.

Owner: the appender's owner while the batch is open, then the thread that ends the batch.
Source: Java classes ``ProduceRequestResult``, ``FutureRecordMetadata``.
"""

cimport cython
from cpython.array cimport array, clone, resize_smart
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from pykclient.accel.compiled.overflow cimport add_overflows

from types import GenericAlias

cdef extern from *:
    """
    /* A tuple of a class derived from tuple: what tuple.__new__ does, less its second copy. */
    static PyObject* new_tuple_of(PyObject* kind, Py_ssize_t size) {
        return ((PyTypeObject*)kind)->tp_alloc((PyTypeObject*)kind, size);
    }
    """
    tuple new_tuple_of(object kind, Py_ssize_t size)

__all__ = ["BatchResult", "Callbacks"]

cdef array NUMBERS = array("q")


@cython.final
cdef class Callbacks:
    """Pairs of a record's index and its delivery callback, in order, without an object for each."""

    def __cinit__(self):
        self.functions = []
        self.indexes = clone(NUMBERS, 0, zero=False)

    def __len__(self):
        return len(self.indexes)

    def __iter__(self):
        return zip(self.indexes, self.functions)

    cdef int add(self, Py_ssize_t index, object function) except -1:
        cdef Py_ssize_t place = len(self.indexes)
        self.functions.append(function)
        resize_smart(self.indexes, place + 1)
        self.indexes.data.as_longlongs[place] = index
        return 0


cdef class BatchResult:
    """The metadata of a batch's records.

    `kind` is a NamedTuple of topic, partition, offset and timestamp; the last two are None if
    unknown. `is_well`: every record is delivered and every callback has run, so that a `Delivery`
    takes its result from here. `base_offset` is the first record's offset; `log_append_time_ms` is
    None if records keep their own time.
    """

    __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, kind not None, str topic not None, partition):
        if not (isinstance(kind, type) and issubclass(kind, tuple)):
            raise TypeError(f"{kind!r} is no class of tuples")
        self.kind = kind
        self.topic = topic
        self.partition = partition
        self.first_indexes = self.timestamps_ms = NUMBERS

    def follow(self, appender):
        """Take the records' timestamps from `appender`. Call it before the first record."""
        self.first_indexes = appender.first_indexes
        self.timestamps_ms = appender.timestamps_ms

    cpdef where(self, Py_ssize_t index):
        """Return the metadata of the record at `index`."""
        return self.at(index, self.run_of(index))

    def report(self, callbacks, on_error):
        """Call delivery callbacks in order with the metadata of their records.

        If a callback raises anything (even an exit, since this is the sender thread), `on_error` is
        called with it while the exception is being handled.
        """
        cdef Py_ssize_t index, run = 0
        for index, on_delivery in callbacks:
            while run + 1 < len(self.first_indexes) and (
                self.first_indexes.data.as_longlongs[run + 1] <= index
            ):
                run += 1
            try:
                on_delivery(self.at(index, run), None)
            except BaseException:
                on_error(on_delivery)

    cdef tuple at(self, Py_ssize_t index, Py_ssize_t run):
        """Return the metadata of a record in a run of records with the same timestamp."""
        cdef object offset = None, timestamp_ms = self.log_append_time_ms
        cdef int64_t number
        cdef tuple fields
        if self.base_offset is not None:
            if add_overflows(<int64_t>self.base_offset, index, &number):
                offset = self.base_offset + <object>index  # only a broker's bug overflows
            else:
                offset = number
        if timestamp_ms is None:
            if not 0 <= run < len(self.timestamps_ms):
                raise IndexError("the batch has no such record")
            timestamp_ms = self.timestamps_ms.data.as_longlongs[run]
        fields = new_tuple_of(self.kind, 4)
        put_item(fields, 0, self.topic)
        put_item(fields, 1, self.partition)
        put_item(fields, 2, offset)
        put_item(fields, 3, timestamp_ms)
        return fields

    cdef Py_ssize_t run_of(self, Py_ssize_t index):
        cdef Py_ssize_t low = 0, high = len(self.first_indexes), middle
        while low < high:
            middle = (low + high) // 2
            if index < self.first_indexes.data.as_longlongs[middle]:
                high = middle
            else:
                low = middle + 1
        return low - 1


cdef inline int put_item(tuple fields, Py_ssize_t place, object item) except -1:
    Py_INCREF(item)
    PyTuple_SET_ITEM(fields, place, item)
    return 0
