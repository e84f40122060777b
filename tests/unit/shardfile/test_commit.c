#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/shardfile/temporary_lock.h"
#include "tests/unit/checkpoint/state.h"
#include "tests/unit/shardfile/files.h"

enum { D = 5, W = 2 };

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

    cr_assert(state_save(&io_posix, checkpoints, step, 0, D, W, &err) == FSDP_OK, "%s", err.message);
}

/* The file of a step, or its directory where `name` is "". */
static const char *in_step(int64_t step, const char *name)
{
    char step_name[COMMIT_NAME_BYTES];

    commit_step_name(step, step_name);
    return files_path(files_path(checkpoints, step_name), name);
}

static bool is_there(int64_t step)
{
    return files_exist(in_step(step, ""));
}

Test(commit, names_have_one_spelling)
{
    char others[] = "step-5 step-0000000005 step-00000005x step--0000005 Step-00000005 step- step-+0000005 "
                    "step-99999999999999999999 step-9223372036854775808 step-0x000010 step-0000000a";
    char name[COMMIT_NAME_BYTES];

    for (int64_t step = 0; step < 10000000000; step = step * 7 + 1) {
        commit_step_name(step, name);
        cr_expect(commit_parse_step(name) == step, "%s", name);
    }
    for (char *other = strtok(others, " "); other != NULL; other = strtok(NULL, " "))
        cr_expect(commit_parse_step(other) == -1, "%s", other);
    cr_expect(commit_parse_step("") == -1 && commit_parse_step("step- 0000005") == -1);
}

Test(commit, temporary_names_tell_step_and_generation_and_depend_on_the_secret)
{
    char others[] = ".step-00000050.g3 .step-00000050.g3.1234567/../x step-00000050 "
                    ".step-00000050.g03.12345678 .step-00000050.g-3.12345678 "
                    ".step-00000050.g4294967296.12345678 .step-00000050.g3.123456789 "
                    ".step-00000050.g3.1234567G .step-00000050.g3.0x345678 "
                    ".step-00000050.t0.g3.12345678 .step-00000050.t07.g3.12345678 "
                    ".step-00000050.t.g3.12345678 .step-00000050.t-7.g3.12345678 "
                    ".step-00000050.t9223372036854775808.g3.12345678 .step-00000050.g3.t7.12345678";
    const struct commit_fence save = { 50, 3, W, 0 }, largest = { INT64_MAX, UINT32_MAX, W, INT64_MAX };
    char one[COMMIT_NAME_BYTES], two[COMMIT_NAME_BYTES], three[COMMIT_NAME_BYTES];
    struct commit_fence found;

    commit_temporary_name(&save, "a", 1, one);
    commit_temporary_name(&save, "b", 1, two);
    commit_temporary_name(&largest, "a", 1, three);

    cr_assert(commit_parse_temporary(one, &found) && found.step == 50 && found.generation == 3 &&
              found.term == 0);
    cr_assert(commit_parse_temporary(three, &found) && found.step == INT64_MAX &&
              found.generation == UINT32_MAX && found.term == INT64_MAX);
    cr_assert(strcmp(one, two) != 0);
    cr_assert(strstr(one, "safetensors") == NULL && commit_parse_step(one) == -1);
    for (char *other = strtok(others, " "); other != NULL; other = strtok(NULL, " "))
        cr_expect(!commit_parse_temporary(other, &found), "%s", other);
}

static void write_parts(uint32_t generation, struct state_parts *parts)
{
    struct fsdp_err err = { 0 };

    cr_assert(state_write_parts(&io_posix, checkpoints, 50, generation, D, W, parts, &err) == FSDP_OK, "%s",
              err.message);
}

Test(commit, a_stale_generation_cannot_publish)
{
    struct state_parts stale;

    write_parts(1, &stale);
    stale.fence.generation = 2;
    cr_assert(state_publish(&io_posix, checkpoints, &stale, NULL) == FSDP_ERR_MISMATCH);
    commit_temporary_name(&stale.fence, "secret", 6,
                          stale.temporary); /* nor with the new name and its old head */
    cr_assert(state_publish(&io_posix, checkpoints, &stale, NULL) == FSDP_ERR_MISMATCH);
    cr_assert(!is_there(50));
    free(stale.head);
}

/* Its step and generation may be those of today's leader, and its files whole. */
Test(commit, a_leader_of_an_earlier_term_cannot_publish)
{
    struct state_parts old;

    write_parts(1, &old);
    old.fence.term = 2;
    cr_assert(state_publish(&io_posix, checkpoints, &old, NULL) == FSDP_ERR_MISMATCH);
    cr_assert(!is_there(50));
    free(old.head);
}

static void keep_first_line(void *context, const char *words)
{
    if (*(char *)context == '\0')
        snprintf(context, 256, "%s", words);
}

static void keep_kept_line(void *context, const char *words)
{
    if (strstr(words, "not_cleaned") != NULL)
        snprintf(context, 256, "%s", words);
}

static int refuse_rename(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io, (void)from, (void)to;
    errno = EROFS;
    return -1;
}

/* It wakes when the next leader has begun, and still holds what it wrote. */
Test(commit, what_a_stopped_leader_holds_is_taken_away_and_never_published)
{
    struct fsdp_io io = io_posix;
    const char *names[] = { ".step-00000050.g1.12345678", ".step-00000050.t3.g1.12345678",
                            ".step-00000050.t4.g1.12345678" };
    struct state_parts old;
    struct fsdp_err err = { 0 };
    char name[COMMIT_NAME_BYTES], line[256] = "", said[256];
    const struct verify_log log = { keep_first_line, line };
    int fd;

    write_parts(1, &old);
    old.fence.term = 2;
    commit_temporary_name(&old.fence, "secret", 6, name);
    cr_assert(rename(files_path(checkpoints, old.temporary), files_path(checkpoints, name)) == 0);
    memcpy(old.temporary, name, sizeof name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(mkdir(files_path(checkpoints, names[i]), 0700) == 0);
    cr_assert(temporary_hold(&io_posix, checkpoints, name, &fd, NULL) == FSDP_OK);

    cr_assert(commit_take_over(&io_posix, checkpoints, 3, &log, &err) == FSDP_OK, "%s", err.message);

    snprintf(said, sizeof said, "event=checkpoint_taken_over name=%s", name);
    cr_expect_str_eq(line, said);
    cr_expect(!files_exist(files_path(checkpoints, name)));
    cr_expect(state_publish(&io_posix, checkpoints, &old, NULL) != FSDP_OK && !is_there(50));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect(files_exist(files_path(checkpoints, names[i])), "%s is not of an earlier term", names[i]);
    io.rename = refuse_rename;
    cr_expect(commit_take_over(&io, checkpoints, 5, NULL, &err) == FSDP_OK, "%s", err.message);
    close(fd);
    cr_assert(commit_clean(&io_posix, checkpoints, 0, NULL, NULL) == FSDP_OK);
    cr_expect(files_count(checkpoints) == 0);
    cr_expect(commit_take_over(&io_posix, files_path(root, "absent"), 3, NULL, NULL) == FSDP_OK);
    free(old.head);
}

Test(commit, a_missing_short_or_extra_part_is_not_published)
{
    for (int fault = 0; fault < 4; fault++) {
        const char *temporary, *part;
        struct state_parts parts;
        struct fsdp_err err = { 0 };

        write_parts(0, &parts);
        temporary = files_path(checkpoints, parts.temporary);
        part = files_path(temporary, parts.files[1].name);
        if (fault == 0)
            cr_assert(unlink(part) == 0);
        else if (fault == 1)
            cr_assert(truncate(part, 100) == 0);
        else if (fault == 2)
            files_write(files_path(temporary, "more.safetensors"), "x", 1);
        else
            parts.files[1].size_bytes++;

        cr_expect(state_publish(&io_posix, checkpoints, &parts, &err) == FSDP_ERR_FORMAT, "fault %d: %s",
                  fault, err.message);
        cr_expect(err.status == FSDP_ERR_FORMAT, "fault %d: the words have status %d", fault, err.status);
        cr_expect(!is_there(50), "fault %d", fault);
        cr_expect(commit_abort(&io_posix, checkpoints, parts.temporary, &err) == FSDP_OK);
        cr_expect(files_count(checkpoints) == 0, "fault %d", fault);
        free(parts.head);
    }
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
    cr_assert(state_save(&io, checkpoints, 50, 0, D, W, &err) == FSDP_ERR_BUSY, "%s", err.message);

    shard = in_step(50, "shard-00001-model-00001-of-00001.safetensors");
    bytes = files_read(shard, &size);
    bytes[size - 1] ^= 1;
    files_write(shard, bytes, size);
    free(bytes);
    cr_assert(commit_clean(&io, checkpoints, 0, NULL, NULL) == FSDP_OK);
    cr_assert(state_save(&io, checkpoints, 50, 0, D, W, &err) == FSDP_OK, "%s", err.message);
    cr_assert(verify_named_step(&io, checkpoints, 50, VERIFY_CHECKSUMS, NULL) == FSDP_OK);
    cr_assert(files_count(checkpoints) == 1);
}

Test(commit, cleaning_takes_temporary_and_trash_names_only)
{
    struct state_parts parts;

    save(40);
    write_parts(0, &parts);
    free(parts.head);
    cr_assert(mkdir(files_path(checkpoints, ".trash-step-00000030"), 0700) == 0);
    files_write(files_path(checkpoints, ".trash-step-00000030/x"), "x", 1);
    files_write(files_path(checkpoints, "notes.txt"), "mine", 4);
    cr_assert(mkdir(files_path(checkpoints, ".step-mine"), 0700) == 0);
    cr_assert(files_count(checkpoints) == 5);

    cr_assert(commit_clean(&io_posix, checkpoints, 0, NULL, NULL) == FSDP_OK);

    cr_assert(is_there(40) && files_count(checkpoints) == 3);
    cr_assert(commit_clean(&io_posix, files_path(root, "absent"), 0, NULL, NULL) == FSDP_OK);
}

/* A leader that was stopped wakes in its cleaning: what the ranks of the next one write stays. */
Test(commit, cleaning_keeps_what_is_of_a_later_term)
{
    static const struct {
        const char *name;
        bool stays;
    } cases[] = {
        { ".step-00000050.t4.g2.12345678", true },         { ".step-00000050.t3.g2.12345678", false },
        { ".step-00000050.t2.g2.12345678", false },        { ".step-00000050.g2.12345678", false },
        { ".trash-.step-00000050.t4.g2.12345678", false },
    };
    char line[256] = "";
    const struct verify_log log = { keep_kept_line, line };

    save(40);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert(mkdir(files_path(checkpoints, cases[i].name), 0700) == 0);

    cr_assert(commit_clean(&io_posix, checkpoints, 3, &log, NULL) == FSDP_OK);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect(files_exist(files_path(checkpoints, cases[i].name)) == cases[i].stays, "%s", cases[i].name);
    cr_expect_str_eq(line,
                     "event=checkpoint_not_cleaned name=.step-00000050.t4.g2.12345678 reason=\"it is of "
                     "term 4, after term 3\"");
    cr_assert(commit_clean(&io_posix, checkpoints, 0, NULL, NULL) == FSDP_OK);
    cr_expect(files_count(checkpoints) == 1, "without an arbiter there is no later leader");
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
    cr_assert(commit_clean(&io_posix, checkpoints, 0, NULL, NULL) == FSDP_OK);

    cr_assert(files_exist(files_path(root, "mine/manifest.json")));
    cr_assert(is_there(50) && is_there(40) && files_count(checkpoints) == 2);
}

Test(commit, retention_keeps_the_newest_valid_ones_and_what_is_in_use)
{
    static const struct {
        const char *why;
        int64_t saved[6], cut, unlinked[2], renamed;
        uint32_t keep;
        int64_t published, loaded;
        const char *left;
    } cases[] = {
        { "what was loaded stays", { 10, 20, 30, 40, 50, 60 }, 0, { 0 }, 0, 2, 60, 20, "20 50 60 " },
        { "broken ones do not count, and newer ones are left for a person to see",
          { 10, 20, 30, 40, 50 },
          50,
          { 20 },
          0,
          2,
          50,
          -1,
          "30 40 50 " },
        { "the last valid one stays", { 10, 20, 30 }, 0, { 20, 30 }, 0, 1, 30, -1, "10 20 30 " },
        /* The run went back to 50, as a byte of 100 had changed; retention does not see that. */
        { "what was just published stays", { 50, 100, 73 }, 0, { 0 }, 0, 1, 73, 50, "50 73 100 " },
        { "a renamed one does not count", { 10, 20, 30 }, 0, { 0 }, 20, 2, 30, -1, "10 25 30 " },
        { "0 keeps all", { 10, 20, 30 }, 0, { 0 }, 0, 0, 30, -1, "10 20 30 " },
    };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char left[64] = "";

        snprintf(checkpoints, sizeof checkpoints, "%s/%zu", root, c);
        for (int i = 0; i < 6 && cases[c].saved[i] > 0; i++)
            save(cases[c].saved[i]);
        if (cases[c].cut > 0)
            cr_assert(truncate(in_step(cases[c].cut, "manifest.json"), 30) == 0);
        for (int i = 0; i < 2 && cases[c].unlinked[i] > 0; i++)
            cr_assert(unlink(in_step(cases[c].unlinked[i], "manifest.json")) == 0);
        if (cases[c].renamed > 0)
            cr_assert(rename(in_step(cases[c].renamed, ""), in_step(25, "")) == 0);

        cr_assert(commit_retain(&io_posix, checkpoints, cases[c].keep, cases[c].published, cases[c].loaded,
                                NULL, NULL) == FSDP_OK);

        for (int64_t step = 0; step <= 100; step++)
            if (is_there(step))
                snprintf(left + strlen(left), sizeof left - strlen(left), "%d ", (int)step);
        cr_expect_str_eq(left, cases[c].left, "%s", cases[c].why);
    }
}
