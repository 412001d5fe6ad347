"""The system calls of the port, beside a thread of the application that computes.

Python's own modules release the GIL in each call, and then wait for it a switch interval or longer,
up to four times for one record. Here a call that sends or receives little keeps it, and a wait asks
for it as soon as something has come. Sockets and selectors that are not Python's own, such as those
of gevent, are used by their own methods. So are all of them where there is no epoll.

Owner: as the pure twin.
Source: epoll_wait(2), sendmsg(2), recv(2).
"""

import _socket
import os
import selectors
import socket

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno

from pykclient.accel.compiled.gil cimport after_wait, ask_for_gil

from pykclient.accel.pure import sockets as pure

__all__ = ["receive_into", "select_ready", "send_parts"]

cdef extern from *:
    """
    #include <errno.h>
    #include <limits.h>
    #ifdef __linux__
    #include <math.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <time.h>
    #define HAS_EPOLL 1

    static double monotonic_s(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec + now.tv_nsec * 1e-9;
    }
    static int timeout_ms(double timeout_s) {
        if (timeout_s <= 0) return 0;
        return timeout_s > INT_MAX / 1000 ? INT_MAX : (int)ceil(timeout_s * 1000);
    }
    static Py_ssize_t send_now(int descriptor, struct iovec *parts, int count) {
        struct msghdr message = {0};
        message.msg_iov = parts;
        message.msg_iovlen = count;
        return sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    static Py_ssize_t receive_now(int descriptor, void *start, Py_ssize_t size) {
        return recv(descriptor, start, size, MSG_DONTWAIT);
    }
    #else
    #define HAS_EPOLL 0
    struct epoll_event { int events; struct { int fd; } data; };
    struct iovec { void *iov_base; size_t iov_len; };
    enum { EPOLLIN, EPOLLOUT };
    static double monotonic_s(void) { return 0; }
    static int timeout_ms(double timeout_s) { return 0; }
    static int epoll_wait(int d, struct epoll_event *e, int c, int t) { return -1; }
    static Py_ssize_t send_now(int d, struct iovec *p, int c) { return -1; }
    static Py_ssize_t receive_now(int d, void *s, Py_ssize_t n) { return -1; }
    #endif
    """
    bint HAS_EPOLL
    int EAGAIN
    int EINTR
    int EWOULDBLOCK
    int EPOLLIN
    int EPOLLOUT
    int errno_now "errno"

    cdef struct epoll_data:
        int fd

    cdef struct epoll_event:
        unsigned int events
        epoll_data data

    cdef struct iovec:
        void* iov_base
        size_t iov_len

    double monotonic_s() nogil
    int timeout_ms(double timeout_s) nogil
    int epoll_wait(int descriptor, epoll_event* events, int count, int timeout_ms) nogil
    Py_ssize_t send_now(int descriptor, iovec* parts, int count) nogil
    Py_ssize_t receive_now(int descriptor, void* start, Py_ssize_t size) nogil

cdef enum:
    EVENT_COUNT_MAX = 64
    KEPT_BYTES_MAX = 64 * 1024  # what a call with the GIL moves at most: some 10 us
    SENT_PARTS_MAX = 64

cdef object Socket = socket.socket
cdef str SENDMSG = "sendmsg"
cdef str RECV_INTO = "recv_into"
cdef object OWN_SENDMSG = getattr(_socket.socket, SENDMSG, None)
cdef object OWN_RECV_INTO = _socket.socket.recv_into
cdef object Selector = getattr(selectors, "EpollSelector", None) if HAS_EPOLL else None
cdef int EVENT_READ = selectors.EVENT_READ
cdef int EVENT_WRITE = selectors.EVENT_WRITE
cdef object WOULD_BLOCK = pure.WOULD_BLOCK
cdef Py_ssize_t PART_COUNT_MAX = min(SENT_PARTS_MAX, pure.PART_COUNT_MAX)


def select_ready(selector, double timeout_s, bint is_urgent=True):
    """Wait as the pure twin does, and have the GIL soon after something is ready."""
    if type(selector) is not Selector:
        return pure.select_ready(selector, timeout_s, is_urgent)
    cdef epoll_event[EVENT_COUNT_MAX] events
    cdef int descriptor = selector.fileno(), count, index, found, ready_events, has_asked = 0
    cdef double until_s = monotonic_s() + timeout_s
    while True:
        with nogil:
            count = epoll_wait(descriptor, events, EVENT_COUNT_MAX, timeout_ms(timeout_s))
            found = errno_now
            has_asked = ask_for_gil() if is_urgent and count > 0 else 0
        after_wait(has_asked)
        if count >= 0:
            break
        if found != EINTR:
            raise OSError(found, os.strerror(found))
        PyErr_CheckSignals()
        timeout_s = until_s - monotonic_s()
    keys = selector.get_map()
    ready = []
    for index in range(count):
        key = keys.get(events[index].data.fd)
        if key is None:
            continue
        ready_events = 0
        if events[index].events & ~<unsigned int>EPOLLIN:
            ready_events |= EVENT_WRITE
        if events[index].events & ~<unsigned int>EPOLLOUT:
            ready_events |= EVENT_READ
        ready_events &= key.events
        if ready_events:
            ready.append((key, ready_events))
    return ready


def send_parts(sock, parts):
    """Send as the pure twin does, with the GIL if it is little."""
    cdef Py_buffer[SENT_PARTS_MAX] buffers
    cdef iovec[SENT_PARTS_MAX] vectors
    cdef Py_ssize_t count = 0, index, size = 0, sent
    cdef int descriptor
    if not HAS_EPOLL or type(sock) is not Socket or has_other(SENDMSG, OWN_SENDMSG):
        return pure.send_parts(sock, parts)
    try:
        for index in range(min(<Py_ssize_t>len(parts), PART_COUNT_MAX)):
            PyObject_GetBuffer(parts[index], &buffers[index], PyBUF_SIMPLE)
            count += 1
            vectors[index].iov_base = buffers[index].buf
            vectors[index].iov_len = buffers[index].len
            size += buffers[index].len
        # Read last: no other thread can close the socket before it is used with the GIL.
        descriptor = sock.fileno()
        if size <= KEPT_BYTES_MAX:
            sent = send_now(descriptor, vectors, count)
        else:
            with nogil:
                sent = send_now(descriptor, vectors, count)
        if sent < 0:
            return would_block()
        return sent
    finally:
        for index in range(count):
            PyBuffer_Release(&buffers[index])


def receive_into(sock, buffer):
    """Receive as the pure twin does, with the GIL if there is room for little."""
    cdef Py_buffer room
    cdef Py_ssize_t received
    cdef int descriptor
    if not HAS_EPOLL or type(sock) is not Socket or has_other(RECV_INTO, OWN_RECV_INTO):
        return pure.receive_into(sock, buffer)
    PyObject_GetBuffer(buffer, &room, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        descriptor = sock.fileno()
        if room.len <= KEPT_BYTES_MAX:
            received = receive_now(descriptor, room.buf, room.len)
        else:
            with nogil:
                received = receive_now(descriptor, room.buf, room.len)
        if received < 0:
            return would_block()
        return received
    finally:
        PyBuffer_Release(&room)


cdef bint has_other(str name, method):
    """Return whether the class of sockets has another method than Python's own, or none."""
    return getattr(Socket, name, None) is not method


cdef object would_block():
    """Return `WOULD_BLOCK` if that is what the last call said; raise what else it said."""
    # After a signal the selector reports the socket again.
    if errno_now in (EAGAIN, EWOULDBLOCK, EINTR):
        return WOULD_BLOCK
    PyErr_SetFromErrno(OSError)
