#include "agent/record/first_cause.h"

#include <signal.h>

/*
 * Does the worker use our library? Only the library opens the link; after that the worker's page has its
 * phase.
 */
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
    /*
     * After TERM, some runtimes end themselves by INT or by abort(). So any signal that we have sent counts.
     */
    if (death->kind == DEATH_SIGNAL)
        return (death->code == death->sent_signal && death->code != 0) ||
               (death->code == SIGKILL && death->killed);
    return false;
}

/*
 * Returns the class of a death, in which the lowest is the first cause: 0 for a cause, then workers that
 * blame another one, then workers that we stopped.
 */
static int order(const struct death *death)
{
    if (!first_cause_is_consequence(death))
        return 0;
    return !was_asked(death) ? 1 : first_cause_blames_another(death) ? 2 : 3;
}

/*
 * Returns whether `a` failed before `b`. If their error files give the same whole second, the one that was
 * seen first counts.
 */
static bool is_before(const struct death *a, const struct death *b)
{
    const int64_t raised_a = a->when_ns - a->age_ns, raised_b = b->when_ns - b->age_ns;

    return raised_a != raised_b ? raised_a < raised_b : a->when_ns < b->when_ns;
}

bool first_cause_is_better(const struct death *death, const struct death *cause)
{
    if (death->kind == DEATH_NONE || cause == NULL)
        return death->kind != DEATH_NONE;
    if (order(death) != order(cause))
        return order(death) < order(cause);
    return is_before(death, cause);
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

static const struct {
    const char *name, *words; /* words NULL: the name alone will do */
} phases[] = {
    [FSDP_PHASE_START] = { "start", NULL },
    [FSDP_PHASE_LOAD] = { "load", NULL },
    [FSDP_PHASE_DATA] = { "data", NULL },
    [FSDP_PHASE_FORWARD] = { "forward", NULL },
    [FSDP_PHASE_BACKWARD] = { "backward", NULL },
    [FSDP_PHASE_OPTIMIZER] = { "optimizer", NULL },
    [FSDP_PHASE_COLLECTIVE] = { "collective", NULL },
    [FSDP_PHASE_SAVE] = { "save", NULL },
    [FSDP_PHASE_DONE] = { "done", NULL },
    [FSDP_PHASE_WAIT] = { "wait", "while waiting for other ranks" },
    [FSDP_PHASE_DIVERGED] = { "diverged", "as training diverged" },
    [FSDP_PHASE_DIVERGED_ALONE] = { "diverged", "as training diverged" },
    [FSDP_PHASE_OPEN] = { "open", NULL },
    [PROGRAM_STARTING] = { "starting", "before rendezvous" }, /* always, if the program meets nowhere */
    [PROGRAM_RENDEZVOUS] = { "rendezvous", "in rendezvous" },
    [PROGRAM_RUNNING] = { "running", "while running" },
    [PROGRAM_STOPPING] = { "stopping", "while stopping" },
};
enum { N_PHASES = sizeof phases / sizeof *phases };

const char *first_cause_phase_name(int phase)
{
    return phase >= 0 && phase < N_PHASES ? phases[phase].name : NULL;
}

const char *first_cause_phase_words(int phase)
{
    return phase >= 0 && phase < N_PHASES ? phases[phase].words : NULL;
}
