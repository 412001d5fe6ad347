"""The interpreter's lock, and how a thread that waits without it gets it back soon.

A thread that wants the GIL waits for a switch interval, 5 ms, before it asks a busy thread for it.
`ask_for_gil` makes that wait short, by the interval itself: before CPython 3.12 the private
`_PyEval_SetSwitchInterval` may be called without the GIL. It is looked up. Nothing is done where it
is missing, with a newer Python, without a GIL, or where the application has a short interval.

Each request costs a busy thread its turn. So there are few: a burst, then one in each interval.

Owner: any thread. Between `ask_for_gil` and `after_wait` a thread runs no Python code.
Source: ``take_gil`` in CPython's ``ceval_gil.h``.
"""

import os

cdef extern from *:
    """
    #if defined(__linux__) && PY_VERSION_HEX < 0x030C0000
    #include <dlfcn.h>
    #include <time.h>

    #define ASKED_AT_ONCE_MAX 4
    #define ASK_INTERVAL_NS 5000000LL
    /* The thread looks this often whether it has the GIL, also while the other one does not run. */
    #define SHORT_INTERVAL_US 200UL

    static void (*set_interval)(unsigned long);
    static unsigned long (*get_interval)(void);
    static unsigned long usual_interval_us;
    static int asking_count;
    /* The end of the intervals in use. Threads that race for it ask once too often, or not. */
    static long long burst_ns;

    static int may_ask(void) {
        struct timespec now;
        long long now_ns, from_ns;
        clock_gettime(CLOCK_MONOTONIC, &now);
        now_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
        from_ns = __atomic_load_n(&burst_ns, __ATOMIC_RELAXED);
        if (from_ns > now_ns) return 0;
        if (from_ns < now_ns - ASKED_AT_ONCE_MAX * ASK_INTERVAL_NS)
            from_ns = now_ns - ASKED_AT_ONCE_MAX * ASK_INTERVAL_NS;
        __atomic_store_n(&burst_ns, from_ns + ASK_INTERVAL_NS, __ATOMIC_RELAXED);
        return 1;
    }

    static void gil_look_up(void) {
        set_interval = (void (*)(unsigned long))dlsym(RTLD_DEFAULT, "_PyEval_SetSwitchInterval");
        get_interval = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, "_PyEval_GetSwitchInterval");
    }

    static int gil_ask(void) {
        unsigned long interval_us;
        if (!set_interval || !get_interval) return 0;
        interval_us = get_interval(); /* the usual one unless another thread asks, too */
        if (interval_us < SHORT_INTERVAL_US || !may_ask()) return 0;
        if (interval_us > SHORT_INTERVAL_US)
            __atomic_store_n(&usual_interval_us, interval_us, __ATOMIC_RELAXED);
        else if (!__atomic_load_n(&usual_interval_us, __ATOMIC_RELAXED))
            return 0;
        __atomic_add_fetch(&asking_count, 1, __ATOMIC_SEQ_CST);
        set_interval(SHORT_INTERVAL_US);
        return 1;
    }

    static void gil_after_wait(int has_asked) {
        /* Another thread may ask between the two lines: it only waits longer, and comes here. */
        if (has_asked && !__atomic_sub_fetch(&asking_count, 1, __ATOMIC_SEQ_CST)
            && get_interval() == SHORT_INTERVAL_US)
            set_interval(__atomic_load_n(&usual_interval_us, __ATOMIC_RELAXED));
    }

    static void gil_after_fork(void) { /* those that ask are threads of the parent */
        if (asking_count && get_interval() == SHORT_INTERVAL_US)
            set_interval(__atomic_load_n(&usual_interval_us, __ATOMIC_RELAXED));
        asking_count = 0;
    }
    #else
    static void gil_look_up(void) {}
    static int gil_ask(void) { return 0; }
    static void gil_after_wait(int has_asked) {}
    static void gil_after_fork(void) {}
    #endif
    """
    void gil_look_up()
    int gil_ask() noexcept nogil
    void gil_after_wait(int has_asked) noexcept
    void gil_after_fork()


cdef int ask_for_gil() noexcept nogil:
    """Make the thread that has the GIL release it; return what `after_wait` is to be given."""
    return gil_ask()


cdef void after_wait(int has_asked) noexcept:
    """Restore what `ask_for_gil` has changed. With the GIL."""
    gil_after_wait(has_asked)


def forget_parent():
    """Restore the switch interval in a process that was forked while another thread asked."""
    gil_after_fork()


gil_look_up()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=forget_parent)
