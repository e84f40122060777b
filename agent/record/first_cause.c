#include "agent/record/first_cause.h"

#include <signal.h>

/* Only our library opens the link, and from then on the page knows the phase. */
static bool is_ours(const struct death *death)
{
    return death->phase >= 0 && death->phase < PROGRAM_STARTING;
}

bool first_cause_blames_another(const struct death *death)
{
    return death->kind == DEATH_EXIT && is_ours(death) &&
           (death->code == FSDP_EXIT_PEER || death->code == FSDP_EXIT_LINK);
}

static bool was_asked(const struct death *death)
{
    return death->sent_signal != 0 || death->killed;
}

bool first_cause_is_consequence(const struct death *death)
{
    if (first_cause_blames_another(death))
        return true;
    if (death->kind == DEATH_EXIT)
        return was_asked(death);
    /* After TERM, some runtimes end themselves by INT or by the abort of a handler; only what we sent counts. */
    if (death->kind == DEATH_SIGNAL)
        return (death->code == death->sent_signal && death->code != 0) ||
               (death->code == SIGKILL && death->killed);
    return false;
}

/* Lower comes first: a cause, then who blames another, then who was stopped. */
static int order(const struct death *death)
{
    if (!first_cause_is_consequence(death))
        return 0;
    return !was_asked(death) ? 1 : first_cause_blames_another(death) ? 2 : 3;
}

/* Ties, as of two errors within the second that their files name, go to the one that was seen first. */
static bool is_before(const struct death *a, const struct death *b)
{
    const int64_t raised_a = a->when_ns - a->age_ns, raised_b = b->when_ns - b->age_ns;

    return raised_a != raised_b ? raised_a < raised_b : a->when_ns < b->when_ns;
}

int first_cause_find(const struct death *deaths, size_t n)
{
    int best = -1;

    for (size_t i = 0; i < n; i++) {
        if (deaths[i].kind == DEATH_NONE)
            continue;
        if (best < 0 || order(&deaths[i]) < order(&deaths[best]) ||
            (order(&deaths[i]) == order(&deaths[best]) && is_before(&deaths[i], &deaths[best])))
            best = (int)i;
    }
    return best;
}

bool first_cause_is_divergence(const struct death *death)
{
    const bool diverged = death->phase == FSDP_PHASE_DIVERGED || death->phase == FSDP_PHASE_DIVERGED_ALONE;

    return death->kind == DEATH_EXIT && diverged && !first_cause_is_consequence(death);
}

int first_cause_status(const struct death *death)
{
    switch (death->kind) {
    case DEATH_NONE:
        return 0;
    case DEATH_EXIT:
    case DEATH_SPAWN:
        return death->code;
    case DEATH_SIGNAL:
    case DEATH_HANG:
    case DEATH_STUCK:
        return 128 + death->code;
    case DEATH_NODE:
        return FSDP_EXIT_LINK;
    }
    return FSDP_EXIT_BUG;
}

bool first_cause_is_final(const struct death *death, bool job)
{
    if (death->kind == DEATH_SPAWN)
        return death->code == 126 || death->code == 127;
    if (death->kind == DEATH_STUCK)
        return true;
    if (!job || death->kind != DEATH_EXIT)
        return false;
    return death->code == FSDP_EXIT_USAGE || death->code == FSDP_EXIT_INPUT || death->code == FSDP_EXIT_IO ||
           death->code == FSDP_EXIT_CONFIG;
}

const char *first_cause_phase_name(int phase)
{
    switch (phase) {
    case FSDP_PHASE_START:
        return "start";
    case FSDP_PHASE_LOAD:
        return "load";
    case FSDP_PHASE_DATA:
        return "data";
    case FSDP_PHASE_FORWARD:
        return "forward";
    case FSDP_PHASE_BACKWARD:
        return "backward";
    case FSDP_PHASE_OPTIMIZER:
        return "optimizer";
    case FSDP_PHASE_COLLECTIVE:
        return "collective";
    case FSDP_PHASE_SAVE:
        return "save";
    case FSDP_PHASE_DONE:
        return "done";
    case FSDP_PHASE_WAIT:
        return "wait";
    case FSDP_PHASE_DIVERGED:
    case FSDP_PHASE_DIVERGED_ALONE:
        return "diverged";
    case PROGRAM_STARTING:
        return "starting";
    case PROGRAM_RENDEZVOUS:
        return "rendezvous";
    case PROGRAM_RUNNING:
        return "running";
    case PROGRAM_STOPPING:
        return "stopping";
    default:
        return NULL;
    }
}

const char *first_cause_phase_words(int phase)
{
    switch (phase) {
    case FSDP_PHASE_WAIT:
        return "while waiting for other ranks";
    case FSDP_PHASE_DIVERGED:
    case FSDP_PHASE_DIVERGED_ALONE:
        return "as training diverged";
    case PROGRAM_STARTING:
        return "before rendezvous"; /* as is, all its life, a program that meets nowhere */
    case PROGRAM_RENDEZVOUS:
        return "in rendezvous";
    case PROGRAM_RUNNING:
        return "while running";
    case PROGRAM_STOPPING:
        return "while stopping";
    default:
        return NULL;
    }
}
