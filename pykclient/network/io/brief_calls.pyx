"""System calls on non-blocking sockets that keep the GIL, since they end at once.

A thread that gives up the GIL beside one that computes gets it back after the switch interval, five
milliseconds; the calls here take microseconds. They raise what the same calls of `socket` and
`select` raise.

Owner: none.
Source: sendmsg(2), recv(2), epoll_wait(2).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from libc.string cimport memset

cdef extern from "<errno.h>" nogil:
    int errno
    int EINTR

cdef extern from *:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0  /* macOS: the socket has SO_NOSIGPIPE instead */
    #endif
    """
    enum:
        MSG_NOSIGNAL

cdef extern from "<sys/socket.h>" nogil:
    ctypedef struct iovec "struct iovec":
        void* iov_base
        size_t iov_len

    ctypedef struct msghdr "struct msghdr":
        iovec* msg_iov
        size_t msg_iovlen

    enum:
        MSG_DONTWAIT

    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    ssize_t recv(int fd, void* start, size_t size, int flags)

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/epoll.h>
    #else
    struct epoll_event { unsigned events; struct { int fd; } data; };
    static int epoll_wait(int fd, struct epoll_event* events, int count, int timeout_ms) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    ctypedef union epoll_data:
        int fd

    ctypedef struct epoll_event "struct epoll_event":
        unsigned int events
        epoll_data data

    int epoll_wait(int fd, epoll_event* events, int count, int timeout_ms) nogil

__all__ = ["PART_COUNT_MAX", "ready_now", "receive_into", "send_parts"]

cdef enum:
    PARTS = 64
    EVENTS = 64

PART_COUNT_MAX = PARTS


def send_parts(int fd, parts not None):
    """Send what the system takes now of buffers, at most `PART_COUNT_MAX`; return how many bytes.

    Raises:
        OSError: as `socket.sendmsg`; BlockingIOError when it takes nothing now.
    """
    cdef Py_buffer[PARTS] views
    cdef iovec[PARTS] vectors
    cdef msghdr message
    cdef Py_ssize_t count = 0, sent = -1
    try:
        for part in parts:
            if count == PARTS:
                raise ValueError(f"more than {PARTS} parts at once")
            PyObject_GetBuffer(part, &views[count], PyBUF_SIMPLE)
            vectors[count].iov_base = views[count].buf
            vectors[count].iov_len = views[count].len
            count += 1
        memset(&message, 0, sizeof(message))
        message.msg_iov = vectors
        message.msg_iovlen = count
        while True:
            sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent >= 0 or errno != EINTR:
                break
        if sent < 0:
            PyErr_SetFromErrno(OSError)
    finally:
        while count:
            count -= 1
            PyBuffer_Release(&views[count])
    return sent


def receive_into(int fd, buffer):
    """Receive what has come, at most what `buffer` holds; return how many bytes, 0 at the end.

    Raises:
        OSError: as `socket.recv_into`; BlockingIOError when nothing has come.
    """
    cdef Py_buffer view
    cdef Py_ssize_t count
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        while True:
            count = recv(fd, view.buf, view.len, MSG_DONTWAIT)
            if count >= 0 or errno != EINTR:
                break
        if count < 0:
            PyErr_SetFromErrno(OSError)
    finally:
        PyBuffer_Release(&view)
    return count


def ready_now(int epoll_fd):
    """Return the sockets on which something has happened, with what, as epoll names it.

    Raises:
        OSError: there is no such epoll, or no epoll on this system.
    """
    cdef epoll_event[EVENTS] events
    cdef int count, place
    count = epoll_wait(epoll_fd, events, EVENTS, 0)
    if count < 0:
        if errno == EINTR:
            return []
        PyErr_SetFromErrno(OSError)
    return [(events[place].data.fd, events[place].events) for place in range(count)]
