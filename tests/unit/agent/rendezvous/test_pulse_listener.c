/* The thread that answers the questions of members. The members are one socket of the test. */
#include "agent/rendezvous/pulse_listener.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

/* More than the listener reads at once; a socket's usual buffer holds them all twice. */
enum { LEASE_MS = 60000, MEMBERS = 80, TURNS = 50, SOON_S = 60 };

static const unsigned char job_key[TLS_KEY_BYTES] = "the key of one job";
static struct pulse_listener *listener;
static struct pulse_member members[MEMBERS];
static struct tls_mac_key *key;
static struct sockaddr_in address;
static int fd; /* of all members */

static struct pulse question_of(int member, int64_t sent_ns)
{
    return (struct pulse){ .session = { (unsigned char)(member + 1) }, .sent_ns = sent_ns };
}

/* Each test process has an address of its own, so no two of them have one port. */
static void set_up(void)
{
    const struct timeval patience = { .tv_sec = SOON_S };

    address = (struct sockaddr_in){ .sin_family = AF_INET,
                                    .sin_port = htons(29400),
                                    .sin_addr.s_addr =
                                        htonl(0x7f000000U | (0x800000U + ((unsigned)getpid() & 0x7fffffU))) };
    key = pulse_key_create(job_key);
    listener = pulse_listener_create(LEASE_MS, job_key);
    cr_assert(key != NULL && pulse_listener_bind(listener, (struct sockaddr *)&address));
    for (int i = 0; i < MEMBERS; i++)
        pulse_listener_admit(listener, &members[i], question_of(i, 1).session);
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    cr_assert(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
}

static void tear_down(void)
{
    pulse_listener_destroy(listener);
    tls_mac_key_destroy(key);
    close(fd);
}

TestSuite(pulse_listener, .init = set_up, .fini = tear_down, .timeout = 300);

static void ask(int member, int64_t sent_ns, bool with_key)
{
    const struct pulse question = question_of(member, sent_ns);
    unsigned char bytes[PULSE_BYTES];

    cr_assert(pulse_encode(bytes, &question, with_key ? key : NULL));
    cr_assert(send(fd, bytes, sizeof bytes, 0) == PULSE_BYTES);
}

/* Returns whose answer has come. */
static int await_answer(int64_t sent_ns)
{
    unsigned char bytes[PULSE_BYTES];
    struct pulse answer;

    cr_assert(recv(fd, bytes, sizeof bytes, 0) == PULSE_BYTES);
    cr_assert(pulse_decode(&answer, bytes, sizeof bytes, key) && answer.is_answer);
    cr_assert(answer.sent_ns == sent_ns && answer.answered_ns > 0 && answer.answered_ns <= clock_boot_ns());
    return answer.session[0] - 1;
}

Test(pulse_listener, questions_that_wait_together_are_each_answered_once_and_those_of_strangers_are_not)
{
    bool answered[MEMBERS] = { false };

    for (int i = 0; i < MEMBERS; i++) { /* nobody reads them yet */
        ask(i, 7, true);
        ask((i + 1) % MEMBERS, 7, false);
    }
    cr_assert(pulse_listener_serve(listener, NULL));

    for (int i = 0; i < MEMBERS; i++) {
        const int member = await_answer(7);

        cr_assert(member >= 0 && member < MEMBERS && !answered[member]);
        answered[member] = true;
    }
    ask(0, 8, true);
    cr_assert(eq(int, await_answer(8), 0), "no other answer came in between");
}

static atomic_bool floods = true;

static void *flood(void *arg)
{
    unsigned char bytes[PULSE_BYTES] = "fsdpuls\1";
    const int from = socket(AF_INET, SOCK_DGRAM, 0);

    (void)arg;
    cr_assert(connect(from, (struct sockaddr *)&address, sizeof address) == 0);
    while (floods)
        (void)send(from, bytes, sizeof bytes, MSG_DONTWAIT);
    close(from);
    return NULL;
}

Test(pulse_listener, the_loop_has_its_turn_while_strangers_flood_the_socket)
{
    pthread_t stranger;

    cr_assert(pulse_listener_serve(listener, NULL));
    cr_assert(pthread_create(&stranger, NULL, flood, NULL) == 0);
    for (int i = 0; i < TURNS; i++) {
        pulse_listener_turn(listener, INT64_MAX);
        pulse_listener_heard(listener, &members[0], i + 1);
        cr_assert(eq(i64, pulse_listener_told(listener, &members[0]).heard_ns, i + 1));
    }
    floods = false;
    pthread_join(stranger, NULL);
}
