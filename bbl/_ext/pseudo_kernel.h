/* All of the pseudo-likelihood kernel for one vector width and precision; pseudo.h includes this file once for each. */
#include "pseudo_lanes.h"
#include "pseudo_metric.h"
#include "pseudo_solve.h"
#include "pseudo_task.h"
