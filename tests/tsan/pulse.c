/*
 * Links libfsdp.
 *
 * The threads of pulses, under the thread sanitizer:
 *   - the one that asks for the lease (agent/rendezvous/pulse_sender.h). Meanwhile the loop turns, extends
 *     the lease by the session's own answers, and follows one coordinator after another
 *   - the one that answers (agent/rendezvous/pulse_listener.h). Meanwhile the loop turns, and its members
 *     come and go
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/rendezvous/pulse_listener.h"
#include "agent/rendezvous/pulse_sender.h"
#include "shard_runtime/core/clock.h"

enum { ROUNDS = 300, LEASE_MS = 3000 };

static void require(bool good, const char *words)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", words);
    exit(1);
}

/* Answers one question, if it is one of this session's. */
static bool serve(int fd)
{
    unsigned char bytes[PULSE_BYTES];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    struct pulse pulse;

    require(recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size) == PULSE_BYTES,
            "no question");
    require(pulse_decode(&pulse, bytes, sizeof bytes, NULL), "no pulse");
    pulse.is_answer = true;
    pulse.answered_ns = clock_boot_ns();
    pulse.lease_ms = LEASE_MS;
    (void)pulse_encode(bytes, &pulse, NULL);
    return sendto(fd, bytes, sizeof bytes, 0, (struct sockaddr *)&from, size) == PULSE_BYTES;
}

static void ask_a_coordinator(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct pulse_aim aim = { .session = "a session", .pace_ms = 1, .patience_ms = LEASE_MS };
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t size = sizeof address;
    struct pulse_sender *sender;
    struct lease lease;
    int n_news = 0;

    require(lease_create(&lease, NULL) == FSDP_OK, "no lease");
    require(bind(fd, (struct sockaddr *)&address, size) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &size) == 0,
            "no socket");
    memcpy(&aim.to, &address, sizeof address);
    sender = pulse_sender_create(&lease, NULL);
    require(sender != NULL, "no thread");
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 50 == 0) {
            aim.session[0]++;
            (void)pulse_sender_aim(sender, NULL);
            lease_clear(&lease);
            (void)pulse_sender_aim(sender, &aim);
        }
        require(serve(fd), "no answer");
        lease_extend(&lease, clock_boot_ns(), LEASE_MS);
        (void)lease_is_over(&lease);
        n_news += pulse_sender_turn(sender, i).came_ms > 0;
    }
    pulse_sender_destroy(sender);
    require(n_news > 0 && lease_runs(&lease), "no answer has come");
    lease_destroy(&lease);
    close(fd);
}

static bool holds(void *arg)
{
    (*(int *)arg)++;
    return true;
}

static void keep(void *arg, int64_t contact_until_ns)
{
    *(int *)arg += contact_until_ns > 0;
}

/* A port of loopback that no process has. */
static struct sockaddr_in free_address(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t size = sizeof address;

    require(bind(fd, (struct sockaddr *)&address, size) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &size) == 0,
            "no port");
    close(fd);
    return address;
}

static void answer_a_member(void)
{
    static const unsigned char job_key[TLS_KEY_BYTES] = "a key";
    const struct sockaddr_in address = free_address();
    int n_calls = 0;
    const struct pulse_lead lead = { holds, keep, &n_calls };
    struct pulse_aim aim = { .session = "a session", .pace_ms = 1, .patience_ms = LEASE_MS };
    struct pulse_listener *listener = pulse_listener_create(LEASE_MS, job_key);
    struct pulse_member members[2];
    struct pulse_sender *sender;
    struct lease lease;
    int64_t answered_ns = 0;

    require(lease_create(&lease, NULL) == FSDP_OK, "no lease");
    require(pulse_listener_bind(listener, (const struct sockaddr *)&address), "no listener");
    pulse_listener_admit(listener, &members[0], aim.session);
    require(pulse_listener_serve(listener, &lead), "no thread that answers");
    memcpy(&aim.to, &address, sizeof address);
    sender = pulse_sender_create(&lease, job_key);
    require(sender != NULL, "no thread that asks");
    (void)pulse_sender_aim(sender, &aim);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned char other[SESSION_IDENTITY_BYTES] = { (unsigned char)i };

        pulse_listener_admit(listener, &members[1], other);
        for (const int64_t before_ns = answered_ns; answered_ns == before_ns;) {
            pulse_listener_turn(listener, INT64_MAX);
            answered_ns = pulse_listener_told(listener, &members[0]).answered_ns;
        }
        pulse_listener_heard(listener, &members[0], pulse_sender_turn(sender, 0).answered_ns);
        (void)pulse_listener_forget(listener, &members[1]);
    }
    pulse_sender_destroy(sender);
    pulse_listener_destroy(listener);
    require(n_calls > 0, "the lead was not asked");
    lease_destroy(&lease);
}

int main(void)
{
    ask_a_coordinator();
    answer_a_member();
    return 0;
}
