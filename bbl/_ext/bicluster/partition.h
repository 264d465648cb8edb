/* Partitions as arrays of labels: the group of each item, numbered from 0. */
#ifndef PARTITION_H
#define PARTITION_H

#include <stddef.h>
#include <stdint.h>

/* Renumber n labels in order of first appearance and write them to labels_out, which may be `labels` itself; return the
   number of groups. Labels are less than n; new_label (n) is scratch memory. */
static inline int32_t partition_renumber(const int32_t *labels, ptrdiff_t n, int32_t *new_label, int32_t *labels_out)
{
    int32_t n_groups = 0;
    for (ptrdiff_t i = 0; i < n; i++)
        new_label[i] = -1;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (new_label[labels[i]] < 0)
            new_label[labels[i]] = n_groups++;
        labels_out[i] = new_label[labels[i]];
    }
    return n_groups;
}
#endif
