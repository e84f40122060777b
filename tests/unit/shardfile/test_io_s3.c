/* Against build/test/fake_s3, which fails as it is told. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/objectstore/s3_client.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/io_s3.h"

#define DIR  "s3://bucket/runs/a"
#define SAVE ".step-00000005.g1.0000abcd"

enum { PART_BYTES = 1000 };

static const struct s3_patience patience = {
    .tries = 3, .pause_ms = 1, .longest_pause_ms = 2, .connect_ms = 2000, .silent_ms = 1000
};
static struct fsdp_io *const io = &io_anywhere;
static struct s3_client *client;
static struct s3_account account;

/* Starts the server, which ends with this process. */
static void begin(void)
{
    int in[2], out[2];
    char port[16] = "";

    cr_assert(pipe(in) == 0 && pipe(out) == 0);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        execl(BUILD_DIR "/test/fake_s3", "fake_s3", "2", NULL);
        _exit(127);
    }
    close(out[1]);
    cr_assert(gt(sz, (size_t)read(out[0], port, sizeof port - 1), 0));
    setenv("no_proxy", "*", 1);
    snprintf(account.endpoint, sizeof account.endpoint, "http://127.0.0.1:%d", atoi(port));
    strcpy(account.region, "us-east-1");
    strcpy(account.key_id, "id");
    strcpy(account.secret, "secret");
    cr_assert(eq(int, s3_client_create(&client, &account, &patience, NULL), FSDP_OK));
    io_s3_use(client, PART_BYTES);
}

TestSuite(io_s3, .init = begin, .timeout = 60);

/* The nth request from now on fails. */
static void fail_at(int n, const char *how)
{
    struct s3_location at = { .bucket = "-" };

    snprintf(at.key, sizeof at.key, "fault/%d/%s", n, how);
    cr_assert(eq(int, s3_put(client, &at, "", 0, false, NULL), FSDP_OK));
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 7 + i / 251);
}

/* Writes a file as a rank does: its header last. Returns 0, or -1 with errno. */
static int save_file(const char *name, size_t size)
{
    char path[256];
    unsigned char bytes[7000];
    const size_t head = size < 100 ? size : 100;
    int fd, result;

    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_at(i);
    snprintf(path, sizeof path, DIR "/%s", name);
    fd = io->open(io, path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return -1;
    result = io->allocate(io, fd, size);
    for (size_t at = head; at < size && result == 0; at += 700)
        if (io->pwrite(io, fd, bytes + at, size - at < 700 ? size - at : 700, at) < 0)
            result = -1;
    if (result == 0 &&
        (io->pwrite(io, fd, bytes, head, 0) < 0 || io->ftruncate(io, fd, size) < 0 || io->fsync(io, fd) < 0))
        result = -1;
    return io->close(io, fd) < 0 ? -1 : result;
}

static void check_file(const char *name, size_t size)
{
    char path[256];
    unsigned char bytes[7000];
    struct fsdp_err err = { 0 };
    uint64_t size_bytes = 0;
    int fd = -1;

    snprintf(path, sizeof path, DIR "/%s", name);
    cr_assert(eq(int, io_open_read(io, path, &fd, &size_bytes, &err), FSDP_OK), "%s", err.message);
    cr_assert(eq(u64, size_bytes, size));
    cr_assert(eq(int, io_read_all(io, fd, bytes, size, 0, path, &err), FSDP_OK), "%s", err.message);
    for (size_t i = 0; i < size; i++)
        cr_assert(bytes[i] == byte_at(i), "byte %zu of %zu", i, size);
    cr_assert(eq(int, io->close(io, fd), 0));
}

static const char *names_of(const char *path)
{
    static char text[1024];
    struct io_names names;

    text[0] = '\0';
    if (io->list(io, path, &names) < 0)
        return strerror(errno);
    for (size_t i = 0; i < names.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", names.names[i]);
    io_names_free(&names);
    return text;
}

Test(io_s3, a_file_of_any_size_is_read_as_it_was_written)
{
    static const size_t sizes[] = {
        1, 99, 100, 101, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 6543
    };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cr_assert(eq(int, save_file("file", sizes[i]), 0), "%zu bytes: %s", sizes[i],
                  file_error_words(errno));
        check_file("file", sizes[i]);
    }
}

Test(io_s3, a_temporary_directory_is_a_step_once_it_is_renamed)
{
    cr_assert(eq(int, save_file(SAVE "/one", 10), 0));
    cr_assert(eq(int, save_file(SAVE "/two", 2500), 0));
    cr_assert(eq(str, (char *)names_of(DIR), SAVE " "));

    cr_assert(eq(int, io->rename(io, DIR "/" SAVE, DIR "/step-00000005"), 0));

    cr_assert(eq(str, (char *)names_of(DIR), "step-00000005 "));
    cr_assert(eq(str, (char *)names_of(DIR "/step-00000005"), "one two "));
    check_file("step-00000005/two", 2500);
}

Test(io_s3, who_still_takes_a_published_step_for_a_leftover_removes_nothing_of_it)
{
    cr_assert(eq(int, save_file(SAVE "/one", 10), 0));
    cr_assert(eq(int, io->rename(io, DIR "/" SAVE, DIR "/step-00000005"), 0));

    cr_assert(ne(int, commit_abort(io, DIR, SAVE, NULL), FSDP_OK));
    cr_assert(eq(int, io->rename(io, DIR "/" SAVE, DIR "/.trash-a"), -1));
    cr_assert(eq(int, errno, ENOENT));

    check_file("step-00000005/one", 10);
}

Test(io_s3, of_two_publishers_of_a_step_one_wins)
{
    static const char other[] = DIR "/.step-00000005.t2.g1.0000abcd";

    cr_assert(eq(int, io->rename(io, DIR "/" SAVE, DIR "/step-00000005"), 0));
    cr_assert(eq(int, io->rename(io, other, DIR "/step-00000005"), -1));
    cr_assert(eq(int, errno, EEXIST));
    cr_assert(eq(int, io->exchange(io, other, DIR "/step-00000005"), -1));
    cr_assert(eq(int, errno, EINVAL));
}

Test(io_s3, an_answer_that_is_lost_does_not_make_a_publisher_lose)
{
    fail_at(1, "lost");
    cr_assert(eq(int, io->rename(io, DIR "/" SAVE, DIR "/step-00000005"), 0), "%s", file_error_words(errno));
}

Test(io_s3, a_step_that_is_trash_can_be_removed_and_nothing_is_left)
{
    cr_assert(eq(int, save_file(SAVE "/one", 10), 0));
    cr_assert(eq(int, io->rename(io, DIR "/" SAVE, DIR "/step-00000005"), 0));

    cr_assert(eq(int, io->rename(io, DIR "/step-00000005", DIR "/.trash-step-00000005"), 0));
    cr_assert(eq(str, (char *)names_of(DIR), SAVE " "), "a process that dies here leaves it to the next one");
    cr_assert(eq(str, (char *)names_of(DIR "/.trash-step-00000005"), "one "));
    cr_assert(eq(int, io->unlink(io, DIR "/.trash-step-00000005/one"), 0));
    cr_assert(eq(int, io->rmdir(io, DIR "/.trash-step-00000005"), 0));

    cr_assert(eq(str, (char *)names_of(DIR), strerror(ENOENT)));
    cr_assert(eq(str, (char *)names_of(DIR "/.trash-step-00000005"), strerror(ENOENT)));
}

Test(io_s3, an_upload_that_a_dead_process_left_is_seen_and_ended)
{
    struct s3_location at;
    char id[S3_UPLOAD_BYTES];
    struct s3_list list;

    cr_assert(eq(int, s3_location_parse(&at, DIR "/" SAVE "/one", NULL), FSDP_OK));
    cr_assert(eq(int, s3_upload_begin(client, &at, id, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)names_of(DIR), SAVE " "));

    cr_assert(eq(int, commit_clean(io, DIR, 0, NULL, NULL), FSDP_OK));

    cr_assert(eq(int, s3_list_uploads(client, &at, "", &list, NULL), FSDP_OK));
    cr_assert(eq(sz, list.n, 0));
}

Test(io_s3, a_writer_that_gives_up_leaves_neither_object_nor_upload)
{
    struct s3_location at;
    struct s3_list list;
    unsigned char bytes[PART_BYTES] = { 0 };
    const int fd = io->open(io, DIR "/" SAVE "/one", O_WRONLY | O_CREAT, 0666);

    cr_assert(eq(int, (int)io->pwrite(io, fd, bytes, PART_BYTES, PART_BYTES), PART_BYTES));
    cr_assert(eq(int, io->close(io, fd), -1), "it has a hole");

    cr_assert(eq(int, s3_location_parse(&at, DIR, NULL), FSDP_OK));
    cr_assert(eq(int, s3_list_uploads(client, &at, "", &list, NULL), FSDP_OK));
    cr_assert(eq(sz, list.n, 0));
    cr_assert(eq(str, (char *)names_of(DIR), strerror(ENOENT)));
}

/* Each request of a save fails once, in each way: it is sent again, and the result is the same. */
Test(io_s3, one_fault_in_any_request_changes_nothing)
{
    static const char *const ways[] = { "503", "cut", "lost", "short" };

    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int n = 1; n <= 12; n++) {
            fail_at(n, ways[way]);
            cr_assert(eq(int, save_file(SAVE "/one", 2500), 0), "%s of request %d: %s", ways[way], n,
                      file_error_words(errno));
            check_file(SAVE "/one", 2500);
        }
}

/* S3 may begin an answer with status 200, and then fail. */
Test(io_s3, an_upload_has_ended_only_if_the_answer_says_so)
{
    static const char *const ways[] = { "odd", "odder" };

    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int n = 1; n <= 5; n++) {
            char name[64];

            snprintf(name, sizeof name, SAVE "/%s-%d", ways[way], n);
            fail_at(n, ways[way]);
            cr_assert(eq(int, save_file(name, 2500), 0), "%s of request %d: %s", ways[way], n,
                      file_error_words(errno));
            check_file(name, 2500);
        }
}

Test(io_s3, an_answer_before_the_answer_changes_nothing)
{
    for (int n = 1; n <= 6; n++) {
        char name[32];

        snprintf(name, sizeof name, SAVE "/%d", n);
        cr_assert(eq(int, save_file(name, 2500), 0));
        fail_at(n, "early");
        check_file(name, 2500);
    }
}

Test(io_s3, a_server_that_is_silent_is_asked_again)
{
    fail_at(1, "stall");
    cr_assert(eq(int, save_file(SAVE "/one", 10), 0), "%s", file_error_words(errno));
    check_file(SAVE "/one", 10);
}

Test(io_s3, an_error_is_one_line_with_place_status_and_code)
{
    struct fsdp_err err = { 0 };
    int64_t *steps;
    size_t n_steps;

    cr_assert(eq(int, verify_list_steps(io, "s3://missing/a", &steps, &n_steps, &err), FSDP_ERR_IO));
    cr_assert(eq(str, err.message,
                 "list s3://missing/a: GET s3://missing: HTTP status 404, NoSuchBucket: as asked & told"));
    fsdp_err_clear(&err);
    account.endpoint[strlen(account.endpoint) - 1] ^= 1; /* another port */
    s3_client_destroy(client);
    cr_assert(eq(int, s3_client_create(&client, &account, &patience, NULL), FSDP_OK));
    io_s3_use(client, 0);
    cr_assert(eq(int, verify_list_steps(io, DIR, &steps, &n_steps, &err), FSDP_ERR_IO));
    cr_assert_not_null(strstr(err.message, "GET s3://bucket"), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "tried 3 times"), "%s", err.message);
    cr_assert_null(strstr(err.message, "secret"), "%s", err.message);
}

Test(io_s3, what_a_store_refuses_is_not_sent_again)
{
    const struct s3_location at = { .bucket = "bucket", .key = "a" },
                             lost = { .bucket = "missing", .key = "a" };
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, s3_delete(client, &at, NULL), FSDP_OK), "there is no such object");
    cr_assert(eq(int, s3_delete(client, &lost, &err), FSDP_ERR_NOT_FOUND));
    cr_assert(eq(str, err.message, "DELETE s3://missing/a: HTTP status 404, NoSuchBucket: as asked & told"));
}

Test(io_s3, other_paths_are_the_systems)
{
    struct io_stat stat;
    const int fd = io->open(io, "/dev/null", O_RDONLY, 0);

    cr_assert(fd >= 0 && !io_s3_owns(fd));
    cr_assert(eq(int, io->fstat(io, fd, &stat), 0));
    cr_assert(eq(int, stat.kind, IO_OTHER));
    cr_assert(eq(int, io->close(io, fd), 0));
}
