#include "agent/members/survival.h"

#include <stdio.h>

const char *survival_words(const struct survival *survival, char out[SURVIVAL_WORDS_BYTES])
{
    const int n_spare = survival->n_nodes - survival->min_nodes;

    if (survival->n_nodes == 1)
        snprintf(out, SURVIVAL_WORDS_BYTES, "one node is left, and its loss ends the job");
    else if (n_spare <= 0 && !survival->waits)
        snprintf(out, SURVIVAL_WORDS_BYTES, "the loss of any of the %d nodes ends the job",
                 survival->n_nodes);
    else if (n_spare <= 0)
        snprintf(out, SURVIVAL_WORDS_BYTES,
                 "if one of the %d nodes is lost, the job waits for another%s%.64s%s", survival->n_nodes,
                 survival->moves ? "" : "; the loss of ", survival->moves ? "" : survival->host,
                 survival->moves ? "" : ", which leads, ends it");
    else
        snprintf(out, SURVIVAL_WORDS_BYTES,
                 "the job bears the loss of %d of its %d nodes, %s of %.64s, which leads", n_spare,
                 survival->n_nodes, survival->moves ? "also" : "but not", survival->host);
    return out;
}
