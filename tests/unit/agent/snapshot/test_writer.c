/*
 * Slots on their way to the disk: what the process writes, what it refuses, and what is said when it is
 * killed.
 */
#include "agent/snapshot/writer.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/snapshot/segments.h"
#include "shard_runtime/shardfile/safetensors.h"
#include "tests/unit/agent/scratch.h"

/*
 * fsdprun calls this first in main(). Here main() is Criterion's, and this program is executed again as well.
 */
__attribute__((constructor)) static void be_the_process(int argc, char **argv)
{
    writer_process_main(argc, argv);
}

enum { DATA_BYTES = 3 << 20, SLOT_BYTES = 4 << 20 };

static uv_loop_t loop;
static struct writer *writer;
static struct segments *segments;
static struct writer_answer last;
static int n_answers;
static char temporary[COMMIT_NAME_BYTES];
static uint64_t number;

static void on_answer(void *arg, const struct writer_answer *answer)
{
    last = *answer;
    n_answers++;
}

static struct writer_answer word; /* the last one */

static void on_word(void *arg, const struct writer_answer *answer)
{
    word = *answer;
}

/* Lays out local rank 0's segment as a worker does, with a file in slot 0. */
static void fill_slot(void)
{
    const int fd = segments_fd(segments, 0);
    const struct snapshot_owner owner = { 0, 1, 5 };
    struct safetensors_tensor tensor = {
        .name = "w", .dtype = FSDP_U8, .n_dims = 1, .shape = { DATA_BYTES }
    };
    struct json_text header = { 0 };
    struct snapshot_parts parts = { 0 };
    struct fsdp_snapshot_head *head;
    unsigned char *data = malloc(DATA_BYTES);
    int slot;

    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
    cr_assert_eq(ftruncate(fd, (off_t)snapshot_segment_bytes(SLOT_BYTES)), 0);
    head = mmap(NULL, FSDP_SNAPSHOT_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(head != MAP_FAILED);
    snapshot_lay_out(head, &owner, SLOT_BYTES);
    cr_assert_eq(safetensors_build_header(&tensor, 1, NULL, 0, SAFETENSORS_ALIGNMENT, &header,
                                          &parts.size_bytes, NULL),
                 FSDP_OK);
    slot = snapshot_choose(head, -1);
    cr_assert_eq(slot, 0);
    snapshot_begin(head, slot);
    cr_assert_eq(pwrite(fd, header.bytes, header.length, (off_t)head->slots[slot].offset),
                 (ssize_t)header.length);
    cr_assert_eq(pwrite(fd, data, DATA_BYTES, (off_t)(head->slots[slot].offset + header.length)), DATA_BYTES);
    number = snapshot_complete(head, slot, 50, 4, &parts);
    munmap(head, FSDP_SNAPSHOT_HEAD_BYTES);
    json_text_free(&header);
    free(data);
}

static void set_up(void)
{
    scratch_make();
    uv_loop_init(&loop);
    writer = writer_create(&loop, on_answer, on_word, NULL);
    cr_assert_eq(segments_create(&segments, 1, NULL), FSDP_OK);
    commit_temporary_name(&(struct commit_fence){ 50, 4, 1, 0 }, "secret", 6, temporary);
    fill_slot();
}

/* Ends the process and reaps it. */
static void tear_down(void)
{
    writer_stop(writer);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle was left open");
    segments_destroy(segments);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    scratch_remove();
}

TestSuite(writer, .init = set_up, .fini = tear_down, .timeout = 60);

static struct writer_request request_of(uint64_t id)
{
    struct writer_request request = { .id = id, .slot = 0, .number = number };

    snprintf(request.temporary, sizeof request.temporary, "%s", temporary);
    snprintf(request.run_dir, sizeof request.run_dir, "%s", scratch);
    return request;
}

static void ask(const struct writer_request *request)
{
    const int before = n_answers;

    cr_assert_eq(writer_submit(writer, request, segments_fd(segments, 0), NULL), FSDP_OK);
    while (n_answers == before)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(last.id, request->id);
}

static const char *file_path(void)
{
    char name[MANIFEST_SHARD_NAME_BYTES];

    manifest_shard_name(0, name);
    return scratch_path("checkpoints/%s/%s", temporary, name);
}

Test(writer, writes_the_file_of_a_slot_with_its_checksum)
{
    const struct writer_request request = request_of(7);
    struct safetensors_header header;
    struct stat stat_of;

    ask(&request);

    cr_assert_eq(last.status, FSDP_OK, "%s", last.words);
    cr_assert_eq(stat(file_path(), &stat_of), 0);
    cr_expect_eq((uint64_t)stat_of.st_size, last.size_bytes);
    cr_expect(last.checksum[0] != 0 && last.checksum[1] != 0 && last.took_ns > 0);
    cr_assert_eq(safetensors_open(&io_posix, file_path(), &header, NULL, NULL), FSDP_OK);
    cr_expect_eq(header.n_tensors, 1);
    safetensors_free(&header);
}

Test(writer, a_file_that_takes_long_is_heard_of_while_it_is_written)
{
    word.n_files = 0;
    for (uint64_t id = 1; word.n_files == 0; id++) { /* a fast disk has written it before a word is due */
        struct writer_request request = request_of(id);

        request.word_ms = 1;
        ask(&request);
        cr_assert_eq(last.status, FSDP_OK, "%s", last.words);
    }

    cr_expect_eq(word.n_files, 1);
    cr_expect_eq(word.step, 50);
    cr_expect_gt(word.took_ns, 0);
    cr_expect_leq(word.written_bytes, word.size_bytes);
    cr_expect(word.size_bytes == last.size_bytes || word.size_bytes == 0, "it is not known at first");
}

Test(writer, a_request_without_an_interval_gets_no_word)
{
    const struct writer_request request = request_of(1);

    word.n_files = 0;
    ask(&request);
    cr_expect_eq(word.n_files, 0);
}

Test(writer, one_process_serves_request_after_request)
{
    for (uint64_t id = 1; id <= 5; id++) {
        const struct writer_request request = request_of(id);

        ask(&request);
        cr_expect_eq(last.status, FSDP_OK, "%s", last.words);
    }
}

Test(writer, a_slot_that_was_filled_again_is_not_written)
{
    struct writer_request request = request_of(1);

    request.number++;
    ask(&request);
    cr_expect_eq(last.status, FSDP_ERR_MISMATCH);
    cr_expect(access(file_path(), F_OK) < 0);
    request = request_of(2);
    request.slot = 1;
    ask(&request);
    cr_expect_eq(last.status, FSDP_ERR_MISMATCH);
}

Test(writer, names_that_leave_the_directory_are_refused)
{
    struct writer_request request = request_of(1);

    snprintf(request.temporary, sizeof request.temporary, "../elsewhere");
    ask(&request);
    cr_expect_eq(last.status, FSDP_ERR_ARG);
    cr_expect(access(scratch_path("elsewhere"), F_OK) < 0);
}

Test(writer, a_disk_that_refuses_is_said_and_the_next_request_is_served)
{
    struct writer_request request = request_of(1);

    snprintf(request.run_dir, sizeof request.run_dir, "%s/missing", scratch);
    ask(&request);
    cr_expect_neq(last.status, FSDP_OK);
    cr_expect_neq(last.words[0], '\0');
    request = request_of(2);
    ask(&request);
    cr_expect_eq(last.status, FSDP_OK);
}

/* The child of this process, which is the writer's. */
static pid_t child(void)
{
    char path[64], text[64] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(text, sizeof text, file));
    fclose(file);
    return (pid_t)atoi(text);
}

Test(writer, a_killed_process_fails_what_it_had_and_is_replaced)
{
    struct writer_request request = request_of(1);
    pid_t pid;

    ask(&request);
    cr_assert_eq(last.status, FSDP_OK);
    pid = child();
    cr_assert_eq(kill(pid, SIGSTOP), 0);
    request = request_of(2);
    cr_assert_eq(writer_submit(writer, &request, segments_fd(segments, 0), NULL), FSDP_OK);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    while (n_answers < 2)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(last.id, 2);
    cr_expect_eq(last.status, FSDP_ERR_IO);
    cr_expect_not_null(strstr(last.words, "has died"));

    request = request_of(3);
    ask(&request);
    cr_expect_eq(last.status, FSDP_OK, "%s", last.words);
}

/* More requests at once than the socket of the process has room for, as a node of many ranks makes them. */
Test(writer, requests_wait_until_the_process_takes_them)
{
    enum { MANY = 60 };
    struct writer_request request = request_of(1);

    ask(&request);
    cr_assert_eq(kill(child(), SIGSTOP), 0);
    for (uint64_t id = 2; id < 2 + MANY; id++) {
        request = request_of(id);
        request.number++; /* of no filling: it is answered at once */
        cr_assert_eq(writer_submit(writer, &request, segments_fd(segments, 0), NULL), FSDP_OK, "request %d",
                     (int)id);
    }
    cr_assert_eq(kill(child(), SIGCONT), 0);
    while (n_answers < 1 + MANY)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(last.status, FSDP_ERR_MISMATCH, "%s", last.words);
}

/* A scheduler signals every process of a run. */
Test(writer, no_signal_but_kill_ends_it)
{
    const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
    struct writer_request request = request_of(1);

    cr_assert_eq(writer_submit(writer, &request, segments_fd(segments, 0), NULL), FSDP_OK);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        cr_assert_eq(kill(child(), signals[i]), 0);
    while (n_answers == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(last.status, FSDP_OK, "%s", last.words);
    request = request_of(2);
    ask(&request);
    cr_expect_eq(last.status, FSDP_OK);
}

Test(writer, stopping_answers_nothing_more)
{
    const struct writer_request request = request_of(1);

    cr_assert_eq(writer_submit(writer, &request, segments_fd(segments, 0), NULL), FSDP_OK);
    writer_stop(writer);
    writer = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(n_answers, 0);
}

Test(writer, the_agent_sees_what_the_workers_hold)
{
    cr_expect_eq(segments_held(segments, 0, 1).held[0].step, 50);
    cr_expect_eq(segments_held(segments, 0, 1).held[0].generation, 4);
    cr_expect_eq(segments_held(segments, 1, 2).held[0].step, -1, "of another seat");
    cr_expect_eq(segments_held(NULL, 0, 1).held[0].step, -1);
}

Test(writer, a_node_holds_only_what_all_its_workers_hold)
{
    struct segments *two;

    cr_assert_eq(segments_create(&two, 2, NULL), FSDP_OK);
    cr_expect_eq(segments_held(two, 0, 2).held[0].step, -1);
    segments_destroy(two);
}
