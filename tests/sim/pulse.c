/* agent/rendezvous/pulse_*.h: no datagram passes between these hosts, so the beats of the sessions are left. */
#include "agent/rendezvous/pulse_listener.h"
#include "agent/rendezvous/pulse_sender.h"

struct pulse_listener *pulse_listen(uv_loop_t *loop, const struct sockaddr *address, const unsigned char *key,
                                    pulse_question *question, void *arg)
{
    (void)loop, (void)address, (void)key, (void)question, (void)arg;
    return NULL;
}

void pulse_listener_close(struct pulse_listener *listener)
{
    (void)listener;
}

struct pulse_sender *pulse_sender_create(const struct lease *lease, const unsigned char *key)
{
    (void)lease, (void)key;
    return NULL;
}

void pulse_sender_destroy(struct pulse_sender *sender)
{
    (void)sender;
}

struct pulse_news pulse_sender_aim(struct pulse_sender *sender, const struct pulse_aim *aim)
{
    (void)sender, (void)aim;
    return (struct pulse_news){ 0 };
}

struct pulse_news pulse_sender_turn(struct pulse_sender *sender, int64_t answered_ns)
{
    (void)sender, (void)answered_ns;
    return (struct pulse_news){ 0 };
}
