/* Members of an etcd that answer what a test gives them: threads of the test, on ports of loopback. */
#ifndef UNIT_AGENT_FAKE_ETCD_H
#define UNIT_AGENT_FAKE_ETCD_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAKE_HEADER       "\"header\":{\"cluster_id\":\"77\",\"revision\":\"4\"}"
#define FAKE_OTHER_HEADER "\"header\":{\"cluster_id\":\"78\",\"revision\":\"4\"}"

enum { FAKE_MEMBERS = 3, FAKE_REQUESTS = 16, FAKE_REQUEST_BYTES = 4096 };

struct fake_reply {
    const char *json; /* with status 200; NULL: none of these: no answer, and the connection stays */
    const char *raw;  /* these bytes, and the end of the connection */
    bool endless;     /* JSON that never ends */
};

struct fake_member {
    int listener, port;
    const struct fake_reply *replies; /* one for each request; the last one goes on. NULL: none listens */
    int n_replies;
    atomic_int n_connections, n_requests;
    char requests[FAKE_REQUESTS][FAKE_REQUEST_BYTES]; /* what came, with its head */
};
static struct fake_member fakes[FAKE_MEMBERS];

/* Read a whole request into `out`. False: the connection has ended. */
static inline bool fake_read(int fd, char *out)
{
    size_t n = 0;

    for (;;) {
        const char *end, *length;
        const ssize_t got = recv(fd, out + n, FAKE_REQUEST_BYTES - 1 - n, 0);

        if (got <= 0)
            return false;
        n += (size_t)got;
        out[n] = '\0';
        end = strstr(out, "\r\n\r\n");
        length = strcasestr(out, "\r\nContent-Length:");
        if (end != NULL && length != NULL && n >= (size_t)(end + 4 - out) + (size_t)atoi(length + 17))
            return true;
    }
}

static inline bool fake_write(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/* Does the connection go on? */
static inline bool fake_answer(int fd, const struct fake_reply *reply)
{
    char head[256];
    bool is_open;

    if (reply->raw != NULL)
        return fake_write(fd, reply->raw) && false;
    if (reply->endless) {
        for (is_open = fake_write(fd, "HTTP/1.1 200 OK\r\n\r\n{\"a\": ["); is_open;)
            is_open = fake_write(fd, "\"0123456789\", ");
        return false;
    }
    if (reply->json == NULL)
        return true;
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             strlen(reply->json));
    return fake_write(fd, head) && fake_write(fd, reply->json);
}

static inline void *fake_run(void *arg)
{
    struct fake_member *member = arg;
    char request[FAKE_REQUEST_BYTES];

    for (;;) {
        const int fd = accept(member->listener, NULL, NULL);

        member->n_connections++;
        while (fd >= 0 && fake_read(fd, request)) {
            const int nth = member->n_requests;

            if (nth < FAKE_REQUESTS)
                memcpy(member->requests[nth], request, sizeof request);
            member->n_requests = nth + 1;
            if (!fake_answer(fd, &member->replies[nth < member->n_replies ? nth : member->n_replies - 1]))
                break;
        }
        close(fd);
    }
    return NULL;
}

/** Start the next member. `replies` is borrowed for ever; n_replies 0: its port refuses connections. */
static inline void fake_start(int nth, const struct fake_reply *replies, int n_replies)
{
    struct fake_member *member = &fakes[nth];
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    pthread_t thread;

    member->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(member->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(getsockname(member->listener, (struct sockaddr *)&address, &length), 0);
    member->port = ntohs(address.sin_port);
    member->replies = replies;
    member->n_replies = n_replies;
    if (n_replies == 0)
        return; /* bound, and so no other process has it */
    cr_assert_eq(listen(member->listener, 8), 0);
    cr_assert_eq(pthread_create(&thread, NULL, fake_run, member), 0);
    pthread_detach(thread);
}

#endif
