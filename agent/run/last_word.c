#include "agent/run/last_word.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "agent/arbiter/leader_swept.h"
#include "agent/os/deadlines.h"
#include "agent/rendezvous/identity.h"
#include "agent/run/run_store.h"
#include "agent/wire/swept.h"
#include "agent/wire/tls.h"

/* Tells the coordinator, if the agent was a member of its job. */
static void say_to_coordinator(const struct agent_config *config, const struct swept_will *will)
{
    unsigned char key[TLS_KEY_BYTES];
    enum fsdp_status status = FSDP_OK;
    uv_loop_t loop;

    if (uv_loop_init(&loop) != 0)
        return;
    if (config->secret != NULL)
        status = tls_derive_key(key, config->secret, config->secret_bytes, config->run_id, NULL);
    if (status == FSDP_OK)
        status = swept_say(&loop, will, config->secret != NULL ? key : NULL, identity_job(config),
                           LAST_WORD_MS, NULL);
    if (status == FSDP_OK)
        uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    explicit_bzero(key, sizeof key);
}

static void write_record(const struct agent_config *config, const struct leader_will *will)
{
    struct arbiter_store *store;

    if (run_store_open(&store, config, NULL) != FSDP_OK)
        return;
    (void)leader_swept_say(store, identity_job(config), will, NULL);
    store->ops->destroy(store);
}

/*
 * Writes it into the record of who leads, if the agent led. The store may not answer, and the user waits for
 * the guard's exit status. So a process of its own makes the calls. The guard waits for that process for one
 * lease at most, because a later word would be of no use.
 */
static void say_to_arbiter(const struct agent_config *config, const struct leader_will *will)
{
    struct pollfd gone = { .events = POLLIN };
    const pid_t writer = fork();

    if (writer == 0) {
        write_record(config, will);
        _exit(0);
    }
    if (writer < 0)
        return;
    gone.fd = (int)syscall(SYS_pidfd_open, writer, 0);
    if (gone.fd < 0 || poll(&gone, 1, (int)config->lease_ms) == 0)
        kill(writer, SIGKILL);
    if (gone.fd >= 0)
        close(gone.fd);
}

void last_word_say(void *arg, const struct lease *lease)
{
    const struct agent_config *config = arg;
    struct leader_will leader;
    struct swept_will member;

    if (lease_inherit(lease, &member, sizeof member))
        say_to_coordinator(config, &member);
    else if (lease_inherit(lease, &leader, sizeof leader))
        say_to_arbiter(config, &leader);
}
