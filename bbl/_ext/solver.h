/* How a solver ended: codes that the kernels write and Python reads. */
#ifndef SOLVER_H
#define SOLVER_H

/* Of one predictor */
enum solver_status {
    SOLVER_RUNNING = -1,
    SOLVER_CONVERGED = 0,
    SOLVER_ITMAX = 1,       /* the most iterations were taken */
    SOLVER_STUCK = 2,       /* no step makes progress */
    SOLVER_NOT_FINITE = 3,
    SOLVER_STOPPED = 4      /* from outside */
};

/* Of a call */
enum solver_code {
    SOLVER_DONE = 0,
    SOLVER_INTERRUPTED = -1,  /* the check for signals wants to stop */
    SOLVER_NO_MEMORY = -2
};
#endif
