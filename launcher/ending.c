#include "launcher/ending.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/cost.h"
#include "shard_runtime/core/exit_status.h"

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-=:@%,";

struct words {
    char *out;
    size_t size, whole; /* size: of `out`; whole: length of the complete lines in it */
    size_t length;
    bool full;
};

__attribute__((format(printf, 2, 3))) static void add(struct words *words, const char *format, ...)
{
    va_list args;
    int n;

    if (words->full)
        return;
    va_start(args, format);
    n = vsnprintf(words->out + words->length, words->size - words->length, format, args);
    va_end(args);
    words->full = n < 0 || (size_t)n >= words->size - words->length;
    if (!words->full)
        words->length += (size_t)n;
}

static void end_line(struct words *words)
{
    add(words, "\n");
    if (words->full)
        words->length = words->whole;
    words->out[words->length] = '\0';
    words->whole = words->length;
}

static void add_rate(struct words *words, double rate)
{
    if (!(rate > 0))
        return;
    if (rate < 999.5)
        add(words, ", %.0f tokens/s", rate);
    else
        add(words, rate < 999.5e3 ? ", %.3gk tokens/s" : ", %.3gM tokens/s",
            rate < 999.5e3 ? rate / 1e3 : rate / 1e6);
}

static void add_restarts(struct words *words, int n_restarts, double restarting_s)
{
    char clock[COST_CLOCK_BYTES];

    add(words, "fsdprun: %d restart%s cost %s", n_restarts, n_restarts == 1 ? "" : "s",
        cost_clock(restarting_s, clock));
}

size_t ending_program_words(int n_restarts, double restarting_s, const char *logs, char *out, size_t size)
{
    struct words words = { .out = out, .size = size };

    add_restarts(&words, n_restarts, restarting_s);
    if (logs != NULL)
        add(&words, "; logs: %s", logs);
    end_line(&words);
    return words.length;
}

size_t ending_words(const struct ending *ending, char *out, size_t size)
{
    struct words words = { .out = out, .size = size };
    const char *quote = strspn(ending->run_dir, plain) == strlen(ending->run_dir) ? "" : "'";
    char clock[COST_CLOCK_BYTES];

    out[0] = '\0';
    /*
     * The agent reads the steps of a rank four times a second. So after a failure the count may be too low.
     */
    add(&words, "fsdprun: %s%" PRIu64 " of %" PRIu64 " steps done after %s",
        ending->status == 0 || ending->status == FSDP_EXIT_NOTICE ? "" : "at least ", ending->steps,
        ending->total_steps, cost_clock(ending->seconds, clock));
    add_rate(&words, ending->tokens_per_s);
    end_line(&words);
    if (ending->n_restarts > 0)
        add_restarts(&words, ending->n_restarts, ending->restarting_s);
    if (ending->n_restarts > 0 && ending->n_repeated > 0)
        add(&words, ", and %" PRIu64 " step%s done again", ending->n_repeated,
            ending->n_repeated == 1 ? " was" : "s were");
    if (ending->n_restarts > 0)
        end_line(&words);
    if (ending->saved)
        add(&words, "fsdprun: checkpoint: %s%s/step-%08" PRIu64 "\n",
            ending->checkpoint_dir != NULL ? ending->checkpoint_dir : ending->run_dir,
            ending->checkpoint_dir != NULL ? "" : "/checkpoints", ending->saved_step);
    add(&words, "fsdprun: logs: %s/logs", ending->run_dir);
    if (ending->summary != NULL)
        add(&words, "; summary: %s", ending->summary);
    end_line(&words);
    /* a path with ' in it cannot be quoted simply, so the line is left out */
    if (ending->status == 0 && strchr(ending->run_dir, '\'') == NULL)
        add(&words, "fsdprun: next: fsdprun plot %s%s%s", quote, ending->run_dir, quote);
    else if (ending->saved && ending->resumes)
        add(&words, "fsdprun: next: the same command goes on from step %" PRIu64, ending->saved_step);
    else
        return words.length;
    end_line(&words);
    return words.length;
}
