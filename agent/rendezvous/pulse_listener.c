#include "agent/rendezvous/pulse_listener.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/wire/endpoint.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/thread.h"

enum {
    BATCH = 64,     /* datagrams that are read, checked and answered together */
    BATCHES = 4,    /* batches that are read from one socket before the next socket has its turn */
    GATHER_MS = 1,  /* after questions came, so that the next wake-up of the thread serves many */
    ROOM = 4 << 20, /* receive buffer of a socket, for questions of members that ask at the same moment */
    CONTROL_BYTES = 128
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
    struct pulse pulse;
};

/*
 * Thread and loop read the sockets in turns: each gets the next one as soon as the other's is over. A mutex
 * alone would let the thread, which works all the time under a flood, take it again and again.
 */
struct turns {
    pthread_mutex_t lock;
    pthread_cond_t over;
    uint64_t n_taken, n_over;
};

struct pulse_listener {
    struct pollfd fds[ENDPOINT_MAX_ADDRESSES + 1]; /* the first wakes the thread: an eventfd */
    int n_fds;
    pthread_t thread;
    bool has_thread, has_lead;
    struct pulse_lead lead;

    struct turns turns;      /* turns at reading the sockets; they also guard the fields of this part */
    struct tls_mac_key *key; /* NULL: clear text */
    struct letter letters[BATCH];
    struct mmsghdr heads[BATCH];

    pthread_mutex_t lock; /* guards all fields below; never held for more than a batch of look-ups */
    struct pulse_book book;
    int64_t keep_at_ms;
    bool over;
};

static void begin_turn(struct turns *turns)
{
    uint64_t number;

    pthread_mutex_lock(&turns->lock);
    number = turns->n_taken++;
    while (turns->n_over != number)
        pthread_cond_wait(&turns->over, &turns->lock);
    pthread_mutex_unlock(&turns->lock);
}

static void end_turn(struct turns *turns)
{
    pthread_mutex_lock(&turns->lock);
    turns->n_over++;
    pthread_cond_broadcast(&turns->over);
    pthread_mutex_unlock(&turns->lock);
}

/* Reads a batch. Returns how many datagrams came. */
static int read_batch(struct pulse_listener *listener, int fd)
{
    int n;

    for (int i = 0; i < BATCH; i++) {
        struct letter *letter = &listener->letters[i];

        letter->part = (struct iovec){ letter->bytes, sizeof letter->bytes };
        listener->heads[i].msg_hdr = (struct msghdr){ .msg_name = &letter->from,
                                                      .msg_namelen = sizeof letter->from,
                                                      .msg_iov = &letter->part,
                                                      .msg_iovlen = 1,
                                                      .msg_control = letter->control,
                                                      .msg_controllen = sizeof letter->control };
    }
    n = recvmmsg(fd, listener->heads, BATCH, MSG_DONTWAIT, NULL);
    return n > 0 ? n : 0;
}

/* Keeps the heads of the datagrams that are questions of this job. Returns how many there are. */
static int check_batch(struct pulse_listener *listener, int n)
{
    int n_kept = 0;

    for (int i = 0; i < n; i++) {
        struct letter *letter = &listener->letters[i];

        if (pulse_decode(&letter->pulse, letter->bytes, listener->heads[i].msg_len, listener->key) &&
            !letter->pulse.is_answer)
            listener->heads[n_kept++] = listener->heads[i];
    }
    return n_kept;
}

static struct letter *letter_of(const struct mmsghdr *head)
{
    return (struct letter *)((char *)head->msg_hdr.msg_name - offsetof(struct letter, from));
}

/*
 * Keeps the heads of the questions that are answered. Whether this leader may answer is asked after they have
 * come: so its hold ends after they were sent.
 */
static int take_batch(struct pulse_listener *listener, int n)
{
    int n_kept = 0;
    int64_t now_ns;
    bool holds;

    pthread_mutex_lock(&listener->lock);
    now_ns = clock_boot_ns();
    holds = !listener->has_lead || listener->lead.holds(listener->lead.arg);
    for (int i = 0; i < n; i++) {
        const struct pulse question = letter_of(&listener->heads[i])->pulse;

        if (pulse_book_take(&listener->book, &question, holds, now_ns,
                            &letter_of(&listener->heads[i])->pulse))
            listener->heads[n_kept++] = listener->heads[i];
    }
    pthread_mutex_unlock(&listener->lock);
    return n_kept;
}

static void send_batch(struct pulse_listener *listener, int fd, int n)
{
    int n_kept = 0;

    for (int i = 0; i < n; i++) {
        struct letter *letter = letter_of(&listener->heads[i]);

        letter->part.iov_len = PULSE_BYTES;
        if (pulse_encode(letter->bytes, &letter->pulse, listener->key))
            listener->heads[n_kept++] = listener->heads[i];
    }
    for (int i = 0; i < n_kept;) {
        const int n_sent =
            sendmmsg(fd, listener->heads + i, (unsigned)(n_kept - i), MSG_NOSIGNAL | MSG_DONTWAIT);

        i += n_sent > 0 ? n_sent : 1; /* the one that cannot be sent is lost */
    }
}

/* In a turn. Answers a batch of one socket. Returns how many datagrams came. */
static int answer_batch(struct pulse_listener *listener, int fd)
{
    const int n = read_batch(listener, fd), n_questions = check_batch(listener, n);

    if (n_questions > 0)
        send_batch(listener, fd, take_batch(listener, n_questions));
    return n;
}

/*
 * Answers the questions that have come, some batches of them. Each batch is a turn of its own, so neither the
 * thread nor the loop waits longer than a batch takes. Returns whether there were any.
 */
static bool answer_all(struct pulse_listener *listener)
{
    bool any = false;

    for (int i = 1; i < listener->n_fds; i++)
        for (int n = BATCH, n_batches = 0; n == BATCH && n_batches < BATCHES; n_batches++) {
            begin_turn(&listener->turns);
            n = answer_batch(listener, listener->fds[i].fd);
            end_turn(&listener->turns);
            any = any || n > 0;
        }
    return any;
}

/* Keeps the lead if that is due. Returns for how many milliseconds the thread may sleep; -1: it is to end. */
static int keep_lead(struct pulse_listener *listener)
{
    const int64_t now_ns = clock_boot_ns(), now_ms = now_ns / 1000000;
    int wait_ms;

    pthread_mutex_lock(&listener->lock);
    if (now_ms >= listener->keep_at_ms) {
        listener->keep_at_ms = now_ms + listener->book.lease_ms / LEASE_BEATS;
        if (listener->has_lead && pulse_book_turns(&listener->book, now_ns))
            listener->lead.keep(listener->lead.arg, pulse_book_contact_until_ns(&listener->book, now_ns));
    }
    wait_ms = listener->over ? -1 : (int)(listener->keep_at_ms - now_ms);
    pthread_mutex_unlock(&listener->lock);
    return wait_ms;
}

static void *serve(void *arg)
{
    struct pulse_listener *listener = arg;
    int wait_ms;

    while ((wait_ms = keep_lead(listener)) >= 0) {
        if (answer_all(listener))
            (void)poll(listener->fds, 1, GATHER_MS);
        else
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
    pthread_mutex_init(&listener->turns.lock, NULL);
    pthread_cond_init(&listener->turns.over, NULL);
    listener->key = key == NULL ? NULL : pulse_key_create(key);
    listener->fds[0] = (struct pollfd){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .events = POLLIN };
    listener->n_fds = 1;
    if (listener->fds[0].fd >= 0 && (key == NULL || listener->key != NULL))
        return listener;
    pulse_listener_destroy(listener);
    return NULL;
}

bool pulse_listener_bind(struct pulse_listener *listener, const struct sockaddr *address)
{
    const bool v6 = address->sa_family == AF_INET6;
    const int on = 1, room = ROOM;
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
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room); /* the host may allow less than that */
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
    pthread_mutex_destroy(&listener->turns.lock);
    pthread_cond_destroy(&listener->turns.over);
    tls_mac_key_destroy(listener->key);
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
    pthread_mutex_unlock(&listener->lock);
    (void)keep_lead(listener);
    (void)answer_all(listener);
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
