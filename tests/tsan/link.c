/*
 * Links libfsdp.
 *
 * One link, three threads under the thread sanitizer. One looks at the link as a collective does while it
 * waits. One puts and gets. One polls for notices, and sees each once.
 */
#include <fsdp/context.h>
#include <pthread.h>
#include <sched.h>

#include "shard_runtime/comm/link_client.h"
#include "tests/support/fakes/mini_agent.h"

enum { ROUNDS = 500 };

static struct link *link_;
static _Atomic int n_over;

static void require(bool good, const char *words)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", words);
    exit(1);
}

static void *look(void *user)
{
    (void)user;
    while (n_over == 0)
        require(link_check(link_, NULL) == FSDP_OK, "the link broke");
    return NULL;
}

static void *put_and_get(void *user)
{
    char key[32], value[8];

    (void)user;
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = sizeof value;

        snprintf(key, sizeof key, "key %d", i);
        require(link_put(link_, key, "x", 1, -1, NULL) == FSDP_OK, "put");
        require(link_get(link_, key, value, &size, NULL, NULL) == FSDP_OK && size == 1, "get");
    }
    return NULL;
}

/* The agent: answers each get, after a notice. */
static void *answer(void *user)
{
    struct {
        struct fsdp_link_header header;
        char payload[512];
    } packet;
    const int fd = *(const int *)user;

    for (int n = 0; n < ROUNDS;) {
        const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_SAVE_AND_STOP, .stop_after_step = n };

        require(recv(fd, &packet, sizeof packet, 0) > 0, "no packet");
        if (packet.header.type != FSDP_LINK_GET)
            continue;
        require(mini_send(fd, FSDP_LINK_NOTICE, 0, &notice, sizeof notice, -1) &&
                    mini_send(fd, FSDP_LINK_VALUE, packet.header.tag, "x", 1, -1),
                "no answer");
        n++;
    }
    return NULL;
}

static void open_link(int ends[2])
{
    const struct fsdp_link_hello hello = {
        .world_size = 1, .local_world_size = 1, .n_nodes = 1, .threads = 1, .node_address = "127.0.0.1"
    };
    const int page = memfd_create("page", MFD_CLOEXEC);
    char text[16];

    require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no sockets");
    require(page >= 0 && ftruncate(page, FSDP_PROGRESS_BYTES) == 0, "no page");
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv(FSDP_LINK_FD_ENV, text, 1);
    require(mini_send(ends[0], FSDP_LINK_HELLO, 0, &hello, sizeof hello, page), "no hello");
    close(page);
    require(link_open(&link_, NULL) == FSDP_OK, "no link");
}

int main(void)
{
    void *(*const bodies[])(void *user) = { look, put_and_get, answer };
    struct fsdp_link_notice notice;
    pthread_t threads[3];
    int ends[2];

    open_link(ends);
    for (int i = 0; i < 3; i++)
        require(pthread_create(&threads[i], NULL, bodies[i], &ends[0]) == 0, "no thread");
    for (int n = 0; n < ROUNDS; n++) {
        while (!link_poll_notice(link_, &notice))
            sched_yield();
        require(notice.stop_after_step == n, "notices out of order, lost or twice");
    }
    n_over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    link_close(link_);
    close(ends[0]);
    return 0;
}
