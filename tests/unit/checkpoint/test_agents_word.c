/* What a save returns on a rank whose own part went well, when the agent says that the save failed. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "shard_runtime/checkpoint/save.h"
#include "tests/unit/checkpoint/state.h"
#include "tests/unit/comm/agent_end.h"
#include "tests/unit/shardfile/files.h"

enum { STEP = 4 };

/* This rank writes its part; `tensors` NULL: it has no memory for that. Then the agent's word comes. */
static enum fsdp_status save_and_hear(uint32_t word, bool has_memory)
{
    const struct fsdp_link_published published = { .step = STEP,
                                                   .status = word,
                                                   .words = "rank 0: its words" };
    struct link *link = agent_end_opened();
    const struct checkpoint_save_options options = { .link = link,
                                                     .directory = files_begin(),
                                                     .loaded_step = -1 };
    const struct checkpoint_state head = state_head(STEP);
    struct fsdp_err err = { 0 };
    struct state_shard shard;
    enum fsdp_status status;

    state_init(&shard, 13, 2, 1);
    state_fill(&shard, STEP);
    agent_end_say(FSDP_LINK_PUBLISHED, 0, &published, sizeof published, -1);
    status = checkpoint_save(&options, &head, has_memory ? shard.tensors : NULL, STATE_TENSORS, NULL, &err);
    if (status != FSDP_OK)
        cr_assert_str_eq(err.message, "saving step 4: rank 0: its words");
    state_free(&shard);
    link_close(link);
    files_end();
    return status;
}

Test(agents_word, a_disk_that_refused_one_rank_is_every_ranks_status)
{
    cr_assert_eq(save_and_hear(FSDP_OK, true), FSDP_OK);
    cr_assert_eq(save_and_hear(FSDP_ERR_IO, true), FSDP_ERR_IO);
    cr_assert_eq(save_and_hear(FSDP_ERR_NOMEM, false), FSDP_ERR_NOMEM);
}

/*
 * Else two ranks would end with the status of one broken GPU, and the first to end would be taken for the
 * cause.
 */
Test(agents_word, a_gpu_that_failed_on_another_rank_is_a_peers_failure)
{
    cr_assert_eq(save_and_hear(FSDP_ERR_DEVICE, true), FSDP_ERR_PEER);
}
