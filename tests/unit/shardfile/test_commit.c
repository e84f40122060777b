#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/shardfile/files.h"

static const char *root;
static char checkpoints[512];

static void begin(void)
{
    root = files_begin();
    snprintf(checkpoints, sizeof checkpoints, "%s/run/checkpoints", root);
}

TestSuite(commit, .init = begin, .fini = files_end, .timeout = 600);

static void save(int64_t step)
{
    struct fsdp_err err = { 0 };

    cr_assert(files_save_all(&io_posix, checkpoints, step, 0, &err) == FSDP_OK, "%s", err.message);
}

static bool is_there(int64_t step)
{
    char name[COMMIT_NAME_BYTES];

    commit_step_name(step, name);
    return files_exist(files_path(checkpoints, name));
}

Test(commit, names_have_one_spelling)
{
    static const char *const others[] = { "step-5",
                                          "step-0000000005",
                                          "step-00000005x",
                                          "step--0000005",
                                          "step- 0000005",
                                          "Step-00000005",
                                          "step-",
                                          "",
                                          "step-+0000005",
                                          "step-99999999999999999999",
                                          "step-9223372036854775808",
                                          "step-0x000010",
                                          "step-0000000a" };
    char name[COMMIT_NAME_BYTES];

    for (int64_t step = 0; step < 10000000000; step = step * 7 + 1) {
        commit_step_name(step, name);
        cr_expect(commit_parse_step(name) == step, "%s", name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_expect(commit_parse_step(others[i]) == -1, "%s", others[i]);
}

Test(commit, temporary_names_tell_step_and_generation_and_depend_on_the_secret)
{
    char one[COMMIT_NAME_BYTES], two[COMMIT_NAME_BYTES];
    uint32_t generation;
    int64_t step;

    commit_temporary_name(50, 3, "a", 1, one);
    commit_temporary_name(50, 3, "b", 1, two);

    cr_assert(commit_parse_temporary(one, &step, &generation) && step == 50 && generation == 3);
    cr_assert(strcmp(one, two) != 0);
    cr_assert(strstr(one, "safetensors") == NULL && commit_parse_step(one) == -1);
    cr_assert(!commit_parse_temporary(".step-00000050.g3", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g3.1234567/../x", &step, &generation));
    cr_assert(!commit_parse_temporary("step-00000050", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g03.12345678", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g-3.12345678", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g4294967296.12345678", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g3.123456789", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g3.1234567G", &step, &generation));
    cr_assert(!commit_parse_temporary(".step-00000050.g3.0x345678", &step, &generation));
}

Test(commit, a_published_step_verifies_and_leaves_nothing_beside_it)
{
    struct manifest manifest;
    struct fsdp_err err = { 0 };

    save(50);

    cr_assert(files_count(checkpoints) == 1 && is_there(50));
    cr_assert(verify_step(&io_posix, files_path(checkpoints, "step-00000050"), VERIFY_CHECKSUMS, &manifest,
                          &err) == FSDP_OK,
              "%s", err.message);
    cr_assert(manifest.step == 50 && manifest.cursor == 400 && manifest.n_files == 2 &&
              manifest.n_tensors == 3);
    manifest_free(&manifest);
}

Test(commit, a_stale_generation_cannot_publish)
{
    struct files_save stale;
    struct commit_fence now;
    struct fsdp_err err = { 0 };

    cr_assert(files_save_parts(&io_posix, checkpoints, 50, 1, &stale, &err) == FSDP_OK, "%s", err.message);
    now = stale.fence;
    now.generation = 2;

    cr_assert(commit_publish(&io_posix, checkpoints, stale.temporary, &now, stale.head, stale.head_length,
                             stale.files, FILES_RANKS, &err) == FSDP_ERR_MISMATCH);
    commit_temporary_name(50, 2, "secret", 6, stale.temporary); /* nor with the new name and its old head */
    cr_assert(commit_publish(&io_posix, checkpoints, stale.temporary, &now, stale.head, stale.head_length,
                             stale.files, FILES_RANKS, &err) == FSDP_ERR_MISMATCH);
    cr_assert(!is_there(50));
    files_save_free(&stale);
}

Test(commit, a_missing_short_or_extra_part_is_not_published)
{
    for (int fault = 0; fault < 4; fault++) {
        char temporary[IO_PATH_BYTES];
        struct files_save parts;
        struct fsdp_err err = { 0 };

        cr_assert(files_save_parts(&io_posix, checkpoints, 50, 0, &parts, &err) == FSDP_OK, "%s",
                  err.message);
        snprintf(temporary, sizeof temporary, "%s/%s", checkpoints, parts.temporary);
        if (fault == 0)
            unlink(files_path(temporary, parts.names[1]));
        else if (fault == 1)
            cr_assert(truncate(files_path(temporary, parts.names[1]), 100) == 0);
        else if (fault == 2)
            files_write(files_path(temporary, "more.safetensors"), "x", 1);
        else
            parts.files[1].size_bytes++;

        cr_expect(commit_publish(&io_posix, checkpoints, parts.temporary, &parts.fence, parts.head,
                                 parts.head_length, parts.files, FILES_RANKS, &err) == FSDP_ERR_FORMAT,
                  "fault %d: %s", fault, err.message);
        cr_expect(!is_there(50), "fault %d", fault);
        cr_expect(commit_abort(&io_posix, checkpoints, parts.temporary, &err) == FSDP_OK);
        cr_expect(files_count(checkpoints) == 0, "fault %d", fault);
        files_save_free(&parts);
    }
}

Test(commit, saving_a_step_again_replaces_it)
{
    unsigned char *bytes;
    size_t size;

    save(50);
    files_write(files_path(checkpoints, "step-00000050/manifest.json"), "damaged", 7);
    save(50);

    bytes = files_read(files_path(checkpoints, "step-00000050/manifest.json"), &size);
    cr_assert(size > 7 && files_count(checkpoints) == 1);
    cr_assert(verify_step(&io_posix, files_path(checkpoints, "step-00000050"), VERIFY_CHECKSUMS, NULL,
                          NULL) == FSDP_OK);
    free(bytes);
}

static int refuse_exchange(struct fsdp_io *io, const char *one, const char *two)
{
    (void)io, (void)one, (void)two;
    errno = EINVAL;
    return -1;
}

/* A run that went back because a byte of its newest checkpoint had changed comes by that step again. */
Test(commit, where_names_cannot_be_swapped_a_damaged_one_is_replaced_and_a_whole_one_is_not)
{
    struct fsdp_io io = io_posix;
    struct fsdp_err err = { 0 };
    unsigned char *bytes;
    const char *shard;
    size_t size;

    io.exchange = refuse_exchange;
    save(50);
    cr_assert(files_save_all(&io, checkpoints, 50, 0, &err) == FSDP_ERR_BUSY, "%s", err.message);

    shard = files_path(checkpoints, "step-00000050/shard-00001-model-00001-of-00001.safetensors");
    bytes = files_read(shard, &size);
    bytes[size - 1] ^= 1;
    files_write(shard, bytes, size);
    free(bytes);
    cr_assert(commit_clean(&io, checkpoints, NULL, NULL) == FSDP_OK);
    cr_assert(files_save_all(&io, checkpoints, 50, 0, &err) == FSDP_OK, "%s", err.message);
    cr_assert(verify_named_step(&io, checkpoints, 50, VERIFY_CHECKSUMS, NULL) == FSDP_OK);
    cr_assert(files_count(checkpoints) == 1);
}

Test(commit, cleaning_takes_temporary_and_trash_names_only)
{
    struct files_save parts;

    save(40);
    cr_assert(files_save_parts(&io_posix, checkpoints, 50, 0, &parts, NULL) == FSDP_OK);
    files_save_free(&parts);
    cr_assert(mkdir(files_path(checkpoints, ".trash-step-00000030"), 0700) == 0);
    files_write(files_path(checkpoints, ".trash-step-00000030/x"), "x", 1);
    files_write(files_path(checkpoints, "notes.txt"), "mine", 4);
    cr_assert(mkdir(files_path(checkpoints, ".step-mine"), 0700) == 0);
    cr_assert(files_count(checkpoints) == 5);

    cr_assert(commit_clean(&io_posix, checkpoints, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(40) && files_count(checkpoints) == 3);
    cr_assert(commit_clean(&io_posix, files_path(root, "absent"), NULL, NULL) == FSDP_OK);
}

Test(commit, nothing_is_removed_through_a_link)
{
    cr_assert(mkdir(files_path(root, "mine"), 0700) == 0);
    files_write(files_path(root, "mine/manifest.json"), "mine", 4);
    for (int64_t step = 20; step <= 40; step += 10)
        save(step);
    cr_assert(symlink(files_path(root, "mine"), files_path(checkpoints, ".trash-step-00000010")) == 0);
    cr_assert(symlink(files_path(root, "mine"), files_path(checkpoints, "step-00000010")) == 0);
    cr_assert(symlink(files_path(root, "mine"), files_path(checkpoints, "step-00000050")) == 0);

    save(50);
    cr_assert(commit_retain(&io_posix, checkpoints, 2, 50, -1, NULL, NULL) == FSDP_OK);
    cr_assert(commit_clean(&io_posix, checkpoints, NULL, NULL) == FSDP_OK);

    cr_assert(files_exist(files_path(root, "mine/manifest.json")));
    cr_assert(is_there(50) && is_there(40) && files_count(checkpoints) == 2);
}

Test(commit, retention_keeps_the_newest_and_what_was_loaded)
{
    for (int64_t step = 10; step <= 60; step += 10)
        save(step);

    cr_assert(commit_retain(&io_posix, checkpoints, 2, 60, 20, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(60) && is_there(50) && is_there(20));
    cr_assert(files_count(checkpoints) == 3);
}

Test(commit, retention_does_not_count_broken_ones)
{
    for (int64_t step = 10; step <= 50; step += 10)
        save(step);
    cr_assert(truncate(files_path(checkpoints, "step-00000050/manifest.json"), 30) == 0);
    cr_assert(unlink(files_path(checkpoints, "step-00000020/manifest.json")) == 0);

    cr_assert(commit_retain(&io_posix, checkpoints, 2, 50, -1, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(50), "newer than the kept ones, left for a person to see");
    cr_assert(is_there(40) && is_there(30));
    cr_assert(!is_there(20) && !is_there(10));
}

Test(commit, retention_never_deletes_the_last_valid_one)
{
    for (int64_t step = 10; step <= 30; step += 10)
        save(step);
    for (int64_t step = 20; step <= 30; step += 10) {
        char name[COMMIT_NAME_BYTES];

        commit_step_name(step, name);
        cr_assert(unlink(files_path(files_path(checkpoints, name), "manifest.json")) == 0);
    }

    cr_assert(commit_retain(&io_posix, checkpoints, 1, 30, -1, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(10));
}

/* The run went back to 50, because a byte of 100 had changed: retention itself does not see that. */
Test(commit, retention_never_deletes_what_was_just_published)
{
    save(50);
    save(100);
    save(73);

    cr_assert(commit_retain(&io_posix, checkpoints, 1, 73, 50, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(73) && is_there(50));
    cr_assert(is_there(100), "left for a person to see");
}

Test(commit, retention_does_not_count_a_renamed_one)
{
    int64_t step = -1;

    for (int64_t s = 10; s <= 30; s += 10)
        save(s);
    cr_assert(rename(files_path(checkpoints, "step-00000020"), files_path(checkpoints, "step-00000025")) ==
              0);

    cr_assert(commit_retain(&io_posix, checkpoints, 2, 30, -1, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(30) && is_there(25) && is_there(10));
    cr_assert(verify_newest(&io_posix, checkpoints, VERIFY_CHECKSUMS, &step, NULL, NULL) == FSDP_OK &&
              step == 30);
}

Test(commit, keep_0_keeps_all)
{
    for (int64_t step = 10; step <= 30; step += 10)
        save(step);

    cr_assert(commit_retain(&io_posix, checkpoints, 0, 30, -1, NULL, NULL) == FSDP_OK);

    cr_assert(files_count(checkpoints) == 3);
}
