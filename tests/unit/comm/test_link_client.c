/*
 * The worker's end of the link, with the agent played by the test: it holds the other end of the socket pair and
 * lays out packets before they are read (tags count from 1), so that every order of events is exact.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/comm/link_client.h"

static int agent = -1;  /* the test's end */
static int worker = -1; /* the end named in the environment */
static struct fsdp_err err;

static void start(void)
{
    int ends[2];
    char text[16];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    agent = ends[0];
    worker = ends[1];
    snprintf(text, sizeof text, "%d", worker);
    setenv(FSDP_LINK_FD_ENV, text, 1);
}

static int file_of(const void *bytes, size_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    return fd;
}

static int page(void)
{
    int fd = memfd_create("page", MFD_CLOEXEC);

    cr_assert(fd >= 0 && ftruncate(fd, FSDP_PROGRESS_BYTES) == 0);
    return fd;
}

static void say_raw(const struct fsdp_link_header *header, const void *payload, size_t size, const int *fds,
                    int n_fds)
{
    struct iovec parts[2] = { { (void *)header, sizeof *header }, { (void *)payload, size } };
    char control[CMSG_SPACE(8 * sizeof(int))] __attribute__((aligned(8))) = { 0 };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

    if (n_fds > 0) {
        struct cmsghdr *c = (struct cmsghdr *)control;

        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n_fds * sizeof(int));
    }
    cr_assert(sendmsg(agent, &message, MSG_NOSIGNAL) >= 0, "%s", strerror(errno));
}

/* `fd` is closed: it is the worker's now. */
static void say(int type, uint32_t tag, const void *payload, size_t size, int fd)
{
    const struct fsdp_link_header header = { FSDP_LINK_MAGIC, FSDP_LINK_VERSION, (uint16_t)type, tag,
                                             (uint32_t)size };

    say_raw(&header, payload, size, &fd, fd >= 0);
    if (fd >= 0)
        close(fd);
}

static struct fsdp_link_hello two_ranks(void)
{
    return (struct fsdp_link_hello){ .rank = 1,
                                     .world_size = 2,
                                     .local_rank = 1,
                                     .local_world_size = 2,
                                     .n_nodes = 1,
                                     .generation = 3,
                                     .threads = 1,
                                     .resume_step = 7,
                                     .run_dir = "/r",
                                     .node_address = "127.0.0.1" };
}

static void say_hello(void)
{
    const struct fsdp_link_hello hello = two_ranks();

    say(FSDP_LINK_HELLO, 0, &hello, sizeof hello, page());
}

static struct link *opened(void)
{
    struct link *link = NULL;

    start();
    say_hello();
    cr_assert_eq(link_open(&link, &err), FSDP_OK, "%s", err.message);
    return link;
}

/* What the worker sent: payload length; header and payload are filled in. */
static size_t heard(struct fsdp_link_header *header, void *payload, size_t room, int *fd)
{
    struct iovec parts[2] = { { header, sizeof *header }, { payload, room } };
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control
    };
    ssize_t n = recvmsg(agent, &message, MSG_DONTWAIT);

    cr_assert(n >= (ssize_t)sizeof *header, "nothing was sent");
    cr_assert_eq(header->magic, FSDP_LINK_MAGIC);
    cr_assert_eq(header->version, FSDP_LINK_VERSION);
    cr_assert_eq(header->size, (size_t)n - sizeof *header);
    if (fd != NULL) {
        *fd = -1;
        if (message.msg_controllen > 0)
            memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *fd);
    }
    return (size_t)n - sizeof *header;
}

static void say_notice(uint32_t kind, int64_t step)
{
    const struct fsdp_link_notice notice = { .kind = kind, .stop_after_step = step };

    say(FSDP_LINK_NOTICE, 0, &notice, sizeof notice, -1);
}

static void say_published(int64_t step, uint32_t status)
{
    const struct fsdp_link_published published = { .step = step, .status = status, .words = "w" };

    say(FSDP_LINK_PUBLISHED, 0, &published, sizeof published, -1);
}

static int n_open_descriptors(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* --- hello and job --------------------------------------------------------------------------------------- */

Test(link_client, hello_and_job_are_read_and_the_environment_is_cleared)
{
    const char job[] = "{\"run\": {}}";
    struct link *link = NULL;
    size_t length = 0;

    start();
    say_hello();
    say(FSDP_LINK_JOB, 0, NULL, 0, file_of(job, sizeof job - 1));
    cr_assert_eq(link_open(&link, &err), FSDP_OK, "%s", err.message);

    cr_assert_eq(link_hello(link)->rank, 1);
    cr_assert_eq(link_hello(link)->resume_step, 7);
    cr_assert_str_eq(link_job(link, &length), job);
    cr_assert_eq(length, sizeof job - 1);
    cr_assert_not(link_alone(link));
    cr_assert_eq(link_fd(link), worker);
    cr_assert_null(getenv(FSDP_LINK_FD_ENV));
    cr_assert(fcntl(worker, F_GETFD) & FD_CLOEXEC);
    link_close(link);
}

Test(link_client, without_a_job_there_is_none)
{
    struct link *link = opened();
    size_t length = 1;

    cr_assert_null(link_job(link, &length));
    cr_assert_eq(length, 0);
    link_close(link);
}

Test(link_client, the_progress_page_is_the_agents_file)
{
    const struct fsdp_link_hello hello = two_ranks();
    int fd = page();
    struct fsdp_progress *seen = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    struct link *link = NULL;

    start();
    say(FSDP_LINK_HELLO, 0, &hello, sizeof hello, fd);
    cr_assert_eq(link_open(&link, &err), FSDP_OK, "%s", err.message);
    atomic_store(&link_progress(link)->step, 5);

    cr_assert_eq(atomic_load(&seen->step), 5);
    cr_assert_eq(seen->magic, FSDP_PROGRESS_MAGIC);
    link_close(link);
    munmap(seen, FSDP_PROGRESS_BYTES);
}

/* Each way in which a first packet is no hello; `why` is a part of the message. */
static void refuse(const char *why, enum fsdp_status expected)
{
    struct link *link = (struct link *)1;
    int before;

    err = (struct fsdp_err){ 0 };
    before = n_open_descriptors();
    cr_assert_eq(link_open(&link, &err), expected, "%s: %s", why, err.message);
    cr_assert_null(link);
    cr_assert_not_null(strstr(err.message, why), "'%s' is not in: %s", why, err.message);
    cr_assert_leq(n_open_descriptors(), before);
    close(agent);
}

Test(link_client, what_is_no_hello_is_refused)
{
    struct fsdp_link_hello hello = two_ranks();
    struct fsdp_link_header header = { FSDP_LINK_MAGIC, FSDP_LINK_VERSION, FSDP_LINK_HELLO, 0, sizeof hello };
    int fds[8];

    start();
    close(agent);
    refuse("is gone", FSDP_ERR_PEER);
    start();
    say_raw(&(struct fsdp_link_header){ 1, 1, 1, 0, 0 }, NULL, 0, NULL, 0);
    refuse("not of the link's", FSDP_ERR_FORMAT);
    start();
    header.version++;
    say_raw(&header, &hello, sizeof hello, NULL, 0);
    refuse("version 2", FSDP_ERR_FORMAT);
    header.version--;
    start();
    header.size++;
    say_raw(&header, &hello, sizeof hello, NULL, 0);
    refuse("size is not", FSDP_ERR_FORMAT);
    header.size--;
    start();
    say(FSDP_LINK_HELLO, 0, &hello, sizeof hello - 1, page());
    refuse("not this version's hello", FSDP_ERR_FORMAT);
    start();
    say(FSDP_LINK_NOTICE, 0, &hello, sizeof hello, page());
    refuse("not this version's hello", FSDP_ERR_FORMAT);
    start();
    say(FSDP_LINK_HELLO, 0, &hello, sizeof hello, -1);
    refuse("without a progress page", FSDP_ERR_FORMAT);
    start();
    say(FSDP_LINK_HELLO, 0, &hello, sizeof hello, file_of("x", 1));
    refuse("without a progress page", FSDP_ERR_FORMAT);
    start();
    cr_assert_eq(send(agent, "abc", 3, 0), 3);
    refuse("not of the link's", FSDP_ERR_FORMAT);
    start();
    for (int i = 0; i < 8; i++)
        fds[i] = page();
    say_raw(&header, &hello, sizeof hello, fds, 8);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    refuse("too many descriptors", FSDP_ERR_FORMAT);
    start();
    fds[0] = page(), fds[1] = page();
    say_raw(&header, &hello, sizeof hello, fds, 2);
    close(fds[0]), close(fds[1]);
    refuse("too many descriptors", FSDP_ERR_FORMAT);
}

Test(link_client, a_hello_whose_numbers_cannot_be_is_refused)
{
    struct fsdp_link_hello bad[10];

    for (int i = 0; i < 10; i++)
        bad[i] = two_ranks();
    bad[0].world_size = 0;
    bad[1].rank = 2;
    bad[2].local_world_size = 0;
    bad[3].local_world_size = 3;
    bad[4].local_rank = 2;
    bad[5].n_nodes = 0;
    bad[6].node_rank = 1;
    bad[7].threads = 0;
    memset(bad[8].run_dir, 'x', sizeof bad[8].run_dir);
    memset(bad[9].node_address, 'x', sizeof bad[9].node_address);
    for (int i = 0; i < 10; i++) {
        start();
        say(FSDP_LINK_HELLO, 0, &bad[i], sizeof bad[i], page());
        refuse("ranks that cannot be", FSDP_ERR_FORMAT);
    }
}

Test(link_client, a_job_that_is_no_file_is_refused)
{
    int ends[2];

    start();
    say_hello();
    say(FSDP_LINK_JOB, 0, NULL, 0, -1);
    refuse("a job packet that is not one", FSDP_ERR_FORMAT);
    start();
    say_hello();
    say(FSDP_LINK_JOB, 0, "x", 1, page());
    refuse("a job packet that is not one", FSDP_ERR_FORMAT);
    start();
    say_hello();
    say(FSDP_LINK_JOB, 0, NULL, 0, page());
    say(FSDP_LINK_JOB, 0, NULL, 0, page());
    refuse("a job packet that is not one", FSDP_ERR_FORMAT);
    start();
    say_hello();
    ends[0] = memfd_create("huge", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(ends[0], 1LL << 40), 0);
    say(FSDP_LINK_JOB, 0, NULL, 0, ends[0]);
    refuse("sensible size", FSDP_ERR_FORMAT);
}

Test(link_client, an_environment_that_names_no_link_is_refused)
{
    static const char *const texts[] = { "", "x", "3x", "-1", "99999999999999999999", "1000" };
    char text[16];
    int pipe_ends[2];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv(FSDP_LINK_FD_ENV, texts[i], 1);
        refuse(FSDP_LINK_FD_ENV, FSDP_ERR_FORMAT);
    }
    cr_assert_eq(pipe(pipe_ends), 0);
    snprintf(text, sizeof text, "%d", pipe_ends[0]);
    setenv(FSDP_LINK_FD_ENV, text, 1);
    refuse("is not a link", FSDP_ERR_FORMAT);
}

/* --- put and get ----------------------------------------------------------------------------------------- */

Test(link_client, put_sends_key_value_and_descriptor)
{
    struct link *link = opened();
    struct {
        struct fsdp_link_put put;
        char value[64];
    } got;
    struct fsdp_link_header header;
    char text[8] = "";
    int fd = file_of("abc", 3), came;

    cr_assert_eq(link_put(link, "k/1", "hello", 5, fd, &err), FSDP_OK);

    cr_assert_eq(heard(&header, &got, sizeof got, &came), sizeof got.put + 5);
    cr_assert_eq(header.type, FSDP_LINK_PUT);
    cr_assert_str_eq(got.put.key, "k/1");
    cr_assert_eq(memcmp(got.value, "hello", 5), 0);
    cr_assert_eq(pread(came, text, 3, 0), 3);
    cr_assert_str_eq(text, "abc");
    close(came);
    close(fd);
    link_close(link);
}

Test(link_client, get_returns_the_value_and_its_descriptor)
{
    struct link *link = opened();
    struct fsdp_link_header header;
    struct fsdp_link_get get;
    char value[64], text[4] = "";
    size_t size = sizeof value;
    int fd;

    say(FSDP_LINK_VALUE, 1, "world", 5, file_of("xyz", 3));
    cr_assert_eq(link_get(link, "k", value, &size, &fd, &err), FSDP_OK, "%s", err.message);

    cr_assert_eq(size, 5);
    cr_assert_eq(memcmp(value, "world", 5), 0);
    cr_assert_eq(pread(fd, text, 3, 0), 3);
    cr_assert_str_eq(text, "xyz");
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    heard(&header, &get, sizeof get, NULL);
    cr_assert_eq(header.type, FSDP_LINK_GET);
    cr_assert_eq(header.tag, 1);
    cr_assert_str_eq(get.key, "k");
    close(fd);
    link_close(link);
}

Test(link_client, a_value_of_the_largest_size_travels_both_ways)
{
    struct link *link = opened();
    char *value = malloc(FSDP_LINK_VALUE_BYTES + 1), *back = malloc(FSDP_LINK_VALUE_BYTES + 200);
    struct fsdp_link_header header;
    size_t size = FSDP_LINK_VALUE_BYTES;

    memset(value, 'v', FSDP_LINK_VALUE_BYTES + 1);
    cr_assert_eq(link_put(link, "k", value, FSDP_LINK_VALUE_BYTES, -1, &err), FSDP_OK);
    cr_assert_eq(heard(&header, back, FSDP_LINK_VALUE_BYTES + 200, NULL),
                 sizeof(struct fsdp_link_put) + FSDP_LINK_VALUE_BYTES);
    say(FSDP_LINK_VALUE, 1, value, FSDP_LINK_VALUE_BYTES, -1);
    cr_assert_eq(link_get(link, "k", back, &size, NULL, &err), FSDP_OK);
    cr_assert_eq(size, FSDP_LINK_VALUE_BYTES);
    cr_assert_eq(memcmp(back, value, size), 0);

    say(FSDP_LINK_VALUE, 2, value, FSDP_LINK_VALUE_BYTES + 1, -1);
    cr_assert_eq(link_get(link, "k", back, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "too long"));
    link_close(link);
    free(value);
    free(back);
}

Test(link_client, keys_and_values_out_of_bounds_are_refused_and_not_sent)
{
    struct link *link = opened();
    char key[FSDP_LINK_KEY_BYTES + 1], value[4];
    size_t size = sizeof value;
    int n_before = n_open_descriptors();

    memset(key, 'k', sizeof key);
    key[FSDP_LINK_KEY_BYTES] = '\0';
    cr_assert_eq(link_put(link, key, "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "", "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, NULL, "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "k", NULL, 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "k", "v", FSDP_LINK_VALUE_BYTES + 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "k", "v", 1, 9999, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_get(link, key, value, &size, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(recv(agent, value, 1, MSG_DONTWAIT), -1);

    key[FSDP_LINK_KEY_BYTES - 1] = '\0';
    cr_assert_eq(link_put(link, key, "v", 1, -1, &err), FSDP_OK, "the longest key");
    say(FSDP_LINK_VALUE, 1, "12345", 5, page());
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_eq(n_open_descriptors(), n_before);
    link_close(link);
}

Test(link_client, packets_of_other_kinds_that_come_first_are_kept)
{
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct link *link = opened();
    char value[8];
    size_t size = sizeof value;

    say_published(20, FSDP_OK);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, 30);
    say(FSDP_LINK_VALUE, 99, "old", 3, page()); /* the answer to a question nobody asks any more */
    say_published(10, FSDP_ERR_IO);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, 31);
    say(FSDP_LINK_VALUE, 1, "v", 1, -1);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_OK);

    cr_assert_eq(link_published(link, 10, &published, &err), FSDP_OK);
    cr_assert_eq(published.status, FSDP_ERR_IO);
    cr_assert_eq(link_published(link, 20, &published, &err), FSDP_OK);
    cr_assert_eq(published.status, FSDP_OK);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(notice.stop_after_step, 30);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(notice.stop_after_step, 31);
    cr_assert_not(link_poll_notice(link, &notice));
    link_close(link);
}

/* --- the end of things ----------------------------------------------------------------------------------- */

Test(link_client, a_hang_up_ends_every_wait)
{
    struct fsdp_link_published published;
    struct fsdp_link_saved saved = { .step = 1 };
    struct fsdp_link_notice notice;
    char value[8];
    size_t size = sizeof value;

    for (int point = 0; point < 6; point++) {
        struct link *link = opened();
        enum fsdp_status status = FSDP_OK;

        close(agent);
        switch (point) {
        case 0:
            status = link_put(link, "k", "v", 1, -1, &err);
            break;
        case 1:
            status = link_get(link, "k", value, &size, NULL, &err);
            break;
        case 2:
            status = link_event(link, "{}", &err);
            break;
        case 3:
            status = link_saved(link, &saved, -1, &err);
            break;
        case 4:
            status = link_published(link, 1, &published, &err);
            break;
        case 5:
            status = link_check(link, &err);
            break;
        }
        cr_assert_eq(status, FSDP_ERR_PEER, "point %d: %s", point, err.message);
        cr_assert_eq(link_check(link, &err), FSDP_ERR_PEER, "it sticks");
        cr_assert_not(link_poll_notice(link, &notice));
        link_close(link);
    }
}

Test(link_client, what_came_before_a_hang_up_is_not_lost)
{
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct link *link = opened();
    char value[8];
    size_t size = sizeof value;

    say(FSDP_LINK_VALUE, 1, "v", 1, -1);
    say_published(4, FSDP_OK);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, -1);
    shutdown(agent, SHUT_WR);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_OK);
    cr_assert_eq(link_published(link, 4, &published, &err), FSDP_OK);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(link_check(link, &err), FSDP_ERR_PEER);
    close(agent);
    link_close(link);
}

Test(link_client, an_abort_ends_every_wait_and_is_still_a_notice)
{
    struct fsdp_link_notice notice;
    struct link *link = opened();
    char value[8];
    size_t size = sizeof value;

    say_notice(FSDP_NOTICE_ABORT, 0);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_PEER);
    cr_assert_not_null(strstr(err.message, "waiting for k"), "%s", err.message);
    cr_assert_eq(link_check(link, &err), FSDP_ERR_PEER);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(notice.kind, FSDP_NOTICE_ABORT);
    link_close(link);
}

Test(link_client, the_abort_word_ends_a_wait_without_a_packet)
{
    struct link *link = opened();
    char value[8];
    size_t size = sizeof value;

    atomic_store(&link_progress(link)->abort_word, 1);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_PEER);
    link_close(link);
}

Test(link_client, packets_that_workers_do_not_get_break_the_link)
{
    static const int types[] = {
        0, FSDP_LINK_HELLO, FSDP_LINK_PUT, FSDP_LINK_GET, FSDP_LINK_EVENT, FSDP_LINK_SAVED, 77
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct link *link = opened();

        say(types[i], 0, NULL, 0, -1);
        cr_assert_eq(link_check(link, &err), FSDP_ERR_FORMAT, "type %d", types[i]);
        close(agent);
        link_close(link);
    }
    for (int type = FSDP_LINK_PUBLISHED; type <= FSDP_LINK_NOTICE; type++) {
        struct link *link = opened();

        say(type, 0, "123", 3, -1);
        cr_assert_eq(link_check(link, &err), FSDP_ERR_FORMAT, "type %d", type);
        close(agent);
        link_close(link);
    }
}

Test(link_client, events_and_saves_are_sent_as_they_are)
{
    struct fsdp_link_saved saved = { .step = 9, .file = "f" }, got;
    struct link *link = opened();
    struct fsdp_link_header header;
    char text[FSDP_LINK_EVENT_BYTES + 2];
    int fd = file_of("m", 1), came;

    cr_assert_eq(link_event(link, "{\"event\": \"resume\"}", &err), FSDP_OK);
    cr_assert_eq(heard(&header, text, sizeof text, NULL), 19);
    cr_assert_eq(header.type, FSDP_LINK_EVENT);
    memset(text, ' ', sizeof text);
    text[0] = '{', text[sizeof text - 2] = '}', text[sizeof text - 1] = '\0';
    cr_assert_eq(link_event(link, text, &err), FSDP_ERR_ARG, "too long");
    cr_assert_eq(link_event(link, "[1]", &err), FSDP_ERR_ARG, "no object");
    cr_assert_eq(link_event(link, NULL, &err), FSDP_ERR_ARG);

    cr_assert_eq(link_saved(link, &saved, fd, &err), FSDP_OK);
    cr_assert_eq(heard(&header, &got, sizeof got, &came), sizeof got);
    cr_assert_eq(header.type, FSDP_LINK_SAVED);
    cr_assert_eq(memcmp(&got, &saved, sizeof got), 0);
    cr_assert(came >= 0);
    close(came);
    close(fd);
    link_close(link);
}

/* --- a world of one -------------------------------------------------------------------------------------- */

Test(link_client, without_an_agent_a_process_is_a_world_of_one)
{
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct fsdp_link_saved saved = { .step = 1 };
    struct link *link = NULL;
    char value[16], text[2];
    size_t size = sizeof value;
    int fd = file_of("q", 1), back = -1, n_before;

    unsetenv(FSDP_LINK_FD_ENV);
    cr_assert_eq(link_open(&link, &err), FSDP_OK);
    cr_assert(link_alone(link));
    cr_assert_eq(link_fd(link), -1);
    cr_assert_eq(link_hello(link)->world_size, 1);
    cr_assert_eq(link_hello(link)->resume_step, -1);
    cr_assert_null(link_job(link, NULL));
    cr_assert_eq(link_progress(link)->magic, FSDP_PROGRESS_MAGIC);

    n_before = n_open_descriptors();
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_NOT_FOUND);
    cr_assert_eq(link_put(link, "k", "v", 1, fd, &err), FSDP_OK);
    cr_assert_eq(link_put(link, "k", "v", 1, fd, &err), FSDP_ERR_ARG, "a key is put once");
    cr_assert_eq(link_get(link, "k", value, &size, &back, &err), FSDP_OK);
    cr_assert_eq(size, 1);
    cr_assert_eq(pread(back, text, 1, 0), 1);
    close(back);
    size = 0;
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_eq(n_open_descriptors(), n_before + 1, "the one that is kept");

    cr_assert_eq(link_event(link, "{}", &err), FSDP_OK);
    cr_assert_eq(link_check(link, &err), FSDP_OK);
    cr_assert_not(link_poll_notice(link, &notice));
    cr_assert_eq(link_saved(link, &saved, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_published(link, 1, &published, &err), FSDP_ERR_ARG);
    link_close(link);
    cr_assert_eq(n_open_descriptors(), n_before);
    close(fd);
    link_close(NULL);
}
