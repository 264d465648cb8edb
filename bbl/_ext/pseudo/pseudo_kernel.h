/* The complete pseudo-likelihood kernel for one vector width and precision; pseudo.h includes this file once for each.

   Define before inclusion: LANES, the numbers per vector; TARGET, the function attribute for its width; NAME(x), which
   adds the prefix of this kernel to x; SINGLE for single precision; ANCHOR for a kernel in double precision that only
   evaluates anchors for mixed precision and needs no optimiser; and in single precision EXACT(x), which adds the prefix
   of that kernel to x.

   Names in all parts (for terms see pseudo_problem.h): p is the problem and o the options; t contains a lane block's
   sites and sizes (t.site[v] is -1 if lane v has no site), w its arrays, s its search state, lane[v] the result of lane
   v. `vec` is a vector of V = LANES numbers REAL, `words` a vector of V integers WORD of the same size, `vf` a vector
   of V floats (NARROW and WIDEN convert between vec and vf); a mask is a `words` with all bits set in the selected
   lanes. NAME(f) is the function f for this vector width and precision, EXACT(f) the function in double precision if
   steps are in single precision (p->mixed). p->rows.scale converts sums over rows to means.

   The parts are, in this order:

   part               provides
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
/* including the two headers again undefines their names for the next kernel */
#include "vector_math.h"
#include "vector.h"
