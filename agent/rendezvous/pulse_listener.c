#include "agent/rendezvous/pulse_listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/wire/endpoint.h"
#include "agent/wire/tls.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/thread.h"

/* MOST_AT_ONCE bounds how long the thread holds the lock, and so how long the loop waits for it */
enum { MOST_AT_ONCE = 256, CONTROL_BYTES = 128 };

struct pulse_listener {
    unsigned char key[TLS_KEY_BYTES];
    bool keyed;
    struct pollfd fds[ENDPOINT_MAX_ADDRESSES + 1]; /* the first wakes the thread: an eventfd */
    int n_fds;
    pthread_t thread;
    bool has_thread, has_lead;
    struct pulse_lead lead;

    pthread_mutex_t lock; /* guards the members below, and reading from the sockets */
    struct pulse_book book;
    int64_t keep_at_ms;
    bool over;
};

/*
 * A datagram, and what its answer needs: who sent it, and to which of this host's addresses. The sender
 * accepts an answer only from the address that it asked.
 */
struct letter {
    unsigned char bytes[PULSE_BYTES + 1];
    struct sockaddr_storage from;
    _Alignas(struct cmsghdr) unsigned char control[CONTROL_BYTES];
    struct iovec part;
    struct msghdr head;
};

static void answer(struct pulse_listener *listener, int fd, struct letter *letter, size_t n_bytes)
{
    const unsigned char *key = listener->keyed ? listener->key : NULL;
    struct pulse question, out;
    bool holds;

    if (!pulse_decode(&question, letter->bytes, n_bytes, key) || question.is_answer)
        return;
    holds = !listener->has_lead || listener->lead.holds(listener->lead.arg);
    if (!pulse_book_take(&listener->book, &question, holds, clock_boot_ns(), &out) ||
        !pulse_encode(letter->bytes, &out, key))
        return;
    letter->part.iov_len = PULSE_BYTES;
    (void)sendmsg(fd, &letter->head, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* With the lock. */
static void read_socket(struct pulse_listener *listener, int fd, int most)
{
    struct letter letter;

    for (int i = 0; i < most; i++) {
        ssize_t n;

        letter.part = (struct iovec){ letter.bytes, sizeof letter.bytes };
        letter.head = (struct msghdr){ .msg_name = &letter.from,
                                       .msg_namelen = sizeof letter.from,
                                       .msg_iov = &letter.part,
                                       .msg_iovlen = 1,
                                       .msg_control = letter.control,
                                       .msg_controllen = sizeof letter.control };
        n = recvmsg(fd, &letter.head, MSG_DONTWAIT);
        if (n < 0)
            return;
        answer(listener, fd, &letter, (size_t)n);
    }
}

/*
 * Call it with the lock held. Renews the lead if that is due, and answers the questions that have arrived.
 * Returns how many milliseconds the thread may sleep if no question comes.
 */
static int go_on(struct pulse_listener *listener)
{
    const int64_t now_ns = clock_boot_ns(), now_ms = now_ns / 1000000;

    if (now_ms >= listener->keep_at_ms) {
        listener->keep_at_ms = now_ms + listener->book.lease_ms / LEASE_BEATS;
        if (listener->has_lead && pulse_book_turns(&listener->book, now_ns))
            listener->lead.keep(listener->lead.arg, pulse_book_contact_until_ns(&listener->book, now_ns));
    }
    for (int i = 1; i < listener->n_fds; i++)
        read_socket(listener, listener->fds[i].fd, MOST_AT_ONCE);
    return (int)(listener->keep_at_ms - now_ms);
}

static void *serve(void *arg)
{
    struct pulse_listener *listener = arg;
    bool over = false;

    while (!over) {
        int wait_ms;

        pthread_mutex_lock(&listener->lock);
        wait_ms = go_on(listener);
        over = listener->over;
        pthread_mutex_unlock(&listener->lock);
        if (!over)
            (void)poll(listener->fds, (nfds_t)listener->n_fds, wait_ms);
    }
    return NULL;
}

/* Opening and closing */

struct pulse_listener *pulse_listener_create(int64_t lease_ms, const unsigned char *key)
{
    struct pulse_listener *listener = calloc(1, sizeof *listener);

    if (listener == NULL)
        return NULL;
    pthread_mutex_init(&listener->lock, NULL);
    pulse_book_init(&listener->book, lease_ms, clock_boot_ns());
    listener->keyed = key != NULL;
    listener->fds[0] = (struct pollfd){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = POLLIN };
    listener->n_fds = 1;
    if (listener->fds[0].fd >= 0 && (key == NULL || pulse_derive_key(listener->key, key, NULL) == FSDP_OK))
        return listener;
    pulse_listener_destroy(listener);
    return NULL;
}

bool pulse_listener_bind(struct pulse_listener *listener, const struct sockaddr *address)
{
    const bool v6 = address->sa_family == AF_INET6;
    const int on = 1;
    int fd;

    if (listener == NULL || listener->n_fds == (int)(sizeof listener->fds / sizeof *listener->fds))
        return false;
    fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    if (setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, &on, sizeof on) !=
            0 ||
        bind(fd, address, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) != 0) {
        close(fd);
        return false;
    }
    listener->fds[listener->n_fds++] = (struct pollfd){ .fd = fd, .events = POLLIN };
    return true;
}

bool pulse_listener_serve(struct pulse_listener *listener, const struct pulse_lead *lead)
{
    if (listener == NULL)
        return false;
    listener->has_lead = lead != NULL;
    if (lead != NULL)
        listener->lead = *lead;
    listener->has_thread = thread_start(&listener->thread, serve, listener) == 0;
    return listener->has_thread;
}

void pulse_listener_destroy(struct pulse_listener *listener)
{
    const uint64_t one = 1;

    if (listener == NULL)
        return;
    pthread_mutex_lock(&listener->lock);
    listener->over = true;
    pthread_mutex_unlock(&listener->lock);
    if (listener->has_thread) {
        (void)!write(listener->fds[0].fd, &one, sizeof one);
        pthread_join(listener->thread, NULL);
    }
    for (int i = 0; i < listener->n_fds; i++)
        if (listener->fds[i].fd >= 0)
            close(listener->fds[i].fd);
    pulse_book_free(&listener->book);
    pthread_mutex_destroy(&listener->lock);
    explicit_bzero(listener->key, sizeof listener->key);
    free(listener);
}

/* Members */

void pulse_listener_admit(struct pulse_listener *listener, struct pulse_member *member,
                          const unsigned char session[SESSION_IDENTITY_BYTES])
{
    if (listener == NULL)
        return;
    pthread_mutex_lock(&listener->lock);
    pulse_book_add(&listener->book, member, session);
    pthread_mutex_unlock(&listener->lock);
}

void pulse_listener_heard(struct pulse_listener *listener, struct pulse_member *member, int64_t heard_ns)
{
    if (listener == NULL)
        return;
    pthread_mutex_lock(&listener->lock);
    pulse_book_heard(member, heard_ns);
    pthread_mutex_unlock(&listener->lock);
}

void pulse_listener_turn(struct pulse_listener *listener, int64_t away_ns)
{
    if (listener == NULL)
        return;
    pthread_mutex_lock(&listener->lock);
    pulse_book_turned(&listener->book, away_ns, clock_boot_ns());
    (void)go_on(listener);
    pthread_mutex_unlock(&listener->lock);
}

struct pulse_told pulse_listener_told(struct pulse_listener *listener, struct pulse_member *member)
{
    struct pulse_told told = { 0 };

    if (listener == NULL)
        return told;
    pthread_mutex_lock(&listener->lock);
    told = member->told;
    pthread_mutex_unlock(&listener->lock);
    return told;
}

struct pulse_told pulse_listener_forget(struct pulse_listener *listener, struct pulse_member *member)
{
    struct pulse_told told = { 0 };

    if (listener == NULL)
        return told;
    pthread_mutex_lock(&listener->lock);
    pulse_book_remove(&listener->book, member);
    told = member->told;
    pthread_mutex_unlock(&listener->lock);
    return told;
}
