#include "agent/members/survival.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

static void says(struct survival survival, const char *want)
{
    char words[SURVIVAL_WORDS_BYTES];

    survival.host = "n0";
    cr_expect(eq(str, (char *)survival_words(&survival, words), (char *)want));
}

Test(survival, the_leader_is_named_where_its_loss_is_another_matter)
{
    says((struct survival){ .n_nodes = 3, .min_nodes = 2, .waits = true, .n_heirs = 2 },
         "the job bears the loss of 1 of its 3 nodes, also of n0, which leads");
    says((struct survival){ .n_nodes = 4, .min_nodes = 2 },
         "the job bears the loss of 2 of its 4 nodes, but not of n0, which leads");
    says((struct survival){ .n_nodes = 2, .min_nodes = 2, .waits = true, .n_heirs = 1 },
         "if one of the 2 nodes is lost, the job waits for another");
    says((struct survival){ .n_nodes = 2, .min_nodes = 2, .waits = true },
         "if one of the 2 nodes is lost, the job waits for another; the loss of n0, which leads, ends it");
    says((struct survival){ .n_nodes = 1, .min_nodes = 1, .waits = true },
         "one node is left, and its loss ends the job");
    says((struct survival){ .n_nodes = 2, .min_nodes = 2, .n_heirs = 1 },
         "the loss of any of the 2 nodes ends the job");
}

/* A node that cannot read the record of who leads ends when its leader is lost. */
Test(survival, without_the_leader_only_the_nodes_that_can_take_its_place_count)
{
    says((struct survival){ .n_nodes = 2, .min_nodes = 1, .waits = true },
         "the job bears the loss of 1 of its 2 nodes, but not of n0, which leads");
    says((struct survival){ .n_nodes = 4, .min_nodes = 2, .waits = true, .n_heirs = 2 },
         "the job bears the loss of 2 of its 4 nodes; without n0, which leads, it goes on with 2 of the "
         "others");
    says(
        (struct survival){ .n_nodes = 4, .min_nodes = 2, .waits = true, .n_heirs = 1 },
        "the job bears the loss of 2 of its 4 nodes; without n0, which leads, it waits with 1 of the others");
    says((struct survival){ .n_nodes = 3, .min_nodes = 3, .waits = true, .n_heirs = 1 },
         "if one of the 3 nodes is lost, the job waits for another; without n0, which leads, it waits with 1 "
         "of the others");
}
