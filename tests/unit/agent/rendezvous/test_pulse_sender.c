/* The thread that asks for the lease. The coordinator is a socket of the test. */
#include "agent/rendezvous/pulse_sender.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

enum { LEASE_MS = 60000, PACE_MS = 5, SOON_MS = 60000, MS = 1000000 };

static struct lease lease;
static struct pulse_sender *sender;
static struct pulse_aim aim;
static struct sockaddr_storage from; /* of the last question */
static int fd;

static void open_coordinator(struct pulse_aim *at, int *out)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;

    *out = socket(AF_INET, SOCK_DGRAM, 0);
    cr_assert(bind(*out, (struct sockaddr *)&address, size) == 0);
    cr_assert(getsockname(*out, (struct sockaddr *)&address, &size) == 0);
    *at = (struct pulse_aim){ .session = "a session", .pace_ms = PACE_MS, .patience_ms = SOON_MS };
    memcpy(&at->to, &address, sizeof address);
}

static void set_up(void)
{
    cr_assert(eq(int, lease_create(&lease, NULL), FSDP_OK));
    open_coordinator(&aim, &fd);
    sender = pulse_sender_create(&lease, NULL);
    cr_assert(sender != NULL);
}

static void tear_down(void)
{
    pulse_sender_destroy(sender);
    close(fd);
    lease_destroy(&lease);
}

TestSuite(pulse_sender, .init = set_up, .fini = tear_down, .timeout = 300);

static bool comes(int at, int within_ms)
{
    struct pollfd wait = { .fd = at, .events = POLLIN };

    return poll(&wait, 1, within_ms) == 1;
}

static struct pulse question_at(int at)
{
    unsigned char bytes[PULSE_BYTES];
    socklen_t size = sizeof from;
    struct pulse question;

    cr_assert(comes(at, SOON_MS));
    cr_assert(recvfrom(at, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size) == PULSE_BYTES);
    cr_assert(pulse_decode(&question, bytes, sizeof bytes, NULL) && !question.is_answer);
    return question;
}

/* Answers at coordinator time `answered_ns`. */
static void answer(int at, struct pulse question, int64_t answered_ns)
{
    unsigned char bytes[PULSE_BYTES];

    question.is_answer = true;
    question.lease_ms = LEASE_MS;
    question.answered_ns = answered_ns;
    (void)pulse_encode(bytes, &question, NULL);
    cr_assert(sendto(at, bytes, sizeof bytes, 0, (struct sockaddr *)&from, sizeof(struct sockaddr_in)) ==
              PULSE_BYTES);
}

static void wait_for_lease(bool runs)
{
    const int64_t until_ms = clock_boot_ms() + SOON_MS;

    while (lease_runs(&lease) != runs && clock_boot_ms() < until_ms)
        (void)comes(-1, 1);
    cr_assert(lease_runs(&lease) == runs);
}

Test(pulse_sender, an_answer_extends_the_lease_from_the_question_on_and_the_next_question_tells_of_it)
{
    struct pulse question;
    struct pulse_news news;
    const int64_t before_ms = clock_boot_ms();

    pulse_sender_aim(sender, &aim);
    question = question_at(fd);
    cr_assert(memcmp(question.session, aim.session, sizeof aim.session) == 0);
    cr_assert(eq(i64, question.answered_ns, 0));
    cr_assert(question.sent_ns >= before_ms * MS && question.sent_ns <= clock_boot_ns());

    answer(fd, question, 17);
    wait_for_lease(true);

    do
        question = question_at(fd);
    while (question.answered_ns == 0); /* one may have been under way */
    cr_assert(eq(i64, question.answered_ns, 17));
    news = pulse_sender_turn(sender, 0);
    cr_assert(news.answered_ns == 17 && news.came_ms >= before_ms && news.came_ms <= clock_boot_ms());
}

Test(pulse_sender, questions_tell_of_the_session_s_own_answers_too)
{
    pulse_sender_aim(sender, &aim);
    pulse_sender_turn(sender, 23);
    while (question_at(fd).answered_ns != 23)
        ;
}

Test(pulse_sender, an_answer_for_an_earlier_session_extends_nothing)
{
    struct pulse_aim next;
    struct pulse question;
    int next_fd;

    open_coordinator(&next, &next_fd);
    next.session[0] = 'b';
    pulse_sender_aim(sender, &aim);
    question = question_at(fd);
    pulse_sender_aim(sender, &next);
    lease_clear(&lease);
    answer(fd, question, 17); /* where it asks no more */
    question = question_at(next_fd);
    question.session[0] = 'a'; /* and where it does */
    answer(next_fd, question, 17);

    for (int i = 0; i < 3; i++) /* each comes a round later */
        (void)question_at(next_fd);
    cr_assert(not(lease_runs(&lease)));
    cr_assert(eq(i64, pulse_sender_turn(sender, 0).answered_ns, 0));
    close(next_fd);
}

Test(pulse_sender, who_aims_elsewhere_gets_all_that_was_told)
{
    struct pulse question;

    pulse_sender_aim(sender, &aim);
    question = question_at(fd);
    answer(fd, question, 17);
    wait_for_lease(true);
    cr_assert(eq(i64, pulse_sender_aim(sender, NULL).answered_ns, 17));
    while (comes(fd, 0)) /* those that were sent before */
        (void)question_at(fd);
    cr_assert(not(comes(fd, 10 * PACE_MS)), "it asks nowhere");
}

Test(pulse_sender, a_loop_that_does_not_turn_is_not_spoken_for)
{
    struct pulse question;

    aim.patience_ms = 10 * PACE_MS;
    pulse_sender_aim(sender, &aim);
    question = question_at(fd);
    while (comes(fd, 20 * PACE_MS))
        cr_assert(question_at(fd).sent_ns < question.sent_ns + SOON_MS * (int64_t)MS);

    pulse_sender_turn(sender, 0);
    (void)question_at(fd);
}
