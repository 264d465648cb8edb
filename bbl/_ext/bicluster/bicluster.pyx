# Biclust: sums over the observed cells of a two-way table, and moves of one row at a time.
"""Sums over the observed cells of a table, which is given row by row (CSR): `start`, `column`, `value`, `weight`."""
from libc.stdint cimport int32_t


cdef int check(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
               const double[::1] weight) except -1:
    cdef Py_ssize_t n = column.shape[0]
    if start.shape[0] < 1 or start[start.shape[0] - 1] != n or value.shape[0] != n or weight.shape[0] != n:
        raise ValueError("the arrays of the table do not fit together")
    return 0


def group_sums(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
               const double[::1] weight, const int32_t[::1] group, double[:, ::1] counts_out, double[:, ::1] sums_out):
    """Write the weights, and weighted values, of every row summed over each group of columns.

    Shapes: group (J), counts_out and sums_out (I, groups).
    """
    check(start, column, value, weight)
    cdef Py_ssize_t n = start.shape[0] - 1, i, k
    cdef int32_t h
    if counts_out.shape[0] != n or sums_out.shape[0] != n or counts_out.shape[1] != sums_out.shape[1]:
        raise ValueError("the sums do not fit the table")
    with nogil:
        counts_out[:, :] = 0.0
        sums_out[:, :] = 0.0
        for i in range(n):
            for k in range(start[i], start[i + 1]):
                h = group[column[k]]
                counts_out[i, h] += weight[k]
                sums_out[i, h] += weight[k] * value[k]


def residual_squares(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
                     const double[::1] weight, const int32_t[::1] row_group, const int32_t[::1] column_group,
                     const double[:, ::1] mean):
    """Return the weighted sum of the squared differences of the cells from the `mean` (a, b) of their blocks."""
    check(start, column, value, weight)
    cdef Py_ssize_t n = start.shape[0] - 1, i, k
    cdef double total = 0.0, row, gap
    with nogil:
        for i in range(n):
            row = 0.0
            for k in range(start[i], start[i + 1]):
                gap = value[k] - mean[row_group[i], column_group[column[k]]]
                row += weight[k] * gap * gap
            total += row
    return total


def centre_costs(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
                 const double[::1] weight, const double[:, ::1] centre, const double[:, ::1] known,
                 double[:, ::1] cost_out, double[:, ::1] joint_out):
    """Write the weighted squared distance of every row from each of the centres, over the cells that both know.

    Shapes: centre and known (J, groups), known being 1 or 0; cost_out and joint_out (I, groups), the latter the
    weight of the cells that both know.
    """
    check(start, column, value, weight)
    cdef Py_ssize_t n = start.shape[0] - 1, groups = centre.shape[1], i, k, g
    cdef double gap, w, x
    cdef const double *at
    cdef const double *knows
    cdef double *cost
    cdef double *joint
    if (groups < 1 or known.shape[0] != centre.shape[0] or known.shape[1] != groups or cost_out.shape[0] != n
            or joint_out.shape[0] != n or cost_out.shape[1] != groups or joint_out.shape[1] != groups):
        raise ValueError("the centres do not fit the table")
    with nogil:
        cost_out[:, :] = 0.0
        joint_out[:, :] = 0.0
        for i in range(n):
            cost, joint = &cost_out[i, 0], &joint_out[i, 0]
            for k in range(start[i], start[i + 1]):
                at, knows = &centre[column[k], 0], &known[column[k], 0]
                x, w = value[k], weight[k]
                for g in range(groups):
                    gap = x - at[g]
                    cost[g] += w * knows[g] * gap * gap
                    joint[g] += w * knows[g]


def add_rows(const int32_t[::1] group, const double[:, ::1] rows, double[:, ::1] out):
    """Write the sum of the rows (n, k) of each group to out (groups, k)."""
    cdef Py_ssize_t n = rows.shape[0], k = rows.shape[1], i, h
    cdef int32_t g
    if group.shape[0] != n or out.shape[1] != k:
        raise ValueError("the groups do not fit the rows")
    with nogil:
        out[:, :] = 0.0
        for i in range(n):
            g = group[i]
            for h in range(k):
                out[g, h] += rows[i, h]


cdef inline double explained(double n, double s) noexcept nogil:
    return s * s / n if n > 0.0 else 0.0


def one_by_one(const double[:, ::1] counts, const double[:, ::1] sums, int32_t[::1] group, int32_t[::1] size,
               double[:, ::1] block_counts, double[:, ::1] block_sums, const Py_ssize_t[::1] order, double least):
    """Move row after row to the group that lowers the sum of squares most, blocks following at once.

    Shapes: counts and sums (I, b) of `group_sums`, group (I), size (a), block_counts and block_sums (a, b), order
    (I); the four before it are changed in place. A move has to gain more than `least`; no group is left empty.
    Returns the number of moves.
    """
    cdef Py_ssize_t a = block_counts.shape[0], b = counts.shape[1], t, i, h
    cdef int32_t g, old, best
    cdef Py_ssize_t moves = 0
    cdef double loss, gain, top
    with nogil:
        for t in range(order.shape[0]):
            i = order[t]
            old = best = group[i]
            if size[old] < 2:
                continue
            loss = least
            for h in range(b):
                if counts[i, h] > 0.0:
                    loss += (explained(block_counts[old, h], block_sums[old, h])
                             - explained(block_counts[old, h] - counts[i, h], block_sums[old, h] - sums[i, h]))
            top = loss
            for g in range(<int32_t> a):
                if g == old:
                    continue
                gain = 0.0
                for h in range(b):
                    if counts[i, h] > 0.0:
                        gain += (explained(block_counts[g, h] + counts[i, h], block_sums[g, h] + sums[i, h])
                                 - explained(block_counts[g, h], block_sums[g, h]))
                if gain > top:
                    top, best = gain, g
            if best != old:
                for h in range(b):
                    block_counts[old, h] -= counts[i, h]
                    block_sums[old, h] -= sums[i, h]
                    block_counts[best, h] += counts[i, h]
                    block_sums[best, h] += sums[i, h]
                size[old] -= 1
                size[best] += 1
                group[i] = best
                moves += 1
    return moves
