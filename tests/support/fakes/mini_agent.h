/*
 * An agent small enough for tests: it forks W ranks of a function, spread over any number of pretended nodes
 * of this machine. It serves their put and get until all have ended. Descriptors reach ranks of the same node
 * only.
 */
#ifndef TESTS_MINI_AGENT_H
#define TESTS_MINI_AGENT_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fsdp/link.h>

enum { MINI_RANKS = 64, MINI_KEYS = 1024, MINI_ASKED = 4096 };

struct mini_value {
    char key[FSDP_LINK_KEY_BYTES];
    int node, fd;
    size_t size;
    char *bytes;
};

struct mini_asked {
    int rank;
    uint32_t tag;
    char key[FSDP_LINK_KEY_BYTES];
};

struct mini_agent {
    int W, n_nodes;
    bool abort_on_death; /* as a real agent: the others are told */
    bool bad_token;      /* every rank gets a token of its own */
    void (*on_event)(struct mini_agent *agent, int rank, const char *text);
    /* before others see it */
    void (*on_put)(struct mini_agent *agent, int rank, const char *key, const char *value);
    /* Optional: called in each turn; returns how long the next may wait, -1 for ever. */
    int (*next_ms)(struct mini_agent *agent);
    /*
     * Optional, in place of a process. The first starts a thread for rank `rank`, which owns the link's end
     * `fd`. The second waits for the thread, whose link is closed, and returns its status.
     */
    void (*start)(struct mini_agent *agent, int rank, int fd);
    int (*join)(struct mini_agent *agent, int rank);
    void *user;

    pid_t pids[MINI_RANKS];
    int socks[MINI_RANKS];    /* -1: has ended */
    int statuses[MINI_RANKS]; /* of waitpid */
    double ended_s[MINI_RANKS];
    struct fsdp_progress *pages[MINI_RANKS];
    struct mini_value values[MINI_KEYS];
    int n_values;
    struct mini_asked asked[MINI_ASKED];
    int n_asked;
};

static inline double mini_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void mini_die(const char *what)
{
    fprintf(stderr, "mini agent: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static inline bool mini_send(int sock, int type, uint32_t tag, const void *payload, size_t size, int fd)
{
    struct fsdp_link_header header = { FSDP_LINK_MAGIC, FSDP_LINK_VERSION, (uint16_t)type, tag,
                                       (uint32_t)size };
    struct iovec parts[2] = { { &header, sizeof header }, { (void *)payload, size } };
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

    if (fd >= 0) {
        struct cmsghdr *c = (struct cmsghdr *)control;

        message.msg_control = control;
        message.msg_controllen = sizeof control;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(sock, &message, MSG_NOSIGNAL) >= 0;
}

static inline int mini_node(const struct mini_agent *agent, int rank)
{
    return rank / (agent->W / agent->n_nodes);
}

static inline void mini_answer(struct mini_agent *agent, const struct mini_value *value, int rank,
                               uint32_t tag)
{
    int fd = value->node == mini_node(agent, rank) ? value->fd : -1;

    if (agent->socks[rank] >= 0)
        mini_send(agent->socks[rank], FSDP_LINK_VALUE, tag, value->bytes, value->size, fd);
}

static inline void mini_put(struct mini_agent *agent, int rank, const char *payload, size_t size, int fd)
{
    struct mini_value *value = &agent->values[agent->n_values++];

    if (agent->n_values > MINI_KEYS)
        mini_die("too many keys");
    memcpy(value->key, payload, sizeof value->key);
    value->node = mini_node(agent, rank);
    value->fd = fd;
    value->size = size - sizeof value->key;
    value->bytes = malloc(value->size + 1);
    memcpy(value->bytes, payload + sizeof value->key, value->size);
    value->bytes[value->size] = '\0';
    if (agent->on_put != NULL)
        agent->on_put(agent, rank, value->key, value->bytes);
    for (int i = 0; i < agent->n_asked; i++)
        if (strcmp(agent->asked[i].key, value->key) == 0) {
            mini_answer(agent, value, agent->asked[i].rank, agent->asked[i].tag);
            agent->asked[i--] = agent->asked[--agent->n_asked];
        }
}

static inline void mini_get(struct mini_agent *agent, int rank, uint32_t tag, const char *key)
{
    for (int i = 0; i < agent->n_values; i++)
        if (strcmp(agent->values[i].key, key) == 0) {
            mini_answer(agent, &agent->values[i], rank, tag);
            return;
        }
    if (agent->n_asked == MINI_ASKED)
        mini_die("too many questions");
    agent->asked[agent->n_asked] = (struct mini_asked){ .rank = rank, .tag = tag };
    memcpy(agent->asked[agent->n_asked++].key, key, FSDP_LINK_KEY_BYTES);
}

static inline void mini_ended(struct mini_agent *agent, int rank)
{
    static const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_ABORT };

    close(agent->socks[rank]);
    agent->socks[rank] = -1;
    agent->ended_s[rank] = mini_now();
    if (agent->join != NULL)
        agent->statuses[rank] = agent->join(agent, rank);
    else if (waitpid(agent->pids[rank], &agent->statuses[rank], 0) < 0)
        mini_die("waitpid");
    for (int r = 0; r < agent->W && agent->abort_on_death; r++)
        if (agent->socks[r] >= 0 && agent->statuses[rank] != 0) {
            atomic_store(&agent->pages[r]->abort_word, 1);
            mini_send(agent->socks[r], FSDP_LINK_NOTICE, 0, &notice, sizeof notice, -1);
        }
}

static inline void mini_receive(struct mini_agent *agent, int rank)
{
    static char payload[FSDP_LINK_KEY_BYTES + FSDP_LINK_VALUE_BYTES + 1];
    struct fsdp_link_header header;
    struct iovec parts[2] = { { &header, sizeof header }, { payload, sizeof payload - 1 } };
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = control, .msg_controllen = sizeof control
    };
    ssize_t n = recvmsg(agent->socks[rank], &message, MSG_CMSG_CLOEXEC);
    int fd = -1;

    if (n <= 0) {
        mini_ended(agent, rank);
        return;
    }
    if (message.msg_controllen > 0 && CMSG_FIRSTHDR(&message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    payload[header.size] = '\0';
    if (header.type == FSDP_LINK_PUT)
        mini_put(agent, rank, payload, header.size, fd);
    else if (header.type == FSDP_LINK_GET)
        mini_get(agent, rank, header.tag, payload);
    else if (header.type == FSDP_LINK_EVENT && agent->on_event != NULL)
        agent->on_event(agent, rank, payload);
}

static inline void mini_start_rank(struct mini_agent *agent, int rank, const int *far_ends,
                                   int (*rank_main)(int rank, void *arg), void *arg)
{
    const int per_node = agent->W / agent->n_nodes;
    struct fsdp_link_hello hello = { .rank = (uint32_t)rank,
                                     .world_size = (uint32_t)agent->W,
                                     .local_rank = (uint32_t)(rank % per_node),
                                     .local_world_size = (uint32_t)per_node,
                                     .node_rank = (uint32_t)(rank / per_node),
                                     .n_nodes = (uint32_t)agent->n_nodes,
                                     .threads = 1,
                                     .resume_step = -1,
                                     .lease_ms = 1000,
                                     .node_address = "127.0.0.1",
                                     .token = "0123456789abcdef0123456789abcde" };
    int page = memfd_create("page", MFD_CLOEXEC);
    char text[16];

    if (agent->bad_token)
        hello.token[0] = (unsigned char)rank;
    if (page < 0 || ftruncate(page, FSDP_PROGRESS_BYTES) < 0)
        mini_die("progress page");
    agent->pages[rank] = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    mini_send(agent->socks[rank], FSDP_LINK_HELLO, 0, &hello, sizeof hello, page);
    close(page);
    if (agent->start != NULL) {
        agent->start(agent, rank, far_ends[rank]);
        return;
    }
    agent->pids[rank] = fork();
    if (agent->pids[rank] < 0)
        mini_die("fork");
    if (agent->pids[rank] > 0) {
        close(far_ends[rank]);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int r = 0; r < agent->W; r++) {
        close(agent->socks[r]);
        if (r > rank)
            close(far_ends[r]);
    }
    snprintf(text, sizeof text, "%d", far_ends[rank]);
    setenv(FSDP_LINK_FD_ENV, text, 1);
    exit(rank_main(rank, arg));
}

/* Start the ranks; then turn the loop until all have ended. */
static inline void mini_run(struct mini_agent *agent, int (*rank_main)(int rank, void *arg), void *arg)
{
    int far_ends[MINI_RANKS];
    int n_live = agent->W;

    fflush(NULL);
    for (int r = 0; r < agent->W; r++) {
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
            mini_die("socketpair");
        agent->socks[r] = ends[0];
        far_ends[r] = ends[1];
    }
    for (int r = 0; r < agent->W; r++)
        mini_start_rank(agent, r, far_ends, rank_main, arg);
    while (n_live > 0) {
        struct pollfd polls[MINI_RANKS];

        for (int r = 0; r < agent->W; r++)
            polls[r] = (struct pollfd){ .fd = agent->socks[r], .events = POLLIN };
        poll(polls, (nfds_t)agent->W, agent->next_ms != NULL ? agent->next_ms(agent) : -1);
        n_live = 0;
        for (int r = 0; r < agent->W; r++) {
            if (polls[r].fd >= 0 && polls[r].revents != 0)
                mini_receive(agent, r);
            n_live += agent->socks[r] >= 0;
        }
    }
    for (int i = 0; i < agent->n_values; i++) {
        free(agent->values[i].bytes);
        if (agent->values[i].fd >= 0)
            close(agent->values[i].fd);
    }
    for (int r = 0; r < agent->W; r++)
        munmap(agent->pages[r], FSDP_PROGRESS_BYTES);
    agent->n_values = agent->n_asked = 0;
}

#endif
