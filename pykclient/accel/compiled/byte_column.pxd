# What other compiled modules may use of byte_column.pyx: the items of a column, without the GIL.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

cdef extern from "Python.h":
    PyObject* none "Py_None"
    PyObject* tuple_item "PyTuple_GET_ITEM"(PyObject* items, Py_ssize_t index) noexcept nogil
    char* bytes_data "PyBytes_AS_STRING"(PyObject* item) noexcept nogil
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject* item) noexcept nogil


cdef enum Layout:
    OBJECTS
    OFFSETS_32
    OFFSETS_64
    VIEWS
    REPEATED


cdef struct Items:
    # Where the items of a column are. What `objects`, `data` and the others point to, the column
    # keeps alive; `first` is the index there of the column's first item. With views `data` is them,
    # and `buffers` is what they look at.
    Layout layout
    Py_ssize_t first
    PyObject* objects
    const int32_t* offsets_32
    const int64_t* offsets_64
    const unsigned char* validity
    const unsigned char* data
    const unsigned char** buffers


cdef struct Field:
    # One item; size -1 is null.
    const unsigned char* data
    Py_ssize_t size


cdef class ByteColumn:
    cdef readonly Py_ssize_t count
    cdef Items items
    cdef object owners


# Not in line: what every other layout costs grows with the size of `field_at`.
cdef Field view_at(const Items* items, Py_ssize_t index) noexcept nogil


cdef inline Field field_at(const Items* items, Py_ssize_t index) noexcept nogil:
    cdef Field field
    cdef PyObject* item
    if items.layout == OBJECTS:
        item = tuple_item(items.objects, index)
        if item is none:
            field.data = NULL
            field.size = -1
        else:
            field.data = <const unsigned char*>bytes_data(item)
            field.size = bytes_size(item)
        return field
    if items.layout == REPEATED:
        field.data = items.data
        field.size = items.first
        return field
    index += items.first
    if items.validity is not NULL and not items.validity[index >> 3] >> (index & 7) & 1:
        field.data = NULL
        field.size = -1
    elif items.layout == OFFSETS_32:
        field.data = items.data + items.offsets_32[index]
        field.size = items.offsets_32[index + 1] - items.offsets_32[index]
    elif items.layout == OFFSETS_64:
        field.data = items.data + items.offsets_64[index]
        field.size = <Py_ssize_t>(items.offsets_64[index + 1] - items.offsets_64[index])
    else:
        return view_at(items, index)
    return field
