/* All of the pseudo-likelihood kernel for one vector width and precision; pseudo.h includes this file once for each. */
#include "pseudo_lanes.h"
#include "pseudo_metric.h"
#include "pseudo_solve.h"
#include "pseudo_task.h"

#undef vf
#undef work
#undef point
#undef history
#undef search
#undef NARROW
#undef WIDEN
#undef SAFE
#undef TINY
#undef NOISE
#undef FLAT
#include "vector_math.h"
#include "vector.h"
