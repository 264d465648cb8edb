/* All of the pseudo-likelihood kernel for one vector width and precision; pseudo.h includes this file once for each.

   With ANCHOR, only the parts that an anchor of mixed precision needs; in single precision EXACT(x) gives x the prefix of
   the kernel in double precision that has as many lanes. The order of inclusion follows this table:

   part               needs                          gives
   pseudo_logits.h    vectors, pseudo_problem.h      probabilities of rows from logits: logistic, softmax, change
   pseudo_lanes.h     logits                         passes over rows: forward, activate, reduce, pass
   pseudo_bundle.h    (types)                        lane_memory, evaluation, pair_history, search_state, lane_block
   pseudo_evaluate.h  lanes, bundle                  objective and gradient of a lane block: fields, evaluate
   pseudo_metric.h    bundle                         start metric of L-BFGS: precondition, measure
   pseudo_solve.h     evaluate, metric               L-BFGS of lane blocks: start_lanes, renew_directions, step_along_directions
   pseudo_task.h      bundle                         memory and parameters of a lane block: task_open, load_parameters
   pseudo_pack.h      solve, task                    several blocks and mixed precision: refresh_anchor, minimise
   pseudo_entry.h     evaluate, task, pack           what pseudo.h calls: objective, normaliser, moments, solve */
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
#include "pseudo_entry.h"

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
