"""Sparse multinomial logistic regression on products of predictors, by coordinate descent over terms.

(a) Each of T terms has a state in each of the n rows, given by a row of `states` (T, n), and a table (S, d) of its d
    features in each of its S states. The tables are concatenated in `table`, where term t starts at ``table_start[t]``;
    the matrix of features is never formed. The weights (d, q) of a term for q contrasts of the K classes are the rows
    ``theta_start[t]`` to ``theta_start[t + 1] - 1`` of `theta` (D, q). Shapes: n_states (T,), table_start (T,),
    theta_start (T + 1,). Indices: term t, row i, state s, feature a, contrast c, class k.
(b) Arrays by contrast and row, (q, n): the link f, the linear predictor; the slope dF/df of the loss F; in `descend`,
    the slope z of a quadratic model of F with one curvature per row, curve (n,), which is exact for two classes and
    otherwise an upper bound.
(c) Terms with two states, such as products of binary predictors, use the vectorised loops of sparse.h: loops.sum
    returns the sum of z over rows in state 1; loops.add updates z for a change of the link and returns its new sum.
"""
from libc.math cimport exp, fabs, log, sqrt
from libc.stdint cimport int32_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc

cdef extern from "sparse.h" nogil:
    ctypedef struct sparse_loops:
        double (*sum)(const uint8_t *on, const double *z, Py_ssize_t n) noexcept nogil
        double (*add)(const uint8_t *on, const double *curve, double change_0, double difference, double *z,
                      Py_ssize_t n) noexcept nogil
    sparse_loops sparse_choose_loops()
    double sparse_total(const double *z, Py_ssize_t n)

ctypedef fused code_t:
    uint8_t
    uint16_t
    int32_t

cdef enum:
    MAX_GRAM_FEATURES = 64  # maximum number of features of a term whose Gram matrix is computed to bound the curvature


cdef void sum_by_state(const code_t *row_state, const double *z, Py_ssize_t n, Py_ssize_t S, double total,
                       const sparse_loops *loops, double *sums_out) noexcept nogil:
    """Write the sum of z (n) over the rows in each of S states to the first S numbers of sums_out.

    sums_out has space for 4 S numbers: four independent partial sums. `total` is the sum of z.
    """
    cdef Py_ssize_t i = 0, s
    cdef double *part_1 = sums_out + S
    cdef double *part_2 = part_1 + S
    cdef double *part_3 = part_2 + S
    if code_t is uint8_t:
        if S == 2:
            sums_out[1] = loops.sum(row_state, z, n)
            sums_out[0] = total - sums_out[1]
            return
    for s in range(4 * S):
        sums_out[s] = 0.0
    while i + 4 <= n:
        sums_out[row_state[i]] += z[i]
        part_1[row_state[i + 1]] += z[i + 1]
        part_2[row_state[i + 2]] += z[i + 2]
        part_3[row_state[i + 3]] += z[i + 3]
        i += 4
    while i < n:
        sums_out[row_state[i]] += z[i]
        i += 1
    for s in range(S):
        sums_out[s] += part_1[s] + (part_2[s] + part_3[s])


cdef void project(const double *sums, const double *table, Py_ssize_t S, Py_ssize_t d, Py_ssize_t q, Py_ssize_t c,
                  double *gradient_out) noexcept nogil:
    """Write column c of gradient_out (d, q): the transpose of a term's table (S, d) times the sums (S,) by state."""
    cdef Py_ssize_t s, a
    for a in range(d):
        gradient_out[a * q + c] = 0.0
    for s in range(S):
        for a in range(d):
            gradient_out[a * q + c] += sums[s] * table[s * d + a]


def slopes(const double[:, ::1] link, const Py_ssize_t[::1] y, const double[::1] weights,
           const double[:, ::1] contrasts, double[:, ::1] slope_out, double[::1] curve_out):
    """Return the weighted log-loss at `link` (q, n); write its slope (q, n) and an upper bound of its curvature (n,).

    y (n,) contains the classes. Scores of the K classes are ``C @ link``, where C = contrasts (K, q); p is their
    softmax.
    """
    cdef Py_ssize_t n = link.shape[1], q = link.shape[0], K = contrasts.shape[0], i, c, k
    cdef double loss = 0.0, largest, total, p, max_variance, row_loss
    cdef double *score = <double *> malloc(sizeof(double) * <size_t> K)
    if score == NULL:
        raise MemoryError
    with nogil:
        for i in range(n):
            largest = -1e300
            for k in range(K):
                score[k] = 0.0
                for c in range(q):
                    score[k] += contrasts[k, c] * link[c, i]
                largest = max(largest, score[k])
            total = 0.0
            row_loss = largest - score[y[i]]
            for k in range(K):
                score[k] = exp(score[k] - largest)
                total += score[k]
            loss += weights[i] * (row_loss + log(total))
            max_variance = 0.0
            for c in range(q):
                slope_out[c, i] = -contrasts[y[i], c]
            for k in range(K):
                p = score[k] / total
                max_variance = max(max_variance, p * (total - score[k]) / total)  # p (1 - p)
                for c in range(q):
                    slope_out[c, i] += p * contrasts[k, c]
            for c in range(q):
                slope_out[c, i] *= weights[i]
            curve_out[i] = weights[i] * max_variance  # C'(diag(p) - pp')C <= 2 max p (1 - p) C'C, and C'C = I / 2
    free(score)
    return loss


def gradients(const code_t[:, ::1] states, const Py_ssize_t[::1] n_states, const double[::1] table,
              const Py_ssize_t[::1] table_start, const Py_ssize_t[::1] theta_start, const double[:, ::1] slope,
              double[:, ::1] gradient_out):
    """Write the gradient (D, q) of the loss with respect to the weights of all terms, given the slope (q, n)."""
    cdef Py_ssize_t T = states.shape[0], n = states.shape[1], q = slope.shape[0], t, c, d, max_states = 2
    cdef sparse_loops loops = sparse_choose_loops()
    cdef double *sums
    cdef double total
    if not T or not n:
        return
    for t in range(T):
        max_states = max(max_states, n_states[t])
    sums = <double *> malloc(sizeof(double) * <size_t> (4 * max_states))
    if sums == NULL:
        raise MemoryError
    with nogil:
        for c in range(q):
            total = sparse_total(&slope[c, 0], n)
            for t in range(T):
                sum_by_state(&states[t, 0], &slope[c, 0], n, n_states[t], total, &loops, sums)
                d = theta_start[t + 1] - theta_start[t]
                project(sums, &table[table_start[t]], n_states[t], d, q, c, &gradient_out[theta_start[t], 0])
    free(sums)


def add_terms(const code_t[:, ::1] states, const Py_ssize_t[::1] n_states, const double[::1] table,
              const Py_ssize_t[::1] table_start, const Py_ssize_t[::1] theta_start, const double[:, ::1] theta,
              double[:, ::1] link):
    """Add the contributions of all terms with weights theta (D, q) to `link` (q, n)."""
    cdef Py_ssize_t T = states.shape[0], n = states.shape[1], q = theta.shape[1], t, c, i, a, s, d, max_states = 2
    cdef double *state_link
    cdef const code_t *row_state
    cdef double *link_c
    cdef bint any_weight
    if not T or not n:
        return
    for t in range(T):
        max_states = max(max_states, n_states[t])
    state_link = <double *> malloc(sizeof(double) * <size_t> max_states)
    if state_link == NULL:
        raise MemoryError
    with nogil:
        for t in range(T):
            d = theta_start[t + 1] - theta_start[t]
            row_state = &states[t, 0]
            for c in range(q):
                any_weight = False
                for a in range(d):
                    any_weight = any_weight or theta[theta_start[t] + a, c] != 0.0
                if not any_weight:
                    continue
                for s in range(n_states[t]):
                    state_link[s] = 0.0
                    for a in range(d):
                        state_link[s] += table[table_start[t] + s * d + a] * theta[theta_start[t] + a, c]
                link_c = &link[c, 0]
                for i in range(n):
                    link_c[i] += state_link[row_state[i]]
    free(state_link)


cdef double bound_curvature(const double *sums, const double *table, Py_ssize_t S, Py_ssize_t d) noexcept nogil:
    """Bound the curvature along a term's d features, given sums (S,) of the row curvature by state; exact if d = 1."""
    cdef Py_ssize_t s, a, b
    cdef double gram_ab, row_sum, gram_bound = 0.0, state_bound = 0.0, norm = 0.0
    for s in range(S):
        state_bound = max(state_bound, sums[s])
        norm += table[s * d] * table[s * d]
    # features are orthogonal over states: table' table = norm I, where norm = S unless numeric values are factors
    state_bound *= S if fabs(norm - S) < 1e-9 * S else norm
    if d > MAX_GRAM_FEATURES:
        return state_bound
    for a in range(d):
        row_sum = 0.0
        for b in range(d):
            gram_ab = 0.0
            for s in range(S):
                gram_ab += sums[s] * table[s * d + a] * table[s * d + b]
            row_sum += fabs(gram_ab)
        gram_bound = max(gram_bound, row_sum)  # no eigenvalue exceeds the largest row sum (Gershgorin)
    return min(state_bound, gram_bound)


cdef double step_group(double *weight, const double *gradient, double curve, double penalty, Py_ssize_t size,
                       double *step) noexcept nogil:
    """Take the proximal step of `size` weights in place and write it to `step` (size,); return its norm.

    The step s minimises gradient's + curve/2 |s|^2 + penalty |weight + s|, where curve is a bound of the curvature.
    """
    cdef Py_ssize_t a
    cdef double pull, pull_norm = 0.0, scale, new_weight, step_norm = 0.0
    for a in range(size):
        pull = curve * weight[a] - gradient[a]  # curve times the unpenalised optimum of the weight
        pull_norm += pull * pull
    pull_norm = sqrt(pull_norm)
    scale = 0.0 if pull_norm <= penalty else (1.0 - penalty / pull_norm) / curve
    for a in range(size):
        new_weight = scale * (curve * weight[a] - gradient[a]) if scale else 0.0
        step[a] = new_weight - weight[a]
        weight[a] = new_weight
        step_norm += step[a] * step[a]
    return sqrt(step_norm)


cdef double update_term(const code_t *row_state, Py_ssize_t n, Py_ssize_t S, Py_ssize_t d, Py_ssize_t q,
                        const double *table, double penalty, bint group, double curve_bound, const double *curve,
                        double *z, double *totals, double *theta, double *scratch,
                        const sparse_loops *loops) noexcept nogil:
    """Update the weights theta (d, q) of one term, z and totals; return a bound of the change of its gradient.

    The bound is in units of the penalty; 0 means that no weight has changed. With `group`, all weights share one
    penalty, of their norm; otherwise the weights of each feature have one. Shapes: row_state (n,), table (S, d), curve
    (n,), z (q, n), totals (q,) for the sums of z over all rows, scratch (4 S + 2 d q,). curve_bound bounds the
    curvature along the weights.
    """
    cdef double *sums = scratch             # (S,) and space for partial sums
    cdef double *gradient = sums + 4 * S    # (d, q)
    cdef double *steps = gradient + d * q   # (d, q)
    cdef double *link_change = scratch      # (S,), overwrites sums, which are not needed after the step
    cdef Py_ssize_t c, a, s, i
    cdef double gradient_change = 0.0, step_norm
    for c in range(q):
        sum_by_state(row_state, z + c * n, n, S, totals[c], loops, sums)
        project(sums, table, S, d, q, c, gradient)
    if group:
        gradient_change = curve_bound * step_group(theta, gradient, curve_bound, penalty, d * q, steps)
    else:
        for a in range(d):
            step_norm = step_group(theta + a * q, gradient + a * q, curve_bound, penalty, q, steps + a * q)
            gradient_change = max(gradient_change, curve_bound * step_norm)
    if gradient_change == 0.0:
        return 0.0
    for c in range(q):
        for s in range(S):
            link_change[s] = 0.0
            for a in range(d):
                link_change[s] += table[s * d + a] * steps[a * q + c]
        if code_t is uint8_t:
            if S == 2:
                totals[c] = loops.add(row_state, curve, link_change[0], link_change[1] - link_change[0], z + c * n, n)
                continue
        for i in range(n):
            z[c * n + i] += curve[i] * link_change[row_state[i]]
        totals[c] = sparse_total(z + c * n, n)
    return gradient_change / penalty


def descend(const code_t[:, ::1] states, const Py_ssize_t[::1] n_states, const double[::1] table,
            const Py_ssize_t[::1] table_start, const Py_ssize_t[::1] theta_start, const double[::1] penalty, bint group,
            const double[::1] curve, double max_intercept, double tolerance, int itmax, const int32_t[::1] stop,
            double[:, ::1] z, double[:, ::1] theta, double[::1] intercept):
    """Minimise the quadratic model plus the penalties (T,) over all terms, in place; return the number of sweeps.

    For a change g (q, n) of the link the model is sum(z g + curve g^2 / 2); a penalty is penalty[t] times a norm: of a
    term's weights with `group`, otherwise of the weights of each feature. z (q, n), the slope, is updated; theta (D, q)
    and intercept (q,) contain the start. max_intercept bounds |intercept|, whose optimum is infinite for a class
    without rows. After a sweep over all terms, terms with non-zero weights are swept until they converge, then all
    again. The descent ends when no step of a sweep over all terms changes a gradient by more than `tolerance` times its
    penalty, after `itmax` sweeps, or if another thread sets stop[0] (after an interrupt or error).
    """
    cdef Py_ssize_t T = states.shape[0], n = states.shape[1], q = z.shape[0], t, c, a, i, d
    cdef Py_ssize_t max_states = 1, max_features = 1
    cdef sparse_loops loops = sparse_choose_loops()
    cdef double change, new_intercept, step, min_penalty = 1e300, total_curve = sparse_total(&curve[0], n)
    cdef int sweep = 0
    cdef bint all_terms = True, is_active
    cdef double *curve_bound
    cdef double *totals
    cdef double *scratch
    for t in range(T):
        max_states = max(max_states, n_states[t])
        max_features = max(max_features, theta_start[t + 1] - theta_start[t])
        min_penalty = min(min_penalty, penalty[t])
    if not T:
        min_penalty = total_curve  # the change is then the step of the intercept itself
    curve_bound = <double *> malloc(sizeof(double) * <size_t> (T + q + 4 * max_states + 2 * max_features * q))
    if curve_bound == NULL:
        raise MemoryError
    totals = curve_bound + T
    scratch = totals + q
    with nogil:
        for t in range(T):
            d = theta_start[t + 1] - theta_start[t]
            sum_by_state(&states[t, 0], &curve[0], n, n_states[t], total_curve, &loops, scratch)
            # scratch: curvature summed by state; 1e-300 avoids a division by 0
            curve_bound[t] = max(1e-300, bound_curvature(scratch, &table[table_start[t]], n_states[t], d))
        for c in range(q):
            totals[c] = sparse_total(&z[c, 0], n)
        while sweep < itmax and not stop[0]:
            sweep += 1
            change = 0.0  # largest change of a gradient in this sweep, in units of its penalty
            for c in range(q):
                new_intercept = intercept[c] - totals[c] / max(total_curve, 1e-300)
                new_intercept = min(max_intercept, max(-max_intercept, new_intercept))
                step = new_intercept - intercept[c]
                intercept[c] = new_intercept
                if step != 0.0:
                    for i in range(n):
                        z[c, i] += step * curve[i]
                    totals[c] = sparse_total(&z[c, 0], n)
                    change = max(change, fabs(step) * total_curve / min_penalty)  # the intercept has no penalty
            for t in range(T):
                d = theta_start[t + 1] - theta_start[t]
                if not all_terms:
                    is_active = False
                    for a in range(theta_start[t], theta_start[t + 1]):
                        for c in range(q):
                            is_active = is_active or theta[a, c] != 0.0
                    if not is_active:
                        continue
                change = max(change, update_term(&states[t, 0], n, n_states[t], d, q, &table[table_start[t]],
                                                 penalty[t], group, curve_bound[t], &curve[0], &z[0, 0], totals,
                                                 &theta[theta_start[t], 0], scratch, &loops))
            if change <= tolerance:
                if all_terms:
                    break
                all_terms = True
            else:
                all_terms = False
    free(curve_bound)
    return sweep


def descend_gram(const double[:, ::1] hessian, const Py_ssize_t[::1] theta_start, const double[::1] penalty, bint group,
                 double tolerance, int itmax, const int32_t[::1] stop, double[:, ::1] slope, double[:, ::1] theta):
    """Minimise as in `descend`, given the Hessian (D q, D q) of the model with respect to all weights; return the
    number of sweeps.

    For a change t (D q,) of the weights the model is slope't + t' hessian t / 2; the q weights of a feature are
    contiguous. slope (D, q), the gradient at theta (D, q), is updated with theta. A term with penalty 0, such as the
    intercept, is unpenalised; its change is in units of the smallest penalty. This is cheaper if there are few features
    and many rows, and exact for K > 2.
    """
    cdef Py_ssize_t T = penalty.shape[0], D = theta.shape[0], q = theta.shape[1]
    cdef Py_ssize_t t, a, b, first, end, size, max_features = 1
    cdef double change, row_sum, largest_sum, min_penalty = 1e300, step_norm, max_step_norm
    cdef int sweep = 0
    cdef bint all_terms = True, is_active
    cdef double *curve_bound
    cdef double *step
    cdef double *weight = &theta[0, 0]
    cdef double *gradient = &slope[0, 0]
    for t in range(T):
        max_features = max(max_features, theta_start[t + 1] - theta_start[t])
        if penalty[t] > 0:
            min_penalty = min(min_penalty, penalty[t])
    curve_bound = <double *> malloc(sizeof(double) * <size_t> (T + max_features * q))
    if curve_bound == NULL:
        raise MemoryError
    step = curve_bound + T
    with nogil:
        for t in range(T):
            first, end, largest_sum = theta_start[t] * q, theta_start[t + 1] * q, 1e-300
            for a in range(first, end):
                row_sum = 0.0
                for b in range(first, end):
                    row_sum += fabs(hessian[a, b])
                largest_sum = max(largest_sum, row_sum)
            curve_bound[t] = largest_sum  # of absolute values in a row: an upper bound of all eigenvalues
        while sweep < itmax and not stop[0]:
            sweep += 1
            change = 0.0  # largest change of a gradient in this sweep, in units of its penalty
            for t in range(T):
                first, end = theta_start[t] * q, theta_start[t + 1] * q
                if not all_terms:
                    is_active = False
                    for a in range(first, end):
                        is_active = is_active or weight[a] != 0.0
                    if not is_active:
                        continue
                size = end - first if group else q
                max_step_norm = 0.0
                a = first
                while a < end:
                    step_norm = step_group(weight + a, gradient + a, curve_bound[t], penalty[t], size, step + a - first)
                    max_step_norm = max(max_step_norm, step_norm)
                    a += size
                if max_step_norm == 0.0:
                    continue
                change = max(change, max_step_norm * curve_bound[t] / (penalty[t] if penalty[t] > 0 else min_penalty))
                for a in range(first, end):
                    if step[a - first] != 0.0:
                        for b in range(D * q):
                            gradient[b] += hessian[a, b] * step[a - first]
            if change <= tolerance:
                if all_terms:
                    break
                all_terms = True
            else:
                all_terms = False
    free(curve_bound)
    return sweep
