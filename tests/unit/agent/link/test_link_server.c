/* The agent's end of the link, met by hand-made workers over its real sockets. */
#include "agent/link/link_server.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { W = 3 };

static uv_loop_t loop;
static struct link_server *server;
static int worker[W];
static struct {
    int n_saved, n_events, n_broken, n_puts, n_wants, saved_rank, head_fd;
    char event[256], words[256], put[FSDP_LINK_KEY_BYTES], want[FSDP_LINK_KEY_BYTES];
} seen;

static void on_saved(void *arg, int rank, const struct fsdp_link_saved *saved, int manifest_fd)
{
    seen.n_saved++;
    seen.saved_rank = rank;
    seen.head_fd = manifest_fd;
}

static void on_event(void *arg, int rank, const char *json, size_t length)
{
    seen.n_events++;
    snprintf(seen.event, sizeof seen.event, "%.*s", (int)length, json);
}

static void on_broken(void *arg, int rank, const char *words)
{
    seen.n_broken++;
    snprintf(seen.words, sizeof seen.words, "%s", words);
}

static void on_put(void *arg, const char *key, const void *value, size_t size_bytes)
{
    seen.n_puts++;
    snprintf(seen.put, sizeof seen.put, "%s", key);
}

static void on_want(void *arg, const char *key)
{
    seen.n_wants++;
    snprintf(seen.want, sizeof seen.want, "%s", key);
}

struct message {
    struct fsdp_link_header header;
    unsigned char payload[FSDP_LINK_VALUE_BYTES];
    int fd;
};
static struct message message; /* the last that was received, or to be sent */

static void turn(void)
{
    for (int i = 0; i < 4; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static bool receive(int socket)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = { &message, sizeof message.header + sizeof message.payload };
    struct msghdr header = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
    };
    struct cmsghdr *c;
    ssize_t n;

    message.fd = -1;
    turn();
    n = recvmsg(socket, &header, MSG_DONTWAIT);
    if (n <= 0)
        return false;
    c = CMSG_FIRSTHDR(&header);
    if (c != NULL)
        memcpy(&message.fd, CMSG_DATA(c), sizeof message.fd);
    return (size_t)n == sizeof message.header + message.header.size;
}

static bool send_raw(int socket, const void *bytes, size_t size, const int *fds, int n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = { .bytes = { 0 } };
    struct iovec iov = { (void *)bytes, size };
    struct msghdr header = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (n_fds > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.align), fds, (size_t)n_fds * sizeof(int));
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static bool send_message(int socket, int type, uint32_t tag, const void *payload, size_t size, int fd)
{
    message.header = (struct fsdp_link_header){ .magic = FSDP_LINK_MAGIC,
                                                .version = FSDP_LINK_VERSION,
                                                .type = (uint16_t)type,
                                                .tag = tag,
                                                .size = (uint32_t)size };
    memcpy(message.payload, payload, size);
    return send_raw(socket, &message, sizeof message.header + size, &fd, fd >= 0);
}

static bool put(int socket, const char *key, const char *value, int fd)
{
    char payload[FSDP_LINK_KEY_BYTES + 64] = { 0 };

    snprintf(payload, FSDP_LINK_KEY_BYTES, "%s", key);
    snprintf(payload + FSDP_LINK_KEY_BYTES, 64, "%s", value);
    return send_message(socket, FSDP_LINK_PUT, 0, payload, FSDP_LINK_KEY_BYTES + strlen(value), fd);
}

static bool get(int socket, const char *key, uint32_t tag)
{
    struct fsdp_link_get ask = { { 0 } };

    snprintf(ask.key, sizeof ask.key, "%s", key);
    return send_message(socket, FSDP_LINK_GET, tag, &ask, sizeof ask, -1);
}

static bool is_closed(int socket)
{
    char byte;

    turn();
    return recv(socket, &byte, 1, MSG_DONTWAIT) == 0;
}

static void open_links(void)
{
    const struct link_server_handlers handlers = {
        .saved = on_saved, .event = on_event, .broken = on_broken, .put = on_put, .want = on_want
    };

    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(link_server_create(&server, &loop, W, &handlers, NULL), FSDP_OK);
    for (int i = 0; i < W; i++) {
        struct fsdp_link_hello hello = { .rank = (uint32_t)(10 + i), .world_size = 13, .resume_step = 7 };

        cr_assert_eq(link_server_add(server, i, &hello, i == 0 ? "{\"a\": 1}" : NULL, &worker[i], NULL),
                     FSDP_OK);
    }
}

/* Take the greeting off every link. */
static void greet(void)
{
    for (int i = 0; i < W; i++)
        while (receive(worker[i]))
            if (message.fd >= 0)
                close(message.fd);
}

static void close_links(void)
{
    link_server_destroy(server);
    for (int i = 0; i < W; i++)
        if (worker[i] >= 0)
            close(worker[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle is left");
}

TestSuite(link_server, .init = open_links, .fini = close_links, .timeout = 300);

Test(link_server, hello_comes_first_with_the_page_then_the_job)
{
    const struct fsdp_link_hello *hello = (const void *)message.payload;
    struct fsdp_progress *page;
    char text[64] = { 0 };

    cr_assert(receive(worker[0]));
    cr_expect(message.header.type == FSDP_LINK_HELLO && hello->rank == 10 && hello->resume_step == 7);
    page = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, message.fd, 0);
    cr_assert(page != MAP_FAILED);
    cr_expect_eq(page->magic, FSDP_PROGRESS_MAGIC);
    atomic_store(&page->step, 41);
    cr_expect_eq(atomic_load(&link_server_page(server, 0)->step), 41, "it is one page");
    cr_expect(ftruncate(message.fd, 0) < 0, "nobody can cut it under the agent");
    munmap(page, FSDP_PROGRESS_BYTES);
    close(message.fd);
    cr_assert(receive(worker[0]));
    cr_expect_eq(message.header.type, FSDP_LINK_JOB);
    cr_expect_eq(pread(message.fd, text, sizeof text, 0), 8);
    cr_expect_str_eq(text, "{\"a\": 1}");
    cr_expect(write(message.fd, "x", 1) < 0, "it is sealed");
    close(message.fd);
    cr_assert(receive(worker[1]));
    close(message.fd);
    cr_expect_not(receive(worker[1]), "a program gets no job");
}

Test(link_server, a_value_and_its_descriptor_reach_who_asks_before_and_after)
{
    struct stat mine, theirs;
    int fd = memfd_create("shared", MFD_CLOEXEC);

    greet();
    cr_assert(get(worker[1], "key", 5));
    cr_expect_not(receive(worker[1]), "it waits");
    cr_assert(put(worker[0], "key", "value", fd));
    cr_assert(receive(worker[1]));
    cr_expect(message.header.type == FSDP_LINK_VALUE && message.header.tag == 5 && message.header.size == 5);
    cr_expect_eq(memcmp(message.payload, "value", 5), 0);
    cr_assert(message.fd >= 0 && fstat(fd, &mine) == 0 && fstat(message.fd, &theirs) == 0);
    cr_expect_eq(mine.st_ino, theirs.st_ino);
    close(message.fd);
    cr_assert(get(worker[2], "key", 6));
    cr_assert(receive(worker[2]));
    cr_expect(message.header.tag == 6 && message.fd >= 0);
    close(message.fd);
    close(fd);
    cr_expect_eq(seen.n_puts, 0, "a descriptor is of use on this host alone");
}

Test(link_server, other_nodes_are_asked_once_for_a_key_and_told_what_is_put_here)
{
    greet();
    cr_assert(get(worker[0], "far", 1) && get(worker[1], "far", 2) && get(worker[0], "far", 3));
    turn();
    cr_expect(seen.n_wants == 1 && strcmp(seen.want, "far") == 0);
    cr_assert(put(worker[2], "near", "value", -1));
    cr_assert(get(worker[0], "near", 4));
    turn();
    cr_expect(seen.n_puts == 1 && strcmp(seen.put, "near") == 0);
    cr_expect_eq(seen.n_wants, 1, "it is here");
}

Test(link_server, another_nodes_key_answers_too_and_is_not_told_again)
{
    greet();
    cr_assert(get(worker[0], "far", 9));
    turn();
    cr_expect_eq(link_server_put(server, "far", "x", 1, NULL), FSDP_OK);
    cr_assert(receive(worker[0]));
    cr_expect(message.header.tag == 9 && message.fd == -1);
    cr_expect_eq(link_server_put(server, "far", "y", 1, NULL), FSDP_ERR_ARG);
    cr_expect_eq(seen.n_puts, 0);
}

Test(link_server, abort_sets_every_page_and_is_sent_once)
{
    const struct fsdp_link_notice *notice = (const void *)message.payload;

    greet();
    link_server_abort(server);
    link_server_abort(server);
    for (int i = 0; i < W; i++) {
        cr_expect_neq(atomic_load(&link_server_page(server, i)->abort_word), 0);
        cr_assert(receive(worker[i]));
        cr_expect(message.header.type == FSDP_LINK_NOTICE && notice->kind == FSDP_NOTICE_ABORT);
        cr_expect_not(receive(worker[i]));
    }
}

Test(link_server, events_and_saves_come_with_their_rank_even_after_death)
{
    const struct fsdp_link_saved saved = { .step = 3, .temporary = "t", .file = "f" };
    int fd = memfd_create("head", MFD_CLOEXEC);

    greet();
    cr_assert(send_message(worker[2], FSDP_LINK_EVENT, 0, "{\"event\": \"x\"}", 14, -1));
    cr_assert(send_message(worker[2], FSDP_LINK_SAVED, 0, &saved, sizeof saved, fd));
    close(worker[2]);
    worker[2] = -1;
    link_server_drop(server, 2);
    cr_expect_eq(seen.n_events, 1);
    cr_expect_str_eq(seen.event, "{\"event\": \"x\"}");
    cr_expect(seen.n_saved == 1 && seen.saved_rank == 12 && seen.head_fd >= 0);
    cr_expect_eq(seen.n_broken, 0, "dying is no fault of the protocol");
    close(seen.head_fd);
    close(fd);
}

Test(link_server, a_worker_that_does_not_read_is_cut_off_and_the_others_go_on)
{
    static char value[FSDP_LINK_VALUE_BYTES] = "big";

    greet();
    cr_assert(send_message(worker[0], FSDP_LINK_PUT, 0, value, sizeof value, -1));
    turn();
    for (int i = 0; i < 1000 && seen.n_broken == 0; i++) {
        get(worker[1], "big", (uint32_t)i);
        turn();
    }
    cr_expect_eq(seen.n_broken, 1);
    cr_assert(get(worker[2], "big", 77));
    cr_assert(receive(worker[2]));
    cr_expect_eq(message.header.tag, 77);
}

Test(link_server, more_answers_than_the_socket_holds_arrive_as_they_are_read)
{
    static char value[FSDP_LINK_VALUE_BYTES] = "big";
    int n = 0;

    greet();
    cr_assert(send_message(worker[0], FSDP_LINK_PUT, 0, value, sizeof value, -1));
    for (int i = 0; i < 40; i++)
        cr_assert(get(worker[1], "big", (uint32_t)i));
    while (receive(worker[1]))
        cr_assert_eq(message.header.tag, (uint32_t)n++, "in order");
    cr_expect_eq(n, 40);
    cr_expect_eq(seen.n_broken, 0);
}

/* Whatever a worker sends that is not the protocol closes its link, and only its. */
#define OURS FSDP_LINK_MAGIC, FSDP_LINK_VERSION
static const struct {
    const char *name;
    uint32_t magic;
    uint16_t version, type;
    int size_off; /* added to the true size */
    size_t payload;
    int n_fds;
    const char *text;
} wrong[] = {
    { "magic", 1, FSDP_LINK_VERSION, FSDP_LINK_EVENT, 0, 2, 0, "{}" },
    { "version", FSDP_LINK_MAGIC, 99, FSDP_LINK_EVENT, 0, 2, 0, "{}" },
    { "type", OURS, 77, 0, 2, 0, "{}" },
    { "a type of the agent's", OURS, FSDP_LINK_HELLO, 0, 2, 0, "{}" },
    { "size too large", OURS, FSDP_LINK_EVENT, 1, 2, 0, "{}" },
    { "size too small", OURS, FSDP_LINK_EVENT, -1, 2, 0, "{}" },
    { "an event too long", OURS, FSDP_LINK_EVENT, 0, FSDP_LINK_EVENT_BYTES + 1, 0, "{}" },
    { "a put without room for a key", OURS, FSDP_LINK_PUT, 0, 4, 0, "key" },
    { "a put with an empty key", OURS, FSDP_LINK_PUT, 0, FSDP_LINK_KEY_BYTES, 0, "" },
    { "a get with more than a key", OURS, FSDP_LINK_GET, 0, FSDP_LINK_KEY_BYTES + 1, 0, "k" },
    { "a short report", OURS, FSDP_LINK_SAVED, 0, sizeof(struct fsdp_link_saved) - 1, 0, "" },
    { "two descriptors", OURS, FSDP_LINK_EVENT, 0, 2, 2, "{}" },
};

Test(link_server, what_is_not_the_protocol_closes_that_link_only)
{
    const int fds[2] = { 0, 1 };

    close_links();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memset(&seen, 0, sizeof seen);
        open_links();
        greet();
        memset(&message, 0, sizeof message);
        message.header =
            (struct fsdp_link_header){ .magic = wrong[i].magic,
                                       .version = wrong[i].version,
                                       .type = wrong[i].type,
                                       .size = (uint32_t)((int)wrong[i].payload + wrong[i].size_off) };
        memcpy(message.payload, wrong[i].text, strlen(wrong[i].text));
        cr_assert(
            send_raw(worker[1], &message, sizeof message.header + wrong[i].payload, fds, wrong[i].n_fds));
        cr_expect(is_closed(worker[1]), "%s", wrong[i].name);
        cr_expect_eq(seen.n_broken, 1, "%s", wrong[i].name);
        cr_assert(put(worker[0], "still", "here", -1) && get(worker[2], "still", 1));
        cr_expect(receive(worker[2]), "%s: the others go on", wrong[i].name);
        close_links();
    }
    open_links();
}

Test(link_server, a_key_put_twice_closes_the_link)
{
    greet();
    cr_assert(put(worker[0], "key", "1", -1) && put(worker[1], "key", "2", -1));
    cr_expect(is_closed(worker[1]));
    cr_expect(strstr(seen.words, "key") != NULL, "%s", seen.words);
}
