"""Gate: as the pure twin, and the thread that waits has the GIL soon after it is opened.

Owner: as the pure twin.
Source: the timed locks of CPython's ``pythread.h``.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals

from pykclient.accel.compiled.gil cimport after_wait, ask_for_gil
from pykclient.accel.compiled.lock cimport core_lock, give_core_lock, take_core_lock

import threading
import time

__all__ = ["Gate"]

cdef extern from "pythread.h":
    ctypedef void* PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_FAILURE
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    enum:
        WAIT_LOCK
        NOWAIT_LOCK
    PyThread_type_lock PyThread_allocate_lock() noexcept
    void PyThread_free_lock(PyThread_type_lock lock) noexcept
    int PyThread_acquire_lock(PyThread_type_lock lock, int waits) noexcept nogil
    PyLockStatus PyThread_acquire_lock_timed(
        PyThread_type_lock lock, long long microseconds, int is_interruptible
    ) noexcept nogil
    void PyThread_release_lock(PyThread_type_lock lock) noexcept nogil

cdef double TIMEOUT_S_MAX = threading.TIMEOUT_MAX


@cython.final
cdef class Gate:
    """Closed when it is made. Each time that it is opened ends one wait."""

    cdef PyThread_type_lock barrier  # the waiting thread takes it, and who opens gives it
    cdef core_lock lock  # for the two below
    cdef Py_ssize_t opened_count
    cdef bint is_given

    def __cinit__(self):
        self.barrier = PyThread_allocate_lock()
        if self.barrier is NULL:
            raise MemoryError
        PyThread_acquire_lock(self.barrier, NOWAIT_LOCK)

    def __dealloc__(self):
        if self.barrier is not NULL:
            if not self.is_given:
                PyThread_release_lock(self.barrier)
            PyThread_free_lock(self.barrier)

    def open(self):
        """Release the thread that waits, or the next one that will."""
        take_core_lock(&self.lock)
        self.opened_count += 1
        if not self.is_given:
            self.is_given = True
            PyThread_release_lock(self.barrier)
        give_core_lock(&self.lock)

    def open_at_once(self):
        """Open it, and let go of the GIL once, so that the thread that waits may go on first."""
        self.open()
        time.sleep(0)

    def wait(self, double timeout_s):
        """Wait at most so long (negative: without limit); return whether it was opened."""
        cdef bint is_endless = timeout_s < 0 or timeout_s > TIMEOUT_S_MAX
        cdef double until_s = 0 if is_endless else time.monotonic() + timeout_s
        cdef long long microseconds
        cdef PyLockStatus status
        cdef int has_asked
        while not self.take_opened():
            microseconds = -1
            if not is_endless:
                microseconds = <long long>(max(0.0, until_s - time.monotonic()) * 1e6)
            with nogil:
                status = PyThread_acquire_lock_timed(self.barrier, microseconds, 1)
                has_asked = ask_for_gil() if status == PY_LOCK_ACQUIRED else 0
            after_wait(has_asked)
            if status == PY_LOCK_ACQUIRED:
                take_core_lock(&self.lock)
                self.is_given = False
                give_core_lock(&self.lock)
            elif status == PY_LOCK_INTR:
                PyErr_CheckSignals()
            elif not is_endless and time.monotonic() >= until_s:
                return bool(self.take_opened())
        return True

    cdef bint take_opened(self):
        cdef bint is_opened
        take_core_lock(&self.lock)
        is_opened = self.opened_count > 0
        if is_opened:
            self.opened_count -= 1
        give_core_lock(&self.lock)
        return is_opened
