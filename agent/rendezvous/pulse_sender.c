#include "agent/rendezvous/pulse_sender.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/thread.h"

struct pulse_sender {
    const struct lease *lease;
    struct tls_mac_key *key; /* the thread's; NULL: clear text */
    pthread_t thread;
    int wake; /* an eventfd: wakes the thread because the aim has changed, or the thread must end */

    pthread_mutex_t lock; /* guards the members below, and also the lease, while an answer extends that */
    struct pulse_aim aim;
    bool aims, over;
    uint64_t n_aims;
    struct pulse_news news;
    int64_t told_ns;   /* the newest answer of the session itself */
    int64_t turned_ms; /* when the loop has turned last */
};

/* The thread's own. */
struct asking {
    int fd; /* connected to the coordinator; -1: it asks nowhere */
    uint64_t n_aims;
    int64_t next_ms; /* the next question */
};

/* Opens a new socket for each aim, so that answers to questions of an earlier aim do not arrive. */
static void take_aim(const struct pulse_sender *sender, struct asking *asking)
{
    const struct sockaddr *to = (const struct sockaddr *)&sender->aim.to;
    const socklen_t size =
        to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (asking->fd >= 0)
        close(asking->fd);
    asking->n_aims = sender->n_aims;
    asking->next_ms = 0;
    asking->fd = sender->aims ? socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (asking->fd >= 0 && connect(asking->fd, to, size) < 0) {
        close(asking->fd);
        asking->fd = -1;
    }
}

static void ask(const struct pulse_sender *sender, struct asking *asking, int64_t now_ms)
{
    struct pulse question = { .sent_ns = clock_boot_ns(), .answered_ns = sender->news.answered_ns };
    unsigned char bytes[PULSE_BYTES];

    asking->next_ms = now_ms + sender->aim.pace_ms;
    if (now_ms - sender->turned_ms > sender->aim.patience_ms)
        return;
    if (sender->told_ns > question.answered_ns)
        question.answered_ns = sender->told_ns;
    memcpy(question.session, sender->aim.session, sizeof question.session);
    if (pulse_encode(bytes, &question, sender->key))
        (void)send(asking->fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static void take_answers(struct pulse_sender *sender, const struct asking *asking)
{
    unsigned char bytes[PULSE_BYTES + 1];
    struct pulse answer;
    ssize_t n;

    while ((n = recv(asking->fd, bytes, sizeof bytes, MSG_DONTWAIT)) >= 0) {
        if (!pulse_decode(&answer, bytes, (size_t)n, sender->key) || !answer.is_answer ||
            memcmp(answer.session, sender->aim.session, sizeof answer.session) != 0)
            continue;
        lease_extend(sender->lease, answer.sent_ns, answer.lease_ms);
        sender->news.came_ms = clock_boot_ms();
        if (answer.answered_ns > sender->news.answered_ns)
            sender->news.answered_ns = answer.answered_ns;
    }
}

/*
 * Does one round of beats, with the lock held. Returns how long to wait for the next; -1: until the aim
 * changes.
 */
static int go_on(struct pulse_sender *sender, struct asking *asking)
{
    int64_t now_ms;

    if (asking->n_aims != sender->n_aims)
        take_aim(sender, asking);
    if (asking->fd < 0)
        return -1;
    take_answers(sender, asking);
    now_ms = clock_boot_ms();
    if (now_ms >= asking->next_ms)
        ask(sender, asking, now_ms);
    return (int)(asking->next_ms - now_ms);
}

static void *serve(void *arg)
{
    struct pulse_sender *sender = arg;
    struct asking asking = { .fd = -1 };
    bool over = false;

    while (!over) {
        struct pollfd fds[2] = { { .fd = sender->wake, .events = POLLIN }, { .events = POLLIN } };
        uint64_t n_wakes;
        int wait_ms;

        pthread_mutex_lock(&sender->lock);
        wait_ms = go_on(sender, &asking);
        over = sender->over;
        pthread_mutex_unlock(&sender->lock);
        fds[1].fd = asking.fd;
        if (!over && poll(fds, 2, wait_ms) > 0 && fds[0].revents != 0)
            (void)!read(sender->wake, &n_wakes, sizeof n_wakes);
    }
    if (asking.fd >= 0)
        close(asking.fd);
    return NULL;
}

static void wake(const struct pulse_sender *sender)
{
    const uint64_t one = 1;

    (void)!write(sender->wake, &one, sizeof one);
}

static void free_sender(struct pulse_sender *sender)
{
    if (sender->wake >= 0)
        close(sender->wake);
    pthread_mutex_destroy(&sender->lock);
    tls_mac_key_destroy(sender->key);
    free(sender);
}

struct pulse_sender *pulse_sender_create(const struct lease *lease, const unsigned char *key)
{
    struct pulse_sender *sender = calloc(1, sizeof *sender);

    if (sender == NULL)
        return NULL;
    pthread_mutex_init(&sender->lock, NULL);
    sender->lease = lease;
    sender->key = key == NULL ? NULL : pulse_key_create(key);
    sender->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sender->wake >= 0 && (key == NULL || sender->key != NULL) &&
        thread_start(&sender->thread, serve, sender) == 0)
        return sender;
    free_sender(sender);
    return NULL;
}

void pulse_sender_destroy(struct pulse_sender *sender)
{
    if (sender == NULL)
        return;
    pthread_mutex_lock(&sender->lock);
    sender->over = true;
    pthread_mutex_unlock(&sender->lock);
    wake(sender);
    pthread_join(sender->thread, NULL);
    free_sender(sender);
}

static bool is_same(const struct pulse_sender *sender, const struct pulse_aim *aim)
{
    if (aim == NULL || !sender->aims)
        return aim == NULL && !sender->aims;
    return memcmp(aim->session, sender->aim.session, sizeof aim->session) == 0 &&
           memcmp(&aim->to, &sender->aim.to, sizeof aim->to) == 0 && aim->pace_ms == sender->aim.pace_ms &&
           aim->patience_ms == sender->aim.patience_ms;
}

struct pulse_news pulse_sender_aim(struct pulse_sender *sender, const struct pulse_aim *aim)
{
    struct pulse_news news = { 0 };
    bool same;

    if (sender == NULL)
        return news;
    pthread_mutex_lock(&sender->lock);
    news = sender->news;
    same = is_same(sender, aim);
    if (!same) {
        /* The news are kept if the new aim is of the same session. */
        if (aim == NULL || !sender->aims ||
            memcmp(aim->session, sender->aim.session, sizeof aim->session) != 0) {
            sender->news = (struct pulse_news){ 0 };
            sender->told_ns = 0;
        }
        sender->aims = aim != NULL;
        if (aim != NULL)
            sender->aim = *aim;
        sender->turned_ms = clock_boot_ms();
        sender->n_aims++;
    }
    pthread_mutex_unlock(&sender->lock);
    if (!same)
        wake(sender);
    return news;
}

struct pulse_news pulse_sender_turn(struct pulse_sender *sender, int64_t answered_ns)
{
    struct pulse_news news = { 0 };

    if (sender == NULL)
        return news;
    pthread_mutex_lock(&sender->lock);
    sender->turned_ms = clock_boot_ms();
    if (sender->aims && answered_ns > sender->told_ns)
        sender->told_ns = answered_ns;
    news = sender->news;
    pthread_mutex_unlock(&sender->lock);
    return news;
}
