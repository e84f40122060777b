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
    says((struct survival){ .n_nodes = 3, .min_nodes = 2, .waits = true, .moves = true },
         "the job bears the loss of 1 of its 3 nodes, also of n0, which leads");
    says((struct survival){ .n_nodes = 4, .min_nodes = 2 },
         "the job bears the loss of 2 of its 4 nodes, but not of n0, which leads");
    says((struct survival){ .n_nodes = 2, .min_nodes = 2, .waits = true, .moves = true },
         "if one of the 2 nodes is lost, the job waits for another");
    says((struct survival){ .n_nodes = 2, .min_nodes = 2, .waits = true },
         "if one of the 2 nodes is lost, the job waits for another; the loss of n0, which leads, ends it");
    says((struct survival){ .n_nodes = 1, .min_nodes = 1, .waits = true, .moves = true },
         "one node is left, and its loss ends the job");
    says((struct survival){ .n_nodes = 2, .min_nodes = 2, .moves = true },
         "the loss of any of the 2 nodes ends the job");
}
