#include "agent/arbiter/arbiter.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/lead.h"
#include "agent/os/disk.h"
#include "shard_runtime/core/clock.h"

enum { SEEN = 8, WORDS_BYTES = FSDP_ERR_MESSAGE_BYTES + 128 };

/* One call of the store. Its thread has all of it from `work` to `done`. */
struct call {
    struct disk_job job; /* first: `work` and `done` get a pointer to it */
    struct arbiter *arbiter;
    enum lead_call what;
    struct leader_record record, brought;
    enum arbiter_answer answer;
    struct fsdp_err err;
};

struct arbiter {
    struct lead lead;
    struct arbiter_handlers handlers;
    void *arg;
    struct arbiter_store *store;
    struct disk *disk;
    uv_timer_t timer;
    struct call call;
    bool stopped; /* no call begins any more, and no callback comes */

    /* agents whose records were read, the newest ones */
    unsigned char seen[SEEN][SESSION_IDENTITY_BYTES];
    unsigned n_seen;

    int64_t failing_ms; /* since when the store fails; 0: it does not */
    bool waits;         /* it was said that this agent waits for a leader that may be gone */
};

/* Words */

static void note(struct arbiter *arbiter, const char *words)
{
    if (!arbiter->stopped)
        arbiter->handlers.note(arbiter->arg, words);
}

static void look_at_answer(struct arbiter *arbiter, int64_t now)
{
    const struct call *call = &arbiter->call;
    char words[WORDS_BYTES];

    if (call->answer == ARBITER_FAILED && arbiter->failing_ms == 0) {
        arbiter->failing_ms = now;
        snprintf(words, sizeof words, "the arbiter (%s) fails: %s", arbiter->store->ops->name,
                 call->err.message);
        note(arbiter, words);
    } else if (call->answer != ARBITER_FAILED && arbiter->failing_ms != 0) {
        snprintf(words, sizeof words, "the arbiter (%s) answers again after %.1f s",
                 arbiter->store->ops->name, (double)(now - arbiter->failing_ms) / 1e3);
        arbiter->failing_ms = 0;
        note(arbiter, words);
    }
}

/* A call that takes longer than a leader may wait between two writes. */
static void look_for_silence(struct arbiter *arbiter, int64_t now)
{
    const struct lead *lead = &arbiter->lead;
    char words[WORDS_BYTES];

    if (lead->call == LEAD_NO_CALL || arbiter->failing_ms != 0 ||
        now - lead->began_ms < lead->self.lease_ms / LEAD_RENEWS)
        return;
    arbiter->failing_ms = now;
    snprintf(words, sizeof words, "the arbiter (%s) has not answered for %.1f s", arbiter->store->ops->name,
             (double)(now - lead->began_ms) / 1e3);
    note(arbiter, words);
}

/*
 * A job that is started again after a crash finds the record of a leader that said no last word. One that
 * lives writes it again soon.
 */
static void look_for_a_wait(struct arbiter *arbiter, int64_t now)
{
    const struct lead *lead = &arbiter->lead;
    const struct leader_record *known = &lead->known;
    char words[WORDS_BYTES];

    if (arbiter->waits || known->term == 0 || known->state != LEADER_LEADS ||
        now - lead->seen_ms < known->lease_ms / 2 ||
        !(lead->first || (lead->stands && lead_patience_ms(lead) > 2 * known->lease_ms)))
        return;
    arbiter->waits = true;
    snprintf(words, sizeof words,
             "the agent at %s:%d%s may still lead, or another take over: the record is watched for %.1f s",
             known->host, known->port, known->run == lead->self.run ? "" : ", of another run,",
             (double)lead_patience_ms(lead) / 1e3);
    note(arbiter, words);
}

static void tell_deposed(struct arbiter *arbiter)
{
    const struct lead *lead = &arbiter->lead;
    const struct leader_record *known = &lead->known;
    char words[WORDS_BYTES];

    if (known->term > lead->self.term)
        snprintf(words, sizeof words, "the agent at %s:%d leads", known->host, known->port);
    else
        snprintf(words, sizeof words, "the arbiter (%s) took no record for %.1f s", arbiter->store->ops->name,
                 (double)lead->self.lease_ms / 1e3);
    arbiter->handlers.deposed(arbiter->arg, words);
}

/* Progress */

static void tell(struct arbiter *arbiter, enum lead_news news)
{
    const struct arbiter_handlers *handlers = &arbiter->handlers;
    const struct lead *lead = &arbiter->lead;

    switch (news) {
    case LEAD_BEGAN:
        handlers->leads(arbiter->arg, lead->self.term, lead->before.term > 0 ? &lead->before : NULL,
                        lead->fence_until_ms);
        break;
    case LEAD_DEPOSED:
        tell_deposed(arbiter);
        break;
    case LEAD_FOLLOW:
        handlers->follow(arbiter->arg, &lead->known);
        break;
    case LEAD_ENDED:
        handlers->ended(arbiter->arg, &lead->known);
        break;
    case LEAD_NO_NEWS:
        break;
    }
}

static void on_timer(uv_timer_t *timer);

static void wake_in(struct arbiter *arbiter, int64_t ms)
{
    if (!arbiter->stopped)
        uv_timer_start(&arbiter->timer, on_timer, ms > 0 ? (uint64_t)ms : 0, 0);
}

/* Handlers may stop the arbiter at any of these steps. */
static void advance(struct arbiter *arbiter)
{
    enum lead_news news;

    lead_look(&arbiter->lead, clock_boot_ms());
    look_for_silence(arbiter, clock_boot_ms());
    look_for_a_wait(arbiter, clock_boot_ms());
    while (!arbiter->stopped && (news = lead_news(&arbiter->lead)) != LEAD_NO_NEWS)
        tell(arbiter, news);
    if (arbiter->stopped || arbiter->lead.role == LEAD_OVER)
        return;
    if (disk_is_idle(arbiter->disk)) {
        arbiter->call.what = lead_next(&arbiter->lead, &arbiter->call.record, clock_boot_ms());
        if (arbiter->call.what != LEAD_NO_CALL)
            disk_submit(arbiter->disk, &arbiter->call.job);
    }
    wake_in(arbiter, lead_due_ms(&arbiter->lead) - clock_boot_ms());
}

static void on_timer(uv_timer_t *timer)
{
    advance(timer->data);
}

/* On the arbiter's thread. */
static void work(struct disk_job *job)
{
    struct call *call = (struct call *)job;
    struct arbiter_store *store = call->arbiter->store;

    fsdp_err_clear(&call->err);
    switch (call->what) {
    case LEAD_READ:
        call->answer = store->ops->read(store, &call->brought, &call->err);
        break;
    case LEAD_CLAIM:
        call->answer = store->ops->claim(store, &call->record, &call->brought, &call->err);
        break;
    case LEAD_RENEW:
        call->answer = store->ops->renew(store, &call->record, &call->brought, &call->err);
        break;
    case LEAD_NO_CALL:
        assert(false);
    }
}

static void remember(struct arbiter *arbiter, const struct leader_record *record)
{
    if (!arbiter_has_seen(arbiter, record->identity))
        memcpy(arbiter->seen[arbiter->n_seen++ % SEEN], record->identity, SESSION_IDENTITY_BYTES);
}

static void done(struct disk_job *job)
{
    struct call *call = (struct call *)job;
    struct arbiter *arbiter = call->arbiter;
    const int64_t now = clock_boot_ms();

    if (call->what == LEAD_READ && call->answer == ARBITER_DONE)
        remember(arbiter, &call->brought);
    lead_answered(&arbiter->lead, call->answer, &call->brought, now);
    look_at_answer(arbiter, now);
    if (!arbiter->stopped)
        advance(arbiter);
}

/* Life */

enum fsdp_status arbiter_create(struct arbiter **out, uv_loop_t *loop, const struct arbiter_spec *spec,
                                const struct arbiter_handlers *handlers, void *arg, struct fsdp_err *err)
{
    struct arbiter *arbiter = calloc(1, sizeof *arbiter);
    struct leader_record self = { .run = spec->run, .lease_ms = spec->lease_ms };
    enum fsdp_status status = FSDP_ERR_NOMEM;

    *out = NULL;
    if (arbiter == NULL)
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the arbiter");
    else
        status = disk_create(&arbiter->disk, loop, err);
    if (status != FSDP_OK) {
        free(arbiter);
        spec->store->ops->destroy(spec->store);
        return status;
    }
    memcpy(self.identity, spec->identity, sizeof self.identity);
    lead_init(&arbiter->lead, &self, clock_boot_ms());
    arbiter->handlers = *handlers;
    arbiter->arg = arg;
    arbiter->store = spec->store;
    arbiter->call = (struct call){ .job = { .work = work, .done = done }, .arbiter = arbiter };
    uv_timer_init(loop, &arbiter->timer);
    arbiter->timer.data = arbiter;
    wake_in(arbiter, 0);
    *out = arbiter;
    return FSDP_OK;
}

bool arbiter_is_idle(const struct arbiter *arbiter)
{
    return arbiter == NULL || disk_is_idle(arbiter->disk);
}

static void stop(struct arbiter *arbiter)
{
    arbiter->stopped = true;
    uv_timer_stop(&arbiter->timer);
}

void arbiter_when_idle(struct arbiter *arbiter, void (*idle)(void *arg), void *arg)
{
    stop(arbiter);
    disk_when_idle(arbiter->disk, idle, arg);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void arbiter_destroy(struct arbiter *arbiter)
{
    if (arbiter == NULL)
        return;
    stop(arbiter);
    disk_close(arbiter->disk);
    arbiter->store->ops->destroy(arbiter->store);
    uv_close((uv_handle_t *)&arbiter->timer, on_closed);
}

/* Wishes */

void arbiter_claim_first(struct arbiter *arbiter, const char *host, int port)
{
    lead_first(&arbiter->lead, host, port);
    wake_in(arbiter, 0);
}

void arbiter_old_is_gone(struct arbiter *arbiter)
{
    lead_old_is_gone(&arbiter->lead, clock_boot_ms());
}

void arbiter_stand(struct arbiter *arbiter, int seat, const char *host, int port, int64_t heard_ms,
                   uint64_t let_in)
{
    lead_stand(&arbiter->lead, seat, host, port, heard_ms, let_in, clock_boot_ms());
    wake_in(arbiter, 0);
}

void arbiter_sit(struct arbiter *arbiter, int seat)
{
    lead_sit(&arbiter->lead, seat);
}

void arbiter_withdraw(struct arbiter *arbiter)
{
    lead_withdraw(&arbiter->lead);
}

void arbiter_publish(struct arbiter *arbiter, const struct leader_progress *progress)
{
    lead_publish(&arbiter->lead, progress);
    wake_in(arbiter, 0);
}

void arbiter_move(struct arbiter *arbiter, const char *host, int port)
{
    lead_move(&arbiter->lead, host, port);
    wake_in(arbiter, 0);
}

void arbiter_go_on(struct arbiter *arbiter, bool unlocked)
{
    if (arbiter->lead.self.goes_on && arbiter->lead.self.unlocked == unlocked)
        return;
    lead_go_on(&arbiter->lead, unlocked);
    wake_in(arbiter, 0);
}

void arbiter_in_contact_until(struct arbiter *arbiter, int64_t until_ms)
{
    lead_in_contact_until(&arbiter->lead, until_ms);
}

void arbiter_resign(struct arbiter *arbiter, int exit_status)
{
    lead_resign(&arbiter->lead, exit_status);
    wake_in(arbiter, 0);
}

void arbiter_leave(struct arbiter *arbiter)
{
    lead_leave(&arbiter->lead);
    wake_in(arbiter, 0);
}

int64_t arbiter_holds_until_ms(const struct arbiter *arbiter)
{
    return lead_holds_until_ms(&arbiter->lead);
}

const struct leader_record *arbiter_record(const struct arbiter *arbiter)
{
    return arbiter->lead.known.term > 0 ? &arbiter->lead.known : NULL;
}

bool arbiter_answers(const struct arbiter *arbiter)
{
    return arbiter->failing_ms == 0;
}

bool arbiter_has_seen(const struct arbiter *arbiter, const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    for (unsigned i = 0; i < arbiter->n_seen && i < SEEN; i++)
        if (memcmp(arbiter->seen[i], identity, SESSION_IDENTITY_BYTES) == 0)
            return true;
    return false;
}
