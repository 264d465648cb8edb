# Signals: a check for Ctrl-C, for kernels that run without the GIL.
cdef extern from "Python.h":
    int PyErr_CheckSignals() noexcept  # an error remains set, and the caller of the kernel raises it


cdef inline int check_signals() noexcept nogil:
    """Return non-zero if Ctrl-C was pressed."""
    with gil:
        return PyErr_CheckSignals()
