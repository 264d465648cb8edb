/* Codes of how a solver ended, which kernels write and Python reads. */
#ifndef SOLVER_H
#define SOLVER_H

/* of one predictor */
enum solver_status {
    SOLVER_RUNNING = -1,
    SOLVER_CONVERGED = 0,
    SOLVER_ITMAX = 1,       /* the limit of iterations was reached */
    SOLVER_STUCK = 2,       /* no step makes progress */
    SOLVER_NOT_FINITE = 3,
    SOLVER_STOPPED = 4      /* by a stop flag */
};

/* of a call of a kernel */
enum solver_code {
    SOLVER_DONE = 0,
    SOLVER_INTERRUPTED = -1,  /* by a signal */
    SOLVER_NO_MEMORY = -2
};
#endif
