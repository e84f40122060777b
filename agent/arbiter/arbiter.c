#include "agent/arbiter/arbiter.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/arbiter_thread.h"
#include "agent/arbiter/lead.h"
#include "shard_runtime/core/clock.h"

enum { SEEN = 8, NOTES = 4, WORDS_BYTES = FSDP_ERR_MESSAGE_BYTES + 128 };

struct arbiter {
    struct arbiter_handlers handlers;
    void *arg;
    struct arbiter_store *store;
    struct arbiter_thread *thread;
    uv_timer_t timer;
    int n_open; /* handles that are not closed yet */
    void (*idle)(void *arg);
    void *idle_arg;
    struct leader_record shown; /* of arbiter_record() */

    pthread_mutex_t lock; /* of all that follows */
    struct lead lead;
    bool turns;   /* the loop has run: calls may begin */
    bool calls;   /* one of the store is under way */
    bool stopped; /* no call of the store begins any more, and no handler is called */
    char notes[NOTES][WORDS_BYTES];
    int n_notes;

    /* identities of agents whose records were read; the newest SEEN of them */
    unsigned char seen[SEEN][SESSION_IDENTITY_BYTES];
    unsigned n_seen;

    int64_t failing_ms; /* since when the store has failed; 0: it works */
    bool waits;         /* a line has said that this agent waits for a leader that may be gone */
};

/* One call of the store. */
struct call {
    enum lead_call what;
    struct leader_record record, brought;
    enum arbiter_answer answer;
    struct fsdp_err err;
};

static void lock(struct arbiter *arbiter)
{
    pthread_mutex_lock(&arbiter->lock);
}

static void unlock(struct arbiter *arbiter)
{
    pthread_mutex_unlock(&arbiter->lock);
}

/* Words. All with the lock, but tell(). */

static void note(struct arbiter *arbiter, const char *words)
{
    if (arbiter->n_notes < NOTES)
        snprintf(arbiter->notes[arbiter->n_notes++], WORDS_BYTES, "%s", words);
}

static void look_at_answer(struct arbiter *arbiter, const struct call *call, int64_t now)
{
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

/* Notes when a call of the store takes longer than the time between two writes of a leader. */
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
 * Notes when this agent waits for a leader that may be gone. After a crash, a job that is started again finds
 * the record of a leader that did not end it. A leader that lives would soon write the record again.
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

/* What the loop is told next. */
struct told {
    enum lead_news news;
    bool had_leader;
    uint64_t term;
    struct leader_record record; /* that of the news */
    int64_t fence_until_ms;
    char words[WORDS_BYTES]; /* the words of a note, if there is no other news; for LEAD_DEPOSED the reason */
};

static void say_why_deposed(const struct arbiter *arbiter, char words[WORDS_BYTES])
{
    const struct lead *lead = &arbiter->lead;
    const struct leader_record *known = &lead->known;

    if (known->term > lead->self.term)
        snprintf(words, WORDS_BYTES, "the agent at %s:%d leads", known->host, known->port);
    else
        snprintf(words, WORDS_BYTES, "the arbiter (%s) took no record for %.1f s", arbiter->store->ops->name,
                 (double)lead->self.lease_ms / 1e3);
}

/* Takes the next thing to tell the loop. Returns false if there is nothing. */
static bool take_told(struct arbiter *arbiter, struct told *told)
{
    const struct lead *lead = &arbiter->lead;

    if (arbiter->stopped)
        return false;
    told->news = LEAD_NO_NEWS;
    if (arbiter->n_notes > 0) {
        memcpy(told->words, arbiter->notes[0], WORDS_BYTES);
        memmove(arbiter->notes[0], arbiter->notes[1], (size_t)--arbiter->n_notes * WORDS_BYTES);
        return true;
    }
    told->news = lead_news(&arbiter->lead);
    told->record = told->news == LEAD_BEGAN    ? lead->before
                   : told->news == LEAD_FOLLOW ? lead->followed
                                               : lead->known;
    told->had_leader = told->record.term > 0;
    told->term = lead->self.term;
    told->fence_until_ms = lead->fence_until_ms;
    if (told->news == LEAD_DEPOSED)
        say_why_deposed(arbiter, told->words);
    return told->news != LEAD_NO_NEWS;
}

static void tell(const struct arbiter *arbiter, const struct told *told)
{
    const struct arbiter_handlers *handlers = &arbiter->handlers;

    switch (told->news) {
    case LEAD_BEGAN:
        handlers->leads(arbiter->arg, told->term, told->had_leader ? &told->record : NULL,
                        told->fence_until_ms);
        break;
    case LEAD_DEPOSED:
        handlers->deposed(arbiter->arg, told->words);
        break;
    case LEAD_FOLLOW:
        handlers->follow(arbiter->arg, &told->record);
        break;
    case LEAD_ENDED:
        handlers->ended(arbiter->arg, &told->record);
        break;
    case LEAD_NO_NEWS:
        handlers->note(arbiter->arg, told->words);
        break;
    }
}

/* The thread */

static void make_call(const struct arbiter *arbiter, struct call *call)
{
    struct arbiter_store *store = arbiter->store;

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

static bool has_seen(const struct arbiter *arbiter, const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    for (unsigned i = 0; i < arbiter->n_seen && i < SEEN; i++)
        if (memcmp(arbiter->seen[i], identity, SESSION_IDENTITY_BYTES) == 0)
            return true;
    return false;
}

/* With the lock. */
static void take_answer(struct arbiter *arbiter, const struct call *call)
{
    const int64_t now = clock_boot_ms();

    arbiter->calls = false;
    if (call->what == LEAD_READ && call->answer == ARBITER_DONE && !has_seen(arbiter, call->brought.identity))
        memcpy(arbiter->seen[arbiter->n_seen++ % SEEN], call->brought.identity, SESSION_IDENTITY_BYTES);
    lead_answered(&arbiter->lead, call->answer, &call->brought, now);
    look_at_answer(arbiter, call, now);
}

/* Runs on the thread: looks at the time, and makes the call of the store that is due. */
static int64_t on_turn(void *arg)
{
    struct arbiter *arbiter = arg;
    struct call call = { .what = LEAD_NO_CALL };
    int64_t wait_ms;

    lock(arbiter);
    lead_look(&arbiter->lead, clock_boot_ms());
    if (arbiter->turns && !arbiter->stopped)
        call.what = lead_next(&arbiter->lead, &call.record, clock_boot_ms());
    arbiter->calls = call.what != LEAD_NO_CALL;
    unlock(arbiter);
    if (call.what != LEAD_NO_CALL)
        make_call(arbiter, &call);
    lock(arbiter);
    if (call.what != LEAD_NO_CALL)
        take_answer(arbiter, &call);
    wait_ms = lead_due_ms(&arbiter->lead) - clock_boot_ms();
    if (call.what != LEAD_NO_CALL || lead_has_news(&arbiter->lead))
        arbiter_thread_tell(arbiter->thread);
    if (arbiter->stopped || !arbiter->turns)
        wait_ms = arbiter->lead.self.lease_ms;
    unlock(arbiter);
    return wait_ms > 0 ? wait_ms : 0;
}

/* The loop */

static void on_timer(uv_timer_t *timer);

static void tell_idle(struct arbiter *arbiter)
{
    void (*idle)(void *arg) = arbiter->idle;
    bool calls;

    lock(arbiter);
    calls = arbiter->calls;
    unlock(arbiter);
    if (calls || idle == NULL)
        return;
    arbiter->idle = NULL;
    idle(arbiter->idle_arg); /* last: it may destroy the arbiter */
}

/* Calls the handlers for all news. A handler may stop the arbiter, so that is checked after each call. */
static void advance(struct arbiter *arbiter)
{
    struct told told;
    int64_t now, wait_ms;
    bool stopped, goes_on;

    do {
        lock(arbiter);
        now = clock_boot_ms();
        arbiter->turns = true;
        lead_turned(&arbiter->lead, now);
        lead_look(&arbiter->lead, now);
        look_for_silence(arbiter, now);
        look_for_a_wait(arbiter, now);
        goes_on = take_told(arbiter, &told);
        wait_ms = lead_due_ms(&arbiter->lead) - now;
        stopped = arbiter->stopped;
        unlock(arbiter);
        if (goes_on)
            tell(arbiter, &told);
    } while (goes_on);
    if (stopped) {
        tell_idle(arbiter);
        return;
    }
    arbiter_thread_wake(arbiter->thread);
    uv_timer_start(&arbiter->timer, on_timer, wait_ms > 0 ? (uint64_t)wait_ms : 1, 0);
}

static void on_timer(uv_timer_t *timer)
{
    advance(timer->data);
}

static void on_told(void *arg)
{
    advance(arg);
}

/* Life */

static void on_closed(struct arbiter *arbiter)
{
    if (--arbiter->n_open > 0)
        return;
    pthread_mutex_destroy(&arbiter->lock);
    free(arbiter);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_closed(handle->data);
}

static void on_thread_closed(void *arg)
{
    on_closed(arg);
}

enum fsdp_status arbiter_create(struct arbiter **out, uv_loop_t *loop, const struct arbiter_spec *spec,
                                const struct arbiter_handlers *handlers, void *arg, struct fsdp_err *err)
{
    struct arbiter *arbiter = calloc(1, sizeof *arbiter);
    const struct arbiter_thread_calls calls = { on_turn, on_told, arbiter };
    struct leader_record self = { .run = spec->run, .lease_ms = spec->lease_ms };
    enum fsdp_status status = FSDP_ERR_NOMEM;

    *out = NULL;
    if (arbiter == NULL)
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the arbiter");
    else
        status = arbiter_thread_create(&arbiter->thread, loop, &calls, err);
    if (status != FSDP_OK) {
        free(arbiter);
        spec->store->ops->destroy(spec->store);
        return status;
    }
    pthread_mutex_init(&arbiter->lock, NULL);
    memcpy(self.identity, spec->identity, sizeof self.identity);
    lead_init(&arbiter->lead, &self, clock_boot_ms());
    arbiter->handlers = *handlers;
    arbiter->arg = arg;
    arbiter->store = spec->store;
    arbiter->n_open = 2;
    uv_timer_init(loop, &arbiter->timer);
    arbiter->timer.data = arbiter;
    uv_timer_start(&arbiter->timer, on_timer, 0, 0);
    *out = arbiter;
    return FSDP_OK;
}

bool arbiter_rest(struct arbiter *arbiter)
{
    bool calls;

    if (arbiter == NULL)
        return true;
    lock(arbiter);
    arbiter->stopped = true;
    calls = arbiter->calls;
    unlock(arbiter);
    uv_timer_stop(&arbiter->timer);
    return !calls;
}

void arbiter_when_idle(struct arbiter *arbiter, void (*idle)(void *arg), void *arg)
{
    arbiter->idle = idle;
    arbiter->idle_arg = arg;
    arbiter_thread_tell(arbiter->thread); /* the call may just have ended */
}

void arbiter_destroy(struct arbiter *arbiter)
{
    if (!arbiter_rest(arbiter))
        assert(false);
    if (arbiter == NULL)
        return;
    arbiter_thread_close(arbiter->thread, on_thread_closed);
    arbiter->store->ops->destroy(arbiter->store);
    uv_close((uv_handle_t *)&arbiter->timer, on_timer_closed);
}

/*
 * What the caller wants. After each of these calls the thread does what is due, and the loop tells the news.
 */

static void wished(struct arbiter *arbiter)
{
    if (!arbiter->stopped && arbiter->turns)
        arbiter_thread_wake(arbiter->thread);
    unlock(arbiter);
}

void arbiter_claim_first(struct arbiter *arbiter, const char *host, int port)
{
    lock(arbiter);
    lead_first(&arbiter->lead, host, port);
    wished(arbiter);
}

void arbiter_old_is_gone(struct arbiter *arbiter)
{
    lock(arbiter);
    lead_old_is_gone(&arbiter->lead, clock_boot_ms());
    wished(arbiter);
}

void arbiter_stand(struct arbiter *arbiter, int seat, const char *host, int port, int64_t heard_ms,
                   uint64_t let_in)
{
    lock(arbiter);
    lead_stand(&arbiter->lead, seat, host, port, heard_ms, let_in, clock_boot_ms());
    wished(arbiter);
}

void arbiter_sit(struct arbiter *arbiter, int seat)
{
    lock(arbiter);
    lead_sit(&arbiter->lead, seat);
    wished(arbiter);
}

void arbiter_withdraw(struct arbiter *arbiter)
{
    lock(arbiter);
    lead_withdraw(&arbiter->lead);
    wished(arbiter);
}

void arbiter_publish(struct arbiter *arbiter, const struct leader_progress *progress)
{
    lock(arbiter);
    lead_publish(&arbiter->lead, progress, clock_boot_ms());
    wished(arbiter);
}

void arbiter_move(struct arbiter *arbiter, const char *host, int port)
{
    lock(arbiter);
    lead_move(&arbiter->lead, host, port);
    wished(arbiter);
}

void arbiter_go_on(struct arbiter *arbiter, bool unlocked)
{
    lock(arbiter);
    lead_go_on(&arbiter->lead, unlocked);
    wished(arbiter);
}

void arbiter_in_contact_until(struct arbiter *arbiter, int64_t until_ms)
{
    lock(arbiter);
    lead_in_contact_until(&arbiter->lead, until_ms);
    unlock(arbiter);
}

void arbiter_resign(struct arbiter *arbiter, int exit_status)
{
    lock(arbiter);
    lead_resign(&arbiter->lead, exit_status);
    wished(arbiter);
}

void arbiter_leave(struct arbiter *arbiter)
{
    lock(arbiter);
    lead_leave(&arbiter->lead);
    wished(arbiter);
}

/* Questions */

int64_t arbiter_holds_until_ms(struct arbiter *arbiter)
{
    int64_t until_ms;

    lock(arbiter);
    until_ms = lead_holds_until_ms(&arbiter->lead);
    unlock(arbiter);
    return until_ms;
}

const struct leader_record *arbiter_record(struct arbiter *arbiter)
{
    lock(arbiter);
    arbiter->shown = arbiter->lead.known;
    unlock(arbiter);
    return arbiter->shown.term > 0 ? &arbiter->shown : NULL;
}

bool arbiter_answers(struct arbiter *arbiter)
{
    bool answers;

    lock(arbiter);
    answers = arbiter->failing_ms == 0;
    unlock(arbiter);
    return answers;
}

bool arbiter_has_seen(struct arbiter *arbiter, const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    bool has;

    lock(arbiter);
    has = has_seen(arbiter, identity);
    unlock(arbiter);
    return has;
}
