/* All of the pseudo-likelihood kernel for one vector width and precision; pseudo.h includes this file once for each.
   Where ANCHOR is set, no more than what an anchor of mixed precision takes; in single precision EXACT(x) gives x the
   prefix of the kernel in double precision that has as many lanes. */
#include "pseudo_logits.h"
#include "pseudo_lanes.h"
#include "pseudo_bundle.h"
#include "pseudo_evaluate.h"
#ifndef ANCHOR
#include "pseudo_metric.h"
#include "pseudo_solve.h"
#endif
#include "pseudo_task.h"
#ifndef ANCHOR
#include "pseudo_pack.h"
#endif

#undef lane_memory
#undef evaluation
#undef pair_history
#undef search_state
#undef lane_block
#undef SAFE
#undef TINY
#undef NOISE
#undef FLAT
#undef SUMMED
#undef SUMS
#undef ANCHOR
#undef EXACT
#include "vector_math.h"
#include "vector.h"
