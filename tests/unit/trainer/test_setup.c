#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/trainer/trainer.h"
#include "tests/unit/engine/world.h"
#include "tests/unit/shardfile/files.h"

enum { RANKS = 3, TOKENS = 100 };

static const char *folder;

static void make_folder(void)
{
    folder = files_begin();
}

TestSuite(trainer_setup, .init = make_folder, .fini = files_end, .timeout = 600);

static void put_tokens(const char *path, size_t n_tokens, char first)
{
    char tokens[TOKENS + 1];

    for (size_t i = 0; i < n_tokens; i++)
        tokens[i] = i == 0 ? first : (char)('a' + i % 20);
    files_write(path, tokens, n_tokens);
}

struct outcome {
    size_t n_tokens[RANKS]; /* of each rank's own file */
    bool other[RANKS];      /* its first token is another one */
    enum fsdp_status status[RANKS];
    struct fsdp_err err[RANKS];
};

/* Each rank in a folder of its own, as processes on hosts without a shared file system are. */
static void open_trainer(struct fsdp_context *context, void *user)
{
    const int rank = fsdp_context_rank(context);
    struct outcome *outcome = user;
    char dir[300], path[300];
    struct trainer trainer;
    struct job job = { .run = { .name = (char *)"run", .dir = dir, .seed = 1 },
                       .data = { .path = path, .tokenizer = (char *)"byte" },
                       .model = { .kind = (char *)"transformer",
                                  .layers = 1,
                                  .dim = 8,
                                  .heads = 2,
                                  .vocab = 256,
                                  .seq = 5,
                                  .causal = true },
                       .parallel = { .replicate = 1 },
                       .train = { .steps = 1, .batch = 1, .grad_accumulation = 1 },
                       .optimizer = { .lr = 1e-3, .betas = { 0.9, 0.95 }, .eps = 1e-8 } };

    snprintf(dir, sizeof dir, "%s/%d", folder, rank);
    snprintf(path, sizeof path, "%s/%d.txt", folder, rank);
    put_tokens(path, outcome->n_tokens[rank], outcome->other[rank] ? 'A' : 'a');
    outcome->status[rank] = trainer_open(&trainer, context, &job, "{}", &outcome->err[rank]);
    trainer_close(&trainer);
}

Test(trainer_setup, data_of_another_length_or_other_bytes_is_refused_by_all_and_said_once)
{
    for (int other = 0; other < 2 * RANKS; other++) {
        const bool longer = other >= RANKS; /* as many samples, and yet another file */
        const char *words = longer ? "has 100 tokens for one rank and 101 for another"
                                   : "has 100 tokens on every node, but not the same ones";
        struct outcome outcome = { .n_tokens = { TOKENS, TOKENS, TOKENS } };

        outcome.n_tokens[other % RANKS] += longer;
        outcome.other[other % RANKS] = !longer;
        world_run(RANKS, open_trainer, &outcome);

        cr_assert(eq(int, outcome.status[0], FSDP_ERR_MISMATCH));
        cr_assert_not_null(strstr(outcome.err[0].message, words), "%s", outcome.err[0].message);
        for (int rank = 1; rank < RANKS; rank++) {
            cr_assert(eq(int, outcome.status[rank], FSDP_ERR_PEER));
            cr_assert_str_eq(outcome.err[rank].message, "");
        }
    }
}

Test(trainer_setup, one_rank_without_data_is_the_one_that_says_so)
{
    struct outcome outcome = { .n_tokens = { TOKENS, 0, TOKENS } };

    world_run(RANKS, open_trainer, &outcome);

    cr_assert(eq(int, outcome.status[1], FSDP_ERR_FORMAT));
    cr_assert_not_null(strstr(outcome.err[1].message, "is empty"));
    cr_assert(eq(int, outcome.status[0], FSDP_ERR_PEER));
    cr_assert(eq(int, outcome.status[2], FSDP_ERR_PEER));
    cr_assert_str_eq(outcome.err[0].message, "");
}
