/*
 * Links libfsdp.
 *
 * The thread that asks for the lease (agent/rendezvous/pulse_sender.h), under the thread sanitizer. Meanwhile
 * the loop turns, extends the lease by the session's own answers, and follows one coordinator after another.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

int main(void)
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
    return 0;
}
