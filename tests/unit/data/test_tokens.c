#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/data/tokens.h"
#include "tests/unit/shardfile/files.h"

static const char *path;

static void make_folder(void)
{
    path = files_path(files_begin(), "data.txt");
}

TestSuite(tokens, .init = make_folder, .fini = files_end);

static void write_bytes(size_t n)
{
    unsigned char bytes[20000];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)i;
    files_write(path, bytes, n);
}

/* Opens the file as samples of `seq` tokens; NULL and err where it is refused. */
static struct tokens *open_as(uint64_t seq, enum fsdp_status want, struct fsdp_err *err)
{
    struct tokens *tokens = NULL;

    cr_assert(eq(int, tokens_open(&tokens, path, "byte", seq, err), want));
    cr_assert(eq(int, want == FSDP_OK, tokens != NULL));
    return tokens;
}

static void refuses(uint64_t seq, enum fsdp_status want, const char *words)
{
    struct fsdp_err err = { 0 };

    open_as(seq, want, &err);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
}

Test(tokens, samples_overlap_by_one_token)
{
    struct tokens *tokens;
    int32_t input[4], target[4];

    write_bytes(14); /* samples begin at 0, 4, 8; the one at 12 would need token 16 */
    tokens = open_as(4, FSDP_OK, NULL);

    cr_assert(eq(u64, tokens_count(tokens), 14));
    cr_assert(eq(u64, tokens_n_samples(tokens), 3));
    for (uint64_t s = 0; s < 3; s++) {
        cr_assert(eq(int, tokens_read(tokens, s, input, target, NULL), FSDP_OK));
        for (int t = 0; t < 4; t++) {
            cr_assert(eq(i32, input[t], (int32_t)s * 4 + t));
            cr_assert(eq(i32, target[t], (int32_t)s * 4 + t + 1));
        }
    }
    tokens_close(tokens);
}

Test(tokens, number_of_samples_follows_the_formula)
{
    for (size_t n = 2; n < 40; n++) {
        for (uint64_t seq = 1; seq < n; seq++) {
            struct tokens *tokens;

            write_bytes(n);
            tokens = open_as(seq, FSDP_OK, NULL);
            cr_assert(eq(u64, tokens_n_samples(tokens), (n - 1) / seq));
            tokens_close(tokens);
        }
    }
}

Test(tokens, bytes_above_127_are_not_negative)
{
    struct tokens *tokens;
    int32_t input[255], target[255];

    write_bytes(256);
    tokens = open_as(255, FSDP_OK, NULL);
    cr_assert(eq(int, tokens_read(tokens, 0, input, target, NULL), FSDP_OK));

    cr_assert(eq(i32, target[254], 255));
    cr_assert(eq(u64, tokens_vocab(tokens), 256));
    tokens_close(tokens);
}

Test(tokens, what_is_no_file_with_a_sample_is_refused_without_waiting, .timeout = 100)
{
    struct tokens *tokens;

    refuses(4, FSDP_ERR_NOT_FOUND, path);
    write_bytes(0);
    refuses(4, FSDP_ERR_FORMAT, "empty");
    write_bytes(4);
    refuses(4, FSDP_ERR_FORMAT, "needs 5");
    refuses(UINT64_MAX, FSDP_ERR_FORMAT, "");
    write_bytes(5);
    tokens_close(open_as(4, FSDP_OK, NULL));
    cr_assert(eq(int, tokens_open(&tokens, path, "words", 4, NULL), FSDP_ERR_UNSUPPORTED));
    cr_assert(eq(int, chmod(path, 0), 0));
    if (access(path, R_OK) != 0) /* root may read everything */
        refuses(4, FSDP_ERR_NOT_FOUND, path);

    cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
    refuses(4, FSDP_ERR_FORMAT, "a directory");
    cr_assert(rmdir(path) == 0 && mkfifo(path, 0600) == 0);
    refuses(4, FSDP_ERR_FORMAT, "");
}

Test(tokens, file_cut_short_while_in_use_is_an_error_not_a_signal)
{
    struct fsdp_err err = { 0 };
    struct tokens *tokens;
    int32_t input[4], target[4];

    write_bytes(20000);
    tokens = open_as(4, FSDP_OK, NULL);
    cr_assert(eq(int, truncate(path, 100), 0));

    cr_assert(eq(int, tokens_read(tokens, 4000, input, target, &err), FSDP_ERR_FORMAT));
    cr_assert_not_null(strstr(err.message, "shrunk"), "%s", err.message);
    tokens_close(tokens);
}

Test(tokens, file_removed_while_in_use_is_still_read)
{
    struct tokens *tokens;
    int32_t input[4], target[4];

    write_bytes(100);
    tokens = open_as(4, FSDP_OK, NULL);
    cr_assert(eq(int, unlink(path), 0));

    cr_assert(eq(int, tokens_read(tokens, 2, input, target, NULL), FSDP_OK));
    cr_assert(eq(i32, input[0], 8));
    tokens_close(tokens);
}
