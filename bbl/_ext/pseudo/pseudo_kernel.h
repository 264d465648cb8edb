/* All of the pseudo-likelihood kernel for one vector width and precision; pseudo.h includes this file once for each.

   Set before inclusion: LANES, the numbers in a vector; TARGET, the function attribute for its width; NAME(x), which
   gives x the prefix of this kernel; SINGLE for single precision; ANCHOR for a kernel in double precision that only
   evaluates anchors of mixed precision and needs no optimiser; in single precision EXACT(x), which gives x the prefix
   of that kernel. A *lane block* is a set of sites (predictors that respond), one in each lane of a vector. Parts, in
   this order:

   part               gives
   pseudo_logits.h    probabilities of rows from their logits: logistic_rows, softmax_rows, change_rows
   pseudo_lanes.h     passes over the rows: compute_logits, logits_to_probabilities, sum_rows_to_columns, pass_over_rows
   pseudo_bundle.h    types: lane_memory, evaluation, pair_history, search_state, lane_block
   pseudo_evaluate.h  objective and gradient of a lane block: evaluate
   pseudo_metric.h    approximate inverse Hessian: apply_metric, metric_quadratic_form
   pseudo_solve.h     L-BFGS of lane blocks: start_lanes, renew_directions, step_along_directions
   pseudo_task.h      memory and parameters of a lane block: open_lane_block, load_parameters, store_parameters
   pseudo_pack.h      several blocks and mixed precision: refresh_anchor, compact_blocks, minimise
   pseudo_entry.h     functions that pseudo.h calls: evaluate_objective, add_normalisers, count_moments, solve */
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
#undef SUM_ROWS
#undef SUMS
#undef ANCHOR
#undef EXACT
/* included again, these two undefine their names, for the next kernel */
#include "vector_math.h"
#include "vector.h"
