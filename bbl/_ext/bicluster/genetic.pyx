# Biclust_genetic: a population of two-way partitions of ordinal ratings, bred for the least penalised deviance.
"""Genetic algorithm over partitions of items and users; the model and the operators are those of section 1.3.

An individual is a row of labels: items 0..I-1, then users, each numbered 0..k-1 in order of first appearance.
"""
from libc.math cimport erfc, exp, fabs, log
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

cdef extern from "random.h" nogil:
    double random_uniform(uint64_t *s)
    int32_t random_below(uint64_t *s, int32_t n)
    int32_t random_du_step(uint64_t *s, const int32_t *label, const int32_t *size, int32_t n, int32_t k, int32_t *to)

cdef double TINY = 1e-300
cdef int32_t CACHE = 32768  # blocks whose deviance is remembered; a power of two
cdef double LEAST_GAIN = 1e-9  # relative decrease of the fitness for which a single move is made

# The cells, the model and the room to work in; one for each call
cdef struct model:
    Py_ssize_t n
    int32_t items, users, levels
    const int32_t *item
    const int32_t *user
    const int32_t *rating  # 0..levels-1
    const double *weight
    double sigma, penalty  # penalty: of one block
    int mle
    double *counts         # (items * users, levels)
    int32_t *map           # (items + users)
    int32_t *size          # (items + users)
    double *cache          # (CACHE, levels + 1) counts of a block and its deviance at its centre; no counts: unused


cdef inline double interval(double low, double high) noexcept nogil:
    """Normal probability between two numbers, from the tail that loses least."""
    cdef double scale = 0.7071067811865476
    if low > 0.0:
        return 0.5 * (erfc(low * scale) - erfc(high * scale))
    return 0.5 * (erfc(-high * scale) - erfc(-low * scale))


cdef inline double density(double z) noexcept nogil:
    return 0.3989422804014327 * exp(-0.5 * z * z)


cdef double deviance(const double *counts, int32_t levels, double mu, double sigma) noexcept nogil:
    """Minus twice the log-likelihood of a block: a normal around `mu`, cut to the scale and rounded."""
    cdef double total = 0.0, likelihood = 0.0
    cdef int32_t r
    for r in range(levels):
        if counts[r] > 0.0:
            total += counts[r]
            likelihood += counts[r] * log(max(interval((r - 0.5 - mu) / sigma, (r + 0.5 - mu) / sigma), TINY))
    likelihood -= total * log(max(interval((-0.5 - mu) / sigma, (levels - 0.5 - mu) / sigma), TINY))
    return -2.0 * likelihood


cdef double score(const double *counts, int32_t levels, double mu, double sigma) noexcept nogil:
    """Derivative of the log-likelihood of a block by `mu`, times sigma."""
    cdef double slope = 0.0, total = 0.0, a, b
    cdef int32_t r
    for r in range(levels):
        if counts[r] > 0.0:
            total += counts[r]
            a, b = (r - 0.5 - mu) / sigma, (r + 0.5 - mu) / sigma
            slope += counts[r] * (density(a) - density(b)) / max(interval(a, b), TINY)
    a, b = (-0.5 - mu) / sigma, (levels - 0.5 - mu) / sigma
    return slope - total * (density(a) - density(b)) / max(interval(a, b), TINY)


cdef double centre(const double *counts, int32_t levels, double sigma, int mle) noexcept nogil:
    """The mean of a block's ratings; with `mle` the mean before truncation that makes them most likely."""
    cdef double total = 0.0, mean = 0.0, low, high, middle
    cdef int32_t r
    cdef int _each
    for r in range(levels):
        total += counts[r]
        mean += counts[r] * r
    mean /= total
    if not mle:
        return mean
    low, high = -0.5 - 4.0 * sigma, levels - 0.5 + 4.0 * sigma  # the likelihood is concave; at an end it has no top
    if score(counts, levels, low, sigma) <= 0.0:
        return low
    if score(counts, levels, high, sigma) >= 0.0:
        return high
    for _each in range(40):
        middle = 0.5 * (low + high)
        if score(counts, levels, middle, sigma) > 0.0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


cdef double block_value(model *m, const double *counts) noexcept nogil:
    """Return the deviance of a block at its centre; 0 if it holds no ratings."""
    cdef uint64_t key = 0, word
    cdef double *known
    cdef int32_t r
    cdef bint filled = False, same = True
    for r in range(m.levels):
        filled = filled or counts[r] > 0.0
        memcpy(&word, counts + r, sizeof(word))
        key = (key ^ word) * <uint64_t> 0x9E3779B97F4A7C15
        key ^= key >> 29
    if not filled:
        return 0.0
    known = m.cache + <Py_ssize_t> (key & <uint64_t> (CACHE - 1)) * (m.levels + 1)
    for r in range(m.levels):
        same = same and known[r] == counts[r]
    if not same:
        known[m.levels] = deviance(counts, m.levels, centre(counts, m.levels, m.sigma, m.mle), m.sigma)
        memcpy(known, counts, sizeof(double) * <size_t> m.levels)
    return known[m.levels]


cdef int32_t relabel(int32_t *label, int32_t n, int32_t *map) noexcept nogil:
    """Number the groups in order of first appearance; return how many there are."""
    cdef int32_t i, k = 0
    for i in range(n):
        map[i] = -1
    for i in range(n):
        if map[label[i]] < 0:
            map[label[i]] = k
            k += 1
        label[i] = map[label[i]]
    return k


cdef double evaluate(model *m, int32_t *label) noexcept nogil:
    """Return the fitness of an individual, whose labels are put in order."""
    cdef int32_t K = relabel(label, m.items, m.map)
    cdef int32_t H = relabel(label + m.items, m.users, m.map)
    cdef Py_ssize_t c, blocks = <Py_ssize_t> K * H
    cdef double value = m.penalty * blocks
    cdef double *counts
    for c in range(blocks * m.levels):
        m.counts[c] = 0.0
    for c in range(m.n):
        counts = m.counts + (<Py_ssize_t> label[m.item[c]] * H + label[m.items + m.user[c]]) * m.levels
        counts[m.rating[c]] += m.weight[c]
    for c in range(blocks):
        value += block_value(m, m.counts + c * m.levels)
    return value


cdef void cross(const int32_t *one, const int32_t *other, int32_t *child, int32_t n, int32_t *count,
                uint64_t *s) noexcept nogil:
    """Make a child of `one`: a group of it takes in the group of `other` that it overlaps most."""
    cdef int32_t i, k = 0, chosen, best = 0
    for i in range(n):
        k = max(k, one[i] + 1)
        count[i] = 0
    chosen = random_below(s, k)
    for i in range(n):
        if one[i] == chosen:
            count[other[i]] += 1
    for i in range(n):
        if count[i] > count[best]:
            best = i
    for i in range(n):
        child[i] = chosen if other[i] == best else one[i]


cdef void mutate(int32_t *label, int32_t n, int32_t *size, int32_t *map, uint64_t *s) noexcept nogil:
    """Take one step of the Du process."""
    cdef int32_t k = relabel(label, n, map), i, item, to
    for i in range(k):
        size[i] = 0
    for i in range(n):
        size[label[i]] += 1
    item = random_du_step(s, label, size, n, k, &to)
    label[item] = to  # maybe k, which no group had, and maybe the last of its group: the caller numbers groups anew


cdef void mutate_one(model *m, int32_t *label, uint64_t *s) noexcept nogil:
    """Take one step of the Du process on one of the two partitions."""
    if random_below(s, 2):
        mutate(label, m.items, m.size, m.map, s)
    else:
        mutate(label + m.items, m.users, m.size, m.map, s)


cdef int32_t tournament(const double *fitness, int32_t members, uint64_t *s) noexcept nogil:
    cdef int32_t one = random_below(s, members), other = random_below(s, members)
    return one if fitness[one] <= fitness[other] else other


cdef int fill(model *m, const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating,
              const double[::1] weight, int32_t items, int32_t users, int32_t levels, double sigma, double penalty,
              bint mle) except -1:
    if not item.shape[0] == user.shape[0] == rating.shape[0] == weight.shape[0] or not item.shape[0]:
        raise ValueError("the ratings do not fit together")
    m.n, m.items, m.users, m.levels = item.shape[0], items, users, levels
    m.item, m.user, m.rating, m.weight = &item[0], &user[0], &rating[0], &weight[0]
    m.sigma, m.penalty, m.mle = sigma, penalty, mle
    m.counts = <double *> malloc(sizeof(double) * <size_t> items * <size_t> users * <size_t> levels)
    m.map = <int32_t *> malloc(sizeof(int32_t) * <size_t> (items + users) * 2)
    m.size = m.map + items + users
    m.cache = <double *> calloc(<size_t> CACHE * <size_t> (levels + 1), sizeof(double))
    if m.counts == NULL or m.map == NULL or m.cache == NULL:
        raise MemoryError("no memory for the blocks of the ratings")
    return 0


def fitness_of(const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating, const double[::1] weight,
               int32_t items, int32_t users, int32_t levels, double sigma, double penalty, bint mle,
               int32_t[:, ::1] population, double[::1] fitness_out):
    """Write the fitness of every individual of a population (members, items + users), whose labels are put in order."""
    cdef model m
    cdef Py_ssize_t k
    m.counts, m.map, m.cache = NULL, NULL, NULL
    if population.shape[1] != items + users or fitness_out.shape[0] != population.shape[0]:
        raise ValueError("the population does not fit the ratings")
    try:
        fill(&m, item, user, rating, weight, items, users, levels, sigma, penalty, mle)
        with nogil:
            for k in range(population.shape[0]):
                fitness_out[k] = evaluate(&m, &population[k, 0])
    finally:
        free(m.counts)
        free(m.map)
        free(m.cache)


cdef double best_move(model *m, const int32_t *label, int32_t i, const Py_ssize_t *first, const Py_ssize_t *cells,
                      double *moved, double *block, int32_t *to_out) noexcept nogil:
    """Return the change of the fitness by the best move of item or user `i` to another group, or a new one.

    `first` and `cells` list the ratings of each item and user. Only blocks of the two groups change, and of these only
    blocks with ratings of `i`, whose counts are collected in `moved` (groups of the other side, levels).
    """
    cdef bint is_item = i < m.items
    cdef int32_t H = 0, K = 0, n_others, n_groups, k, g, h, own = label[i], n_own = 0, r
    cdef Py_ssize_t c, at
    cdef double change, least = 0.0, removal = 0.0
    cdef double *counts
    cdef int32_t side = m.items if is_item else m.users
    for k in range(m.items):
        K = max(K, label[k] + 1)
    for k in range(m.items, m.items + m.users):
        H = max(H, label[k] + 1)
    n_others = H if is_item else K
    n_groups = K if is_item else H
    for c in range(n_others * m.levels):
        moved[c] = 0.0
    for c in range(first[i], first[i + 1]):
        k = label[m.items + m.user[cells[c]]] if is_item else label[m.item[cells[c]]]
        moved[k * m.levels + m.rating[cells[c]]] += m.weight[cells[c]]
    for k in range(side):
        n_own += label[k if is_item else m.items + k] == own
    for h in range(-1, min(n_groups + 1, side)):  # -1: what the block of its own group loses
        if h == own:
            continue
        g = own if h < 0 else h
        change = 0.0
        for k in range(n_others):
            at = (<Py_ssize_t> g * H + k if is_item else <Py_ssize_t> k * H + g) * m.levels
            counts = m.counts + at
            for r in range(m.levels):
                if moved[k * m.levels + r] != 0.0:
                    break
            else:
                continue
            for r in range(m.levels):
                block[r] = moved[k * m.levels + r]
                if h < 0:
                    block[r] = counts[r] - block[r] if counts[r] - block[r] > 1e-9 * counts[r] else 0.0
                elif h < n_groups:
                    block[r] += counts[r]
            change += block_value(m, block)
            if h < n_groups:
                change -= block_value(m, counts)
        if h < 0:
            removal = change - (m.penalty * n_others if n_own == 1 else 0.0)
            continue
        change += removal + (m.penalty * n_others if h == n_groups else 0.0)
        if change < least:
            least = change
            to_out[0] = h
    return least


def refine(const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating, const double[::1] weight,
           int32_t items, int32_t users, int32_t levels, double sigma, double penalty, bint mle,
           int32_t[::1] label, const int32_t[::1] stop):
    """Move single items and users, in turn, to the group that lowers the fitness most, until no move does; in place.

    Shapes: label (items + users), which ends in order of first appearance, stop (1), non-zero to end. Returns the
    fitness.
    """
    cdef model m
    cdef int32_t i, to = 0, width = items + users
    cdef Py_ssize_t c, n = item.shape[0]
    cdef Py_ssize_t *first = NULL
    cdef double *moved = NULL
    cdef double top = 0.0, change
    cdef bint any_moved = True
    m.counts, m.map, m.cache = NULL, NULL, NULL
    if label.shape[0] != width or stop.shape[0] != 1:
        raise ValueError("the labels do not fit the ratings")
    try:
        fill(&m, item, user, rating, weight, items, users, levels, sigma, penalty, mle)
        first = <Py_ssize_t *> calloc(<size_t> (width + 2 + 2 * n), sizeof(Py_ssize_t))
        moved = <double *> malloc(sizeof(double) * <size_t> (width + 1) * <size_t> levels)
        if first == NULL or moved == NULL:
            raise MemoryError("no memory for the refinement")
        with nogil:
            for c in range(n):
                first[item[c] + 2] += 1
                first[items + user[c] + 2] += 1
            for i in range(2, width + 2):
                first[i] += first[i - 1]
            for c in range(n):
                first[width + 2 + first[item[c] + 1]] = c
                first[item[c] + 1] += 1
                first[width + 2 + first[items + user[c] + 1]] = c
                first[items + user[c] + 1] += 1
            top = evaluate(&m, &label[0])
            while any_moved and not stop[0]:
                any_moved = False
                for i in range(width):
                    if stop[0]:
                        break
                    change = best_move(&m, &label[0], i, first, first + width + 2, moved, moved + width * levels, &to)
                    if change < -LEAST_GAIN * fabs(top):
                        label[i] = to
                        top = evaluate(&m, &label[0])
                        any_moved = True
    finally:
        free(m.counts)
        free(m.map)
        free(m.cache)
        free(first)
        free(moved)
    return top


def evolve(const int32_t[::1] item, const int32_t[::1] user, const int32_t[::1] rating, const double[::1] weight,
           int32_t items, int32_t users, int32_t levels, double sigma, double penalty, bint mle,
           int32_t[:, ::1] population, double[::1] fitness, double crossover, double mutation, bint elite,
           uint64_t[::1] stream, double[::1] best_out, int32_t[::1] champion, double[::1] champion_fitness):
    """Breed a new population, in place, as often as `best_out` is long; write the best fitness of each there.

    Shapes: population (members, items + users), fitness (members) as `fitness_of` gives them, stream (4), champion
    (items + users) and champion_fitness (1): the best individual so far, which gives way to a better one.
    """
    cdef model m
    cdef int32_t members = <int32_t> population.shape[0], width = items + users, k, one, other, c
    cdef Py_ssize_t t
    cdef int32_t *bred = NULL
    cdef double *value = NULL
    cdef uint64_t *s = &stream[0]
    m.counts, m.map, m.cache = NULL, NULL, NULL
    if (population.shape[1] != width or fitness.shape[0] != members or stream.shape[0] != 4
            or members < 2 or champion.shape[0] != width or champion_fitness.shape[0] != 1):
        raise ValueError("the population does not fit the ratings")
    try:
        fill(&m, item, user, rating, weight, items, users, levels, sigma, penalty, mle)
        bred = <int32_t *> malloc(sizeof(int32_t) * <size_t> (members + 1) * <size_t> width)
        value = <double *> malloc(sizeof(double) * <size_t> (members + 1))
        if bred == NULL or value == NULL:
            raise MemoryError("no memory for the population")
        with nogil:
            for t in range(best_out.shape[0]):
                k = 0
                if elite:  # the best so far stays, and is a parent too
                    one = 0
                    for c in range(1, members):
                        if fitness[c] < fitness[one]:
                            one = c
                    memcpy(bred, &population[one, 0], sizeof(int32_t) * <size_t> width)
                    value[0] = fitness[one]
                    k = 1
                while k < members:
                    one, other = tournament(&fitness[0], members, s), tournament(&fitness[0], members, s)
                    if random_uniform(s) < crossover:
                        for c in range(2):
                            cross(&population[one, 0], &population[other, 0], bred + (k + c) * width, items, m.map, s)
                            cross(&population[one, items], &population[other, items], bred + (k + c) * width + items,
                                  users, m.map, s)
                            one, other = other, one
                    else:
                        memcpy(bred + k * width, &population[one, 0], sizeof(int32_t) * <size_t> width)
                        memcpy(bred + (k + 1) * width, &population[other, 0], sizeof(int32_t) * <size_t> width)
                    for c in range(k, min(k + 2, members)):
                        if random_uniform(s) < mutation:
                            mutate_one(&m, bred + c * width, s)
                        value[c] = evaluate(&m, bred + c * width)
                    k += 2
                memcpy(&population[0, 0], bred, sizeof(int32_t) * <size_t> members * <size_t> width)
                memcpy(&fitness[0], value, sizeof(double) * <size_t> members)
                one = 0
                for c in range(1, members):
                    if fitness[c] < fitness[one]:
                        one = c
                best_out[t] = fitness[one]
                if fitness[one] < champion_fitness[0]:
                    champion_fitness[0] = fitness[one]
                    memcpy(&champion[0], &population[one, 0], sizeof(int32_t) * <size_t> width)
    finally:
        free(m.counts)
        free(m.map)
        free(m.cache)
        free(bred)
        free(value)


def du_steps(int32_t[::1] labels, Py_ssize_t steps, uint64_t[::1] stream):
    """Take steps of the Du process from the partition `labels`, in place; they end in order of first appearance."""
    cdef int32_t n = <int32_t> labels.shape[0]
    cdef Py_ssize_t _each
    cdef int32_t *room
    if stream.shape[0] != 4 or n < 1:
        raise ValueError("the stream has four words, and a partition one item at least")
    room = <int32_t *> malloc(sizeof(int32_t) * <size_t> (2 * n + 2))
    if room == NULL:
        raise MemoryError("no memory for the partition")
    try:
        with nogil:
            for _each in range(steps):
                mutate(&labels[0], n, room, room + n + 1, &stream[0])
            relabel(&labels[0], n, room)
    finally:
        free(room)
