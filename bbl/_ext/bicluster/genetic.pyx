"""Genetic algorithm for partitions of the items and users of ordinal ratings; see bbl/biclustering/genetic.py.

An individual is an array of labels (items + users): the group of each item, then of each user, numbered from 0 in order
of first appearance. A block is the set of ratings of one item group by one user group. The fitness, which is minimised,
is the sum of the deviances of all blocks (ratings.h) plus a penalty for each block. A step of the Du process moves a
random item to another group or a new one, all with equal probability.

Arguments of all functions: item, user, rating = 0..levels-1 and weight (n,) describe the ratings; items, users and
levels are their numbers. The centre of a block is its mean rating, or with mle its maximum-likelihood estimate; sigma
is the standard deviation of ratings around the centre. Random numbers come from `stream` or s (4,), a state of
random.h.
"""
from libc.math cimport fabs
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

cdef extern from "partition.h" nogil:
    int32_t partition_renumber(const int32_t *labels, Py_ssize_t n, int32_t *new_label, int32_t *labels_out)

cdef extern from "ratings.h" nogil:
    double ratings_deviance(const double *counts, int32_t levels, double mu, double sigma)
    double ratings_centre(const double *counts, int32_t levels, double sigma, int mle)

cdef extern from "random.h" nogil:
    double random_uniform(uint64_t *s)
    int32_t random_below(uint64_t *s, int32_t n)
    int32_t random_du_step(uint64_t *s, const int32_t *label, const int32_t *size, int32_t n, int32_t k, int32_t *to)

# number of cached block deviances, 1.5 MB with five levels; a power of two, so that a bit mask selects the row
cdef int32_t CACHE = 32768
cdef double MIN_GAIN = 1e-9  # smallest relative decrease of the fitness for which `refine` makes a move

# Ratings, model and scratch memory of one call
cdef struct model:
    Py_ssize_t n           # number of ratings
    int32_t items, users, levels
    const int32_t *item
    const int32_t *user
    const int32_t *rating  # 0..levels-1
    const double *weight
    double sigma, penalty  # penalty: for each block
    int mle                # whether centres are maximum-likelihood estimates
    double *counts         # (item groups * user groups, levels) weight of each rating in each block
    double *deviance       # (item groups * user groups) of the individual evaluated last
    int32_t *map           # (items + users) scratch: new number of each label; in `cross`, overlaps
    int32_t *size          # (items + users) scratch: number of members of each group
    # (CACHE, levels + 1), rows selected by a hash: counts of a block, then its deviance; 0 if unused. A new block
    # overwrites a block with the same hash
    double *cache


cdef double block_deviance(model *m, const double *counts) noexcept nogil:
    """Return the deviance of a block with `counts` (levels,) at its centre, from the cache if possible; 0 if empty."""
    cdef uint64_t hash = 0, word
    cdef double *cached
    cdef double centre
    cdef int32_t r
    cdef bint has_ratings = False, is_cached = True
    for r in range(m.levels):
        has_ratings = has_ratings or counts[r] > 0.0
        memcpy(&word, counts + r, sizeof(word))  # hash the bits of the count
        hash = (hash ^ word) * <uint64_t> 0x9E3779B97F4A7C15  # 2^64 / golden ratio, which mixes the bits
        hash ^= hash >> 29  # mix high bits into the low ones, which select the row
    if not has_ratings:
        return 0.0
    cached = m.cache + <Py_ssize_t> (hash & <uint64_t> (CACHE - 1)) * (m.levels + 1)
    for r in range(m.levels):
        is_cached = is_cached and cached[r] == counts[r]
    if not is_cached:
        centre = ratings_centre(counts, m.levels, m.sigma, m.mle)
        cached[m.levels] = ratings_deviance(counts, m.levels, centre, m.sigma)
        memcpy(cached, counts, sizeof(double) * <size_t> m.levels)
    return cached[m.levels]


cdef double evaluate(model *m, int32_t *labels) noexcept nogil:
    """Return the fitness of an individual; renumber its labels in place, and write m.counts and m.deviance."""
    cdef int32_t n_item_groups = partition_renumber(labels, m.items, m.map, labels)
    cdef int32_t n_user_groups = partition_renumber(labels + m.items, m.users, m.map, labels + m.items)
    # c: index of counts, then a rating, then a block
    cdef Py_ssize_t c, blocks = <Py_ssize_t> n_item_groups * n_user_groups
    cdef double fitness = m.penalty * blocks
    cdef double *counts
    for c in range(blocks * m.levels):
        m.counts[c] = 0.0
    for c in range(m.n):
        counts = m.counts + (<Py_ssize_t> labels[m.item[c]] * n_user_groups + labels[m.items + m.user[c]]) * m.levels
        counts[m.rating[c]] += m.weight[c]
    for c in range(blocks):
        m.deviance[c] = block_deviance(m, m.counts + c * m.levels)
        fitness += m.deviance[c]
    return fitness


cdef void cross(const int32_t *first_parent, const int32_t *second_parent, int32_t *child, int32_t n, int32_t *overlap,
                uint64_t *s) noexcept nogil:
    """Write a child: the first parent, with a random group extended by the second parent's group that overlaps it most.

    Shapes: labels first_parent, second_parent and child (n,), of items or of users; overlap (n,) is scratch: the number
    of members of each group of second_parent that are in the group to be extended.
    """
    cdef int32_t i, n_groups = 0, enlarged_group, added_group = 0
    for i in range(n):
        n_groups = max(n_groups, first_parent[i] + 1)
        overlap[i] = 0
    enlarged_group = random_below(s, n_groups)
    for i in range(n):
        if first_parent[i] == enlarged_group:
            overlap[second_parent[i]] += 1
    for i in range(n):  # here i is a group of second_parent, otherwise an item or user
        if overlap[i] > overlap[added_group]:
            added_group = i
    for i in range(n):
        child[i] = enlarged_group if second_parent[i] == added_group else first_parent[i]


cdef void mutate(int32_t *labels, int32_t n, int32_t *size, int32_t *new_label, uint64_t *s) noexcept nogil:
    """Take one step of the Du process on the partition `labels` (n,); labels are renumbered before the step only.

    size and new_label are scratch memory for the group sizes and the new numbers of the labels.
    """
    cdef int32_t n_groups = partition_renumber(labels, n, new_label, labels), i, item, new_group
    for i in range(n_groups):
        size[i] = 0
    for i in range(n):
        size[labels[i]] += 1
    item = random_du_step(s, labels, size, n, n_groups, &new_group)
    labels[item] = new_group  # may create a group or leave one empty


cdef void mutate_one(model *m, int32_t *labels, uint64_t *s) noexcept nogil:
    """Take one step of the Du process on either the items or the users of an individual."""
    if random_below(s, 2):
        mutate(labels, m.items, m.size, m.map, s)
    else:
        mutate(labels + m.items, m.users, m.size, m.map, s)


cdef int32_t select_parent(const double *fitness, int32_t members, uint64_t *s) noexcept nogil:
    """Return the index of the fitter of two random members of a population (tournament selection)."""
    cdef int32_t member = random_below(s, members), rival = random_below(s, members)
    return member if fitness[member] <= fitness[rival] else rival


cdef int open_model(model *m, const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating,
                    const double[::1] weight, int32_t items, int32_t users, int32_t levels, double sigma,
                    double penalty, bint mle) except -1:
    """Set up the model for the ratings and allocate scratch memory; always call `close_model` afterwards."""
    m.counts, m.deviance, m.map, m.cache = NULL, NULL, NULL, NULL
    if not item.shape[0] == user.shape[0] == rating.shape[0] == weight.shape[0] or not item.shape[0]:
        raise ValueError("the ratings do not fit together")
    m.n, m.items, m.users, m.levels = item.shape[0], items, users, levels
    m.item, m.user, m.rating, m.weight = &item[0], &user[0], &rating[0], &weight[0]
    m.sigma, m.penalty, m.mle = sigma, penalty, mle
    m.counts = <double *> malloc(sizeof(double) * <size_t> items * <size_t> users * <size_t> levels)
    m.deviance = <double *> malloc(sizeof(double) * <size_t> items * <size_t> users)
    m.map = <int32_t *> malloc(sizeof(int32_t) * <size_t> (items + users) * 2)  # m.size is its second half
    m.size = m.map + items + users
    m.cache = <double *> calloc(<size_t> CACHE * <size_t> (levels + 1), sizeof(double))
    if m.counts == NULL or m.deviance == NULL or m.map == NULL or m.cache == NULL:
        raise MemoryError("no memory for the blocks of the ratings")
    return 0


cdef void close_model(model *m) noexcept nogil:
    """Free the scratch memory allocated by `open_model`."""
    free(m.counts)
    free(m.deviance)
    free(m.map)
    free(m.cache)


def fitness_of(const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating, const double[::1] weight,
               int32_t items, int32_t users, int32_t levels, double sigma, double penalty, bint mle,
               int32_t[:, ::1] population, double[::1] fitness_out):
    """Write the fitness of every individual of a population (members, items + users) and renumber its labels."""
    cdef model m
    cdef Py_ssize_t k
    if population.shape[1] != items + users or fitness_out.shape[0] != population.shape[0]:
        raise ValueError("the population does not fit the ratings")
    try:
        open_model(&m, item, user, rating, weight, items, users, levels, sigma, penalty, mle)
        with nogil:
            for k in range(population.shape[0]):
                fitness_out[k] = evaluate(&m, &population[k, 0])
    finally:
        close_model(&m)


cdef double best_move(model *m, const int32_t *labels, int32_t i, const Py_ssize_t *cell_start, const Py_ssize_t *cell,
                      double *moved_counts, double *new_counts, int32_t *to_out) noexcept nogil:
    """Return the change of the fitness by the best move of i and write the new group to to_out; 0 if no move lowers it.

    i is an item if i < items, otherwise user i - items. `labels` are the labels of the individual evaluated last.
    `cell` (2 n,) lists indices 0..n-1 of ratings, where i has the ratings cell[cell_start[i]] .. cell[cell_start[i + 1]
    - 1]. Only blocks of the old and new group that have ratings of i change. The change of the fitness is the sum of
    their new deviances minus the old ones, plus penalty times the change of the number of blocks (n_other per group
    created or removed). Scratch memory: moved_counts (groups of the other side, levels), the weight of the ratings of i
    by group of the other side (users if i is an item); new_counts (levels,), for a block after the move.
    """
    cdef bint is_item = i < m.items
    cdef int32_t n_user_groups = 0, n_item_groups = 0, n_other, n_groups, k, g
    cdef int32_t target, source = labels[i], source_size = 0, r
    cdef Py_ssize_t c, block_k  # block_k: the block of group k of the other side
    cdef double change, best_change = 0.0, removal = 0.0  # removal: change of the fitness by removing i
    cdef double *counts
    cdef int32_t members = m.items if is_item else m.users  # number of items or users, like i
    for k in range(m.items):
        n_item_groups = max(n_item_groups, labels[k] + 1)
    for k in range(m.items, m.items + m.users):
        n_user_groups = max(n_user_groups, labels[k] + 1)
    n_other = n_user_groups if is_item else n_item_groups
    n_groups = n_item_groups if is_item else n_user_groups
    for c in range(n_other * m.levels):
        moved_counts[c] = 0.0
    for c in range(cell_start[i], cell_start[i + 1]):
        k = labels[m.items + m.user[cell[c]]] if is_item else labels[m.item[cell[c]]]
        moved_counts[k * m.levels + m.rating[cell[c]]] += m.weight[cell[c]]
    for k in range(members):
        source_size += labels[k if is_item else m.items + k] == source
    # -1: the removal of i, whose change is part of the change for every target; n_groups: a new group, unless every
    # member already is in a group of its own
    for target in range(-1, min(n_groups + 1, members)):
        if target == source:
            continue
        g = source if target < 0 else target
        change = 0.0
        for k in range(n_other):
            block_k = <Py_ssize_t> g * n_user_groups + k if is_item else <Py_ssize_t> k * n_user_groups + g
            counts = m.counts + block_k * m.levels  # not read for a new group
            for r in range(m.levels):
                if moved_counts[k * m.levels + r] != 0.0:
                    break
            else:
                continue  # no ratings of i in this block
            for r in range(m.levels):
                new_counts[r] = moved_counts[k * m.levels + r]
                if target < 0:  # treat a count within rounding of zero as zero
                    new_counts[r] = counts[r] - new_counts[r] if counts[r] - new_counts[r] > 1e-9 * counts[r] else 0.0
                elif target < n_groups:
                    new_counts[r] += counts[r]
            change += block_deviance(m, new_counts)
            if target < n_groups:
                change -= m.deviance[block_k]
        if target < 0:
            removal = change - (m.penalty * n_other if source_size == 1 else 0.0)
            continue
        change += removal + (m.penalty * n_other if target == n_groups else 0.0)
        if change < best_change:
            best_change = change
            to_out[0] = target
    return best_change


def refine(const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating, const double[::1] weight,
           int32_t items, int32_t users, int32_t levels, double sigma, double penalty, bint mle,
           int32_t[::1] labels, const int32_t[::1] stop):
    """Move each item and user in turn to the group that lowers the fitness most, until no move does; return the
    fitness.

    labels (items + users,) are changed in place and finally numbered by first appearance. A non-zero stop[0] ends the
    run.
    """
    cdef model m
    cdef int32_t i, target = 0, n_labels = items + users
    cdef Py_ssize_t c, n = item.shape[0]
    cdef Py_ssize_t *cell_start = NULL  # (items + users + 2,) where the ratings of each item, then user, begin in cell
    cdef Py_ssize_t *cell  # (2 n,) indices of ratings, grouped by item, then again by user; see `best_move`
    cdef double *moved_counts = NULL  # (groups, levels) scratch of `best_move`, at most (items + users, levels)
    cdef double *new_counts  # (levels,) scratch of `best_move`
    cdef double fitness = 0.0, change
    cdef bint any_moved = True
    if labels.shape[0] != n_labels or stop.shape[0] != 1:
        raise ValueError("the labels do not fit the ratings")
    try:
        open_model(&m, item, user, rating, weight, items, users, levels, sigma, penalty, mle)
        # one block of memory for cell_start and cell, another for moved_counts and new_counts
        cell_start = <Py_ssize_t *> calloc(<size_t> (n_labels + 2 + 2 * n), sizeof(Py_ssize_t))
        moved_counts = <double *> malloc(sizeof(double) * <size_t> (n_labels + 1) * <size_t> levels)
        if cell_start == NULL or moved_counts == NULL:
            raise MemoryError("no memory for the refinement")
        cell, new_counts = cell_start + n_labels + 2, moved_counts + n_labels * levels
        # counting sort of the ratings by item and by user: cell_start[i + 2] first counts the ratings of i; after the
        # cumulative sum, cell_start[i + 1] is the position of the next rating of i, and ends as the start of i + 1
        with nogil:
            for c in range(n):
                cell_start[item[c] + 2] += 1
                cell_start[items + user[c] + 2] += 1
            for i in range(2, n_labels + 2):
                cell_start[i] += cell_start[i - 1]
            for c in range(n):
                cell[cell_start[item[c] + 1]] = c
                cell_start[item[c] + 1] += 1
                cell[cell_start[items + user[c] + 1]] = c
                cell_start[items + user[c] + 1] += 1
            fitness = evaluate(&m, &labels[0])
            while any_moved and not stop[0]:
                any_moved = False
                for i in range(n_labels):
                    if stop[0]:
                        break
                    change = best_move(&m, &labels[0], i, cell_start, cell, moved_counts, new_counts, &target)
                    if change < -MIN_GAIN * fabs(fitness):
                        labels[i] = target
                        fitness = evaluate(&m, &labels[0])
                        any_moved = True
    finally:
        close_model(&m)
        free(cell_start)
        free(moved_counts)
    return fitness


def evolve(const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating, const double[::1] weight,
           int32_t items, int32_t users, int32_t levels, double sigma, double penalty, bint mle,
           int32_t[:, ::1] population, double[::1] fitness, double crossover, double mutation, bint elite,
           uint64_t[::1] stream, double[::1] best_out, int32_t[::1] champion, double[::1] champion_fitness):
    """Run len(best_out) generations in place, and write the best fitness of each to best_out.

    Shapes: population (members, items + users), fitness (members,) as written by `fitness_of`, stream (4,); champion
    (items + users,) and champion_fitness (1,) contain the best individual ever and are replaced by a better one.
    crossover is the probability of crossing a pair of parents, mutation the probability that a child mutates. With
    `elite` the best member is copied to the next generation unchanged.
    """
    cdef model m
    # c: a member, one of the two children of a pair, or an index of `children`
    cdef int32_t members = <int32_t> population.shape[0], n_labels = items + users, n_children, parent, mate, c
    cdef Py_ssize_t generation
    cdef int32_t *children = NULL
    cdef int32_t *child
    cdef double *child_fitness = NULL
    cdef uint64_t *s = &stream[0]
    if (population.shape[1] != n_labels or fitness.shape[0] != members or stream.shape[0] != 4
            or members < 2 or champion.shape[0] != n_labels or champion_fitness.shape[0] != 1):
        raise ValueError("the population does not fit the ratings")
    try:
        open_model(&m, item, user, rating, weight, items, users, levels, sigma, penalty, mle)
        # space for one more child: children come in pairs, and the last pair may exceed the generation by one
        children = <int32_t *> malloc(sizeof(int32_t) * <size_t> (members + 1) * <size_t> n_labels)
        child_fitness = <double *> malloc(sizeof(double) * <size_t> (members + 1))
        if children == NULL or child_fitness == NULL:
            raise MemoryError("no memory for the population")
        with nogil:
            for generation in range(best_out.shape[0]):
                n_children = 0
                if elite:
                    parent = 0  # the best member
                    for c in range(1, members):
                        if fitness[c] < fitness[parent]:
                            parent = c
                    memcpy(children, &population[parent, 0], sizeof(int32_t) * <size_t> n_labels)
                    child_fitness[0] = fitness[parent]
                    n_children = 1
                while n_children < members:
                    parent, mate = select_parent(&fitness[0], members, s), select_parent(&fitness[0], members, s)
                    if random_uniform(s) < crossover:
                        for c in range(2):
                            child = children + (n_children + c) * n_labels
                            cross(&population[parent, 0], &population[mate, 0], child, items, m.map, s)
                            cross(&population[parent, items], &population[mate, items], child + items, users, m.map, s)
                            parent, mate = mate, parent  # swap roles for the second child
                    else:
                        child = children + n_children * n_labels  # without crossover the two children are copies
                        memcpy(child, &population[parent, 0], sizeof(int32_t) * <size_t> n_labels)
                        memcpy(child + n_labels, &population[mate, 0], sizeof(int32_t) * <size_t> n_labels)
                    for c in range(n_children, min(n_children + 2, members)):
                        if random_uniform(s) < mutation:
                            mutate_one(&m, children + c * n_labels, s)
                        child_fitness[c] = evaluate(&m, children + c * n_labels)
                    n_children += 2
                memcpy(&population[0, 0], children, sizeof(int32_t) * <size_t> members * <size_t> n_labels)
                memcpy(&fitness[0], child_fitness, sizeof(double) * <size_t> members)
                parent = 0  # the best member
                for c in range(1, members):
                    if fitness[c] < fitness[parent]:
                        parent = c
                best_out[generation] = fitness[parent]
                if fitness[parent] < champion_fitness[0]:
                    champion_fitness[0] = fitness[parent]
                    memcpy(&champion[0], &population[parent, 0], sizeof(int32_t) * <size_t> n_labels)
    finally:
        close_model(&m)
        free(children)
        free(child_fitness)


def du_steps(int32_t[::1] labels, Py_ssize_t steps, uint64_t[::1] stream):
    """Take steps of the Du process from the partition `labels`, in place, then renumber it by first appearance."""
    cdef int32_t n = <int32_t> labels.shape[0]
    cdef Py_ssize_t _step
    cdef int32_t *scratch  # group sizes, then their new labels: n + 1 each, as a step may create a group
    if stream.shape[0] != 4 or n < 1:
        raise ValueError("the stream has four words, and a partition one item at least")
    scratch = <int32_t *> malloc(sizeof(int32_t) * <size_t> (2 * n + 2))
    if scratch == NULL:
        raise MemoryError("no memory for the partition")
    try:
        with nogil:
            for _step in range(steps):
                mutate(&labels[0], n, scratch, scratch + n + 1, &stream[0])
            partition_renumber(&labels[0], n, scratch, &labels[0])
    finally:
        free(scratch)
