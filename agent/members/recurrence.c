#include "agent/members/recurrence.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "agent/record/errors.h"

/* Returns whether a cause says something about the job: see recurrence.h. */
static bool counts(const struct death *cause)
{
    if (cause->kind == DEATH_NONE || cause->kind == DEATH_NODE || first_cause_is_consequence(cause) ||
        first_cause_is_divergence(cause))
        return false;
    return cause->kind != DEATH_SIGNAL || cause->code != SIGKILL || cause->oom_kill;
}

int recurrence_count(struct recurrence *recurrence, const struct death *cause)
{
    if (!counts(cause))
        return 0;
    if (cause->step < 0) {
        *recurrence = (struct recurrence){ 0 };
        return 0;
    }
    if (recurrence->kind != cause->kind || recurrence->code != cause->code ||
        recurrence->phase != cause->phase || recurrence->step != cause->step)
        *recurrence = (struct recurrence){
            .kind = cause->kind, .code = cause->code, .phase = cause->phase, .step = cause->step
        };
    return ++recurrence->n;
}

void recurrence_words(const struct recurrence *recurrence, const char *words, char *out, size_t size)
{
    const char *phase = first_cause_phase_name(recurrence->phase);
    char name[32], how[64] = "without progress";

    if (recurrence->kind == DEATH_SIGNAL)
        snprintf(how, sizeof how, "by %s", errors_signal_name(recurrence->code, name));
    else if (recurrence->kind == DEATH_EXIT || recurrence->kind == DEATH_SPAWN)
        snprintf(how, sizeof how, "with exit code %d", recurrence->code);
    snprintf(out, size, "failed %d times at step %" PRId64 "%s%s %s: the job is the cause%s%s%s",
             recurrence->n, recurrence->step, phase != NULL ? " in " : "", phase != NULL ? phase : "", how,
             words[0] != '\0' ? " (" : "", words, words[0] != '\0' ? ")" : "");
}
