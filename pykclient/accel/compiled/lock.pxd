# A lock for a few instructions in C. Where there is a GIL, that is the lock, and this one is nothing.
#
# All zero is open, so an object made by Python has an open one. Whoever has it calls no Python code
# and waits for nothing.
#
# Owner: see each user.

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    typedef PyMutex core_lock;
    #define take_core_lock(lock) PyMutex_Lock(lock)
    #define give_core_lock(lock) PyMutex_Unlock(lock)
    #else
    typedef char core_lock;
    #define take_core_lock(lock) ((void)(lock))
    #define give_core_lock(lock) ((void)(lock))
    #endif
    """
    ctypedef struct core_lock:
        pass

    void take_core_lock(core_lock* lock) noexcept
    void give_core_lock(core_lock* lock) noexcept
