#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/data/tokens.h"

static char folder[64], path[128];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-tokens.XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/data.txt", folder);
}

static void remove_folder(void)
{
    (void)unlink(path);
    (void)rmdir(path);
    (void)rmdir(folder);
}

TestSuite(tokens, .init = make_folder, .fini = remove_folder);

static void write_bytes(size_t n)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    for (size_t i = 0; i < n; i++)
        fputc((int)(i % 256), file);
    cr_assert(eq(int, fclose(file), 0));
}

static enum fsdp_status try_open(uint64_t seq, struct fsdp_err *err)
{
    struct tokens *tokens = NULL;
    const enum fsdp_status status = tokens_open(&tokens, path, "byte", seq, err);

    cr_assert(eq(int, status == FSDP_OK, tokens != NULL));
    tokens_close(tokens);
    return status;
}

Test(tokens, samples_overlap_by_one_token)
{
    struct tokens *tokens;
    int32_t input[4], target[4];

    write_bytes(14); /* samples begin at 0, 4, 8; the one at 12 would need token 16 */
    cr_assert(eq(int, tokens_open(&tokens, path, "byte", 4, NULL), FSDP_OK));

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
            cr_assert(eq(int, tokens_open(&tokens, path, "byte", seq, NULL), FSDP_OK));
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
    cr_assert(eq(int, tokens_open(&tokens, path, "byte", 255, NULL), FSDP_OK));
    cr_assert(eq(int, tokens_read(tokens, 0, input, target, NULL), FSDP_OK));

    cr_assert(eq(i32, target[254], 255));
    cr_assert(eq(u64, tokens_vocab(tokens), 256));
    tokens_close(tokens);
}

Test(tokens, missing_file_is_not_found)
{
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, try_open(4, &err), FSDP_ERR_NOT_FOUND));
    cr_assert_not_null(strstr(err.message, path));
}

Test(tokens, empty_file_is_refused)
{
    struct fsdp_err err = { 0 };

    write_bytes(0);

    cr_assert(eq(int, try_open(4, &err), FSDP_ERR_FORMAT));
    cr_assert_not_null(strstr(err.message, "empty"), "%s", err.message);
}

Test(tokens, file_shorter_than_a_sample_is_refused)
{
    struct fsdp_err err = { 0 };

    write_bytes(4);

    cr_assert(eq(int, try_open(4, &err), FSDP_ERR_FORMAT));
    cr_assert_not_null(strstr(err.message, "needs 5"), "%s", err.message);
    cr_assert(eq(int, try_open(UINT64_MAX, &err), FSDP_ERR_FORMAT));
    write_bytes(5);
    cr_assert(eq(int, try_open(4, &err), FSDP_OK));
}

Test(tokens, directory_is_refused)
{
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, mkdir(path, 0700), 0));

    cr_assert(eq(int, try_open(4, &err), FSDP_ERR_FORMAT));
    cr_assert_not_null(strstr(err.message, "a directory"), "%s", err.message);
}

Test(tokens, named_pipe_is_refused_without_waiting, .timeout = 100)
{
    cr_assert(eq(int, mkfifo(path, 0600), 0));

    cr_assert(eq(int, try_open(4, NULL), FSDP_ERR_FORMAT));
}

Test(tokens, file_that_may_not_be_read_is_not_found)
{
    write_bytes(100);
    cr_assert(eq(int, chmod(path, 0), 0));
    if (access(path, R_OK) == 0)
        cr_skip_test("this user may read everything");

    cr_assert(eq(int, try_open(4, NULL), FSDP_ERR_NOT_FOUND));
}

Test(tokens, unknown_tokenizer_is_unsupported)
{
    struct tokens *tokens;

    write_bytes(100);

    cr_assert(eq(int, tokens_open(&tokens, path, "words", 4, NULL), FSDP_ERR_UNSUPPORTED));
}

Test(tokens, file_cut_short_while_in_use_is_an_error_not_a_signal)
{
    struct fsdp_err err = { 0 };
    struct tokens *tokens;
    int32_t input[4], target[4];

    write_bytes(20000);
    cr_assert(eq(int, tokens_open(&tokens, path, "byte", 4, NULL), FSDP_OK));
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
    cr_assert(eq(int, tokens_open(&tokens, path, "byte", 4, NULL), FSDP_OK));
    cr_assert(eq(int, unlink(path), 0));

    cr_assert(eq(int, tokens_read(tokens, 2, input, target, NULL), FSDP_OK));
    cr_assert(eq(i32, input[0], 8));
    tokens_close(tokens);
}
