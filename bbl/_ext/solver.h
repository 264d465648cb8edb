/* Status codes of solvers, written by kernels and read by Python. */
#ifndef SOLVER_H
#define SOLVER_H

/* How the fit of one predictor ended */
enum solver_status {
    SOLVER_RUNNING = -1,
    SOLVER_CONVERGED = 0,
    SOLVER_ITMAX = 1,       /* iteration limit reached */
    SOLVER_STUCK = 2,       /* no step makes progress */
    SOLVER_NOT_FINITE = 3,  /* a number is infinite or NaN */
    SOLVER_STOPPED = 4      /* by a stop flag set by another thread */
};

/* How a call of a kernel ended */
enum solver_code {
    SOLVER_DONE = 0,
    SOLVER_INTERRUPTED = -1,  /* by a signal */
    SOLVER_NO_MEMORY = -2
};
#endif
