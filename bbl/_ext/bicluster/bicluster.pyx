"""Sums over the observed cells of a two-way table, and moves of single rows between row groups.

A table with I rows and J columns is stored by rows (CSR): row i has the cells k with start[i] <= k < start[i + 1], and
each cell has a column[k], value[k] and weight[k]. A block is the set of cells of one row group and one column group.
Row groups and column groups are numbered from 0; their numbers are a and b.
"""
from libc.stdint cimport int32_t


cdef int check_table(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
                     const double[::1] weight) except -1:
    """Raise ValueError unless the four arrays of a table have matching lengths."""
    cdef Py_ssize_t n = column.shape[0]
    if start.shape[0] < 1 or start[start.shape[0] - 1] != n or value.shape[0] != n or weight.shape[0] != n:
        raise ValueError("the arrays of the table do not fit together")
    return 0


def group_sums(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
               const double[::1] weight, const int32_t[::1] column_group, double[:, ::1] counts_out,
               double[:, ::1] sums_out):
    """Write, for each row i and each column group, the sums of weight and of weight * value over the row's cells.

    Shapes: column_group (J,), counts_out (sums of weights) and sums_out (I, b).
    """
    check_table(start, column, value, weight)
    cdef Py_ssize_t rows = start.shape[0] - 1, i, k
    cdef int32_t g
    if counts_out.shape[0] != rows or sums_out.shape[0] != rows or counts_out.shape[1] != sums_out.shape[1]:
        raise ValueError("the sums do not fit the table")
    with nogil:
        counts_out[:, :] = 0.0
        sums_out[:, :] = 0.0
        for i in range(rows):
            for k in range(start[i], start[i + 1]):
                g = column_group[column[k]]
                counts_out[i, g] += weight[k]
                sums_out[i, g] += weight[k] * value[k]


def residual_squares(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
                     const double[::1] weight, const int32_t[::1] row_group, const int32_t[::1] column_group,
                     const double[:, ::1] mean):
    """Return the sum over cells of weight * (value - mean of the cell's block)^2.

    Shapes: row_group (I,), column_group (J,), mean (a, b).
    """
    check_table(start, column, value, weight)
    cdef Py_ssize_t rows = start.shape[0] - 1, i, k
    cdef double total = 0.0, row_total, residual
    with nogil:
        for i in range(rows):
            row_total = 0.0  # summing row by row loses fewer digits
            for k in range(start[i], start[i + 1]):
                residual = value[k] - mean[row_group[i], column_group[column[k]]]
                row_total += weight[k] * residual * residual
            total += row_total
    return total


def centre_costs(const Py_ssize_t[::1] start, const int32_t[::1] column, const double[::1] value,
                 const double[::1] weight, const double[:, ::1] centre, const double[:, ::1] is_known,
                 double[:, ::1] cost_out, double[:, ::1] joint_weight_out):
    """Write the weighted squared distance of every row from each centre, over the columns where both have values.

    Shapes: centre and is_known (J, groups), where is_known is 1 if the centre has a value and 0 otherwise; cost_out (I,
    groups) for the distances, joint_weight_out (I, groups) for the total weights of the compared cells.
    """
    check_table(start, column, value, weight)
    cdef Py_ssize_t rows = start.shape[0] - 1, groups = centre.shape[1], i, k, g
    cdef double difference, weight_k, value_k
    cdef const double *centre_j
    cdef const double *is_known_j
    cdef double *cost
    cdef double *joint_weight
    if (groups < 1 or is_known.shape[0] != centre.shape[0] or is_known.shape[1] != groups or cost_out.shape[0] != rows
            or joint_weight_out.shape[0] != rows or cost_out.shape[1] != groups or joint_weight_out.shape[1] != groups):
        raise ValueError("the centres do not fit the table")
    with nogil:
        cost_out[:, :] = 0.0
        joint_weight_out[:, :] = 0.0
        for i in range(rows):
            cost, joint_weight = &cost_out[i, 0], &joint_weight_out[i, 0]
            for k in range(start[i], start[i + 1]):
                centre_j, is_known_j = &centre[column[k], 0], &is_known[column[k], 0]
                value_k, weight_k = value[k], weight[k]
                for g in range(groups):
                    difference = value_k - centre_j[g]
                    cost[g] += weight_k * is_known_j[g] * difference * difference
                    joint_weight[g] += weight_k * is_known_j[g]


def add_rows(const int32_t[::1] group, const double[:, ::1] rows, double[:, ::1] out):
    """Write the sum of the rows (n, k) of each group to out (groups, k); group[i] is the group of row i."""
    cdef Py_ssize_t n = rows.shape[0], width = rows.shape[1], i, j
    cdef int32_t g
    if group.shape[0] != n or out.shape[1] != width:
        raise ValueError("the groups do not fit the rows")
    with nogil:
        out[:, :] = 0.0
        for i in range(n):
            g = group[i]
            for j in range(width):
                out[g, j] += rows[i, j]


cdef inline double explained_squares(double count, double total) noexcept nogil:
    """Return the sum of squares explained by the mean of a block of weight `count` and weighted sum `total`."""
    return total * total / count if count > 0.0 else 0.0


def one_by_one(const double[:, ::1] counts, const double[:, ::1] sums, int32_t[::1] row_group, int32_t[::1] size,
               double[:, ::1] block_counts, double[:, ::1] block_sums, const Py_ssize_t[::1] order, double min_gain):
    """Move each row in turn to the row group that reduces the residual sum of squares most; return the number of moves.

    Shapes: counts and sums (I, b) as written by `group_sums`, row_group (I,), size (a,) the number of rows in each
    group, block_counts and block_sums (a, b) the same sums by block, order (I,) the rows in the order of visits.
    row_group, size, block_counts and block_sums are updated in place after every move. The residual sum of squares is a
    constant minus the explained sum of squares, the sum over blocks of block_sums^2 / block_counts. A move changes only
    the blocks of its source and target groups. A move must reduce the sum of squares by more than `min_gain` and never
    empties a group.
    """
    cdef Py_ssize_t n_groups = block_counts.shape[0], n_column_groups = counts.shape[1], t, i, j
    cdef int32_t g, source, target
    cdef Py_ssize_t moves = 0
    cdef double required, gain, best_gain
    with nogil:
        for t in range(order.shape[0]):
            i = order[t]
            source = target = row_group[i]
            if size[source] < 2:
                continue
            required = min_gain  # plus the explained sum of squares that its group loses without the row
            for j in range(n_column_groups):
                if counts[i, j] > 0.0:
                    required += (explained_squares(block_counts[source, j], block_sums[source, j])
                                 - explained_squares(block_counts[source, j] - counts[i, j],
                                                     block_sums[source, j] - sums[i, j]))
            best_gain = required
            for g in range(<int32_t> n_groups):
                if g == source:
                    continue
                gain = 0.0
                for j in range(n_column_groups):
                    if counts[i, j] > 0.0:
                        gain += (explained_squares(block_counts[g, j] + counts[i, j], block_sums[g, j] + sums[i, j])
                                 - explained_squares(block_counts[g, j], block_sums[g, j]))
                if gain > best_gain:
                    best_gain, target = gain, g
            if target != source:
                for j in range(n_column_groups):
                    block_counts[source, j] -= counts[i, j]
                    block_sums[source, j] -= sums[i, j]
                    block_counts[target, j] += counts[i, j]
                    block_sums[target, j] += sums[i, j]
                size[source] -= 1
                size[target] += 1
                row_group[i] = target
                moves += 1
    return moves
