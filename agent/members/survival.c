#include "agent/members/survival.h"

#include <stdio.h>

/* Adds what happens to the job if its leader is lost, unless that is the same as for any other node. */
static void add_leader(const struct survival *survival, bool spares, char *out, size_t size)
{
    if (survival->n_heirs == 0)
        snprintf(out, size,
                 spares ? ", but not of %.64s, which leads" : "; the loss of %.64s, which leads, ends it",
                 survival->host);
    else if (survival->n_heirs < survival->n_nodes - 1)
        snprintf(out, size, "; without %.64s, which leads, it %s with %d of the others", survival->host,
                 survival->n_heirs >= survival->min_nodes ? "goes on" : "waits", survival->n_heirs);
    else if (spares)
        snprintf(out, size, ", also of %.64s, which leads", survival->host);
}

const char *survival_words(const struct survival *survival, char out[SURVIVAL_WORDS_BYTES])
{
    const int n_spare = survival->n_nodes - survival->min_nodes;
    int n;

    if (survival->n_nodes == 1) {
        snprintf(out, SURVIVAL_WORDS_BYTES, "one node is left, and its loss ends the job");
    } else if (n_spare <= 0 && !survival->waits) {
        snprintf(out, SURVIVAL_WORDS_BYTES, "the loss of any of the %d nodes ends the job",
                 survival->n_nodes);
    } else {
        n = n_spare > 0
                ? snprintf(out, SURVIVAL_WORDS_BYTES, "the job bears the loss of %d of its %d nodes", n_spare,
                           survival->n_nodes)
                : snprintf(out, SURVIVAL_WORDS_BYTES,
                           "if one of the %d nodes is lost, the job waits for another", survival->n_nodes);
        add_leader(survival, n_spare > 0, out + n, SURVIVAL_WORDS_BYTES - (size_t)n);
    }
    return out;
}
