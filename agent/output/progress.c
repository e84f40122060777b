#include "agent/output/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void progress_note(struct progress_clock *clock, const struct agent_progress *progress, int64_t now_ns)
{
    double step_s;

    if (clock->last_ns == 0 || progress->generation != clock->generation ||
        progress->step < clock->last_step) {
        *clock = (struct progress_clock){ .generation = progress->generation };
        clock->first_step = clock->last_step = progress->step;
        clock->first_ns = clock->last_ns = now_ns;
        return;
    }
    if (progress->step == clock->last_step)
        return;
    if (clock->last_step == clock->first_step && clock->step_s == 0 && clock->first_step == 0) {
        /* The time before the first step was start-up, so the pace is measured from the first step on. */
        clock->first_step = clock->last_step = progress->step;
        clock->first_ns = clock->last_ns = now_ns;
        return;
    }
    step_s = (double)(now_ns - clock->last_ns) / 1e9 / (double)(progress->step - clock->last_step);
    clock->step_s = clock->step_s == 0 ? step_s : 0.9 * clock->step_s + 0.1 * step_s;
    clock->last_step = progress->step;
    clock->last_ns = now_ns;
}

double progress_left_s(const struct progress_clock *clock, const struct agent_progress *progress,
                       int64_t now_ns)
{
    double left, since;

    if (clock->step_s <= 0 || progress->total_steps < progress->step)
        return -1;
    left = clock->step_s * (double)(progress->total_steps - progress->step);
    /* seconds since the current step began; at most the length of a step */
    since = (double)(now_ns - clock->last_ns) / 1e9;
    left -= since < clock->step_s ? since : clock->step_s;
    return left > 0 ? left : 0;
}

/* The line's word for each phase; NULL: no word, because computing is the usual case. */
static const char *const phase_words[] = {
    [FSDP_PHASE_START] = "starting",    [FSDP_PHASE_OPEN] = "starting",
    [FSDP_PHASE_LOAD] = "loading",      [FSDP_PHASE_SAVE] = "saving",
    [FSDP_PHASE_DONE] = "done",         [FSDP_PHASE_WAIT] = "waiting",
    [FSDP_PHASE_DIVERGED] = "diverged", [FSDP_PHASE_DIVERGED_ALONE] = "diverged",
};
static const size_t n_phases = sizeof phase_words / sizeof *phase_words;

static void put_rate(char *out, size_t size, double rate)
{
    if (!(rate >= 0) || isinf(rate))
        out[0] = '\0';
    else if (rate < 999.5)
        snprintf(out, size, "  %.0f tok/s", rate);
    else if (rate < 999.5e3)
        snprintf(out, size, "  %.3gk tok/s", rate / 1e3);
    else
        snprintf(out, size, "  %.3gM tok/s", rate / 1e6);
}

static void put_left(char *out, size_t size, double left_s)
{
    const uint64_t s = left_s < 1e9 ? (uint64_t)(left_s + 0.5) : 0;

    if (!(left_s >= 0) || left_s >= 1e9)
        out[0] = '\0';
    else if (s < 3600)
        snprintf(out, size, "  %" PRIu64 ":%02" PRIu64 " left", s / 60, s % 60);
    else if (s < 100 * 3600)
        snprintf(out, size, "  %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "  %" PRIu64 " d %" PRIu64 " h left", s / 86400, s / 3600 % 24);
}

static const char bar_full[] = "########################", bar_empty[] = "------------------------";
enum { BAR_MIN = 6, BAR_MAX = sizeof bar_full - 1 };

/* Writes " [####----]" of at most `room` columns; nothing if the room is too small. Returns its columns. */
static int put_bar(char *out, size_t size, int room, double done, bool colour)
{
    const int cells = room - 3 > BAR_MAX ? BAR_MAX : room - 3;
    const int full = (int)(done * cells);

    out[0] = '\0';
    if (cells < BAR_MIN || size < (size_t)cells + 32)
        return 0;
    snprintf(out, size, " [%s%.*s%s%.*s]", colour ? "\033[32m" : "", full, bar_full, colour ? "\033[0m" : "",
             cells - full, bar_empty);
    return cells + 3;
}

/* Append `part` if it fits into the columns that are left. Returns whether it did. */
static bool put_part(char *out, size_t size, int *room, const char *part)
{
    const int width = (int)strlen(part);
    const size_t end = strlen(out);

    if (width > *room || end + (size_t)width + 1 > size)
        return false;
    memcpy(out + end, part, (size_t)width + 1);
    *room -= width;
    return true;
}

const char *progress_line(char *out, size_t size, int columns, bool colour,
                          const struct agent_progress *progress, double left_s)
{
    const uint64_t total = progress->total_steps, step = progress->step;
    const double done = total == 0 ? 0 : step >= total ? 1 : (double)step / (double)total;
    const char *phase = progress->stopping                   ? "stopping"
                        : (size_t)progress->phase < n_phases ? phase_words[progress->phase]
                                                             : NULL;
    char head[64], percent[16], loss[40] = "", rate[40], left[48], word[40] = "", generation[32] = "",
                                bar[128];
    const char *const tail[] = { loss, left, rate, word, generation }; /* by worth, the least last */
    const int n_tail = sizeof tail / sizeof *tail;
    int room = columns, wanted = 0, bar_columns;

    out[0] = '\0';
    if (total > 0)
        snprintf(head, sizeof head, "step %" PRIu64 "/%" PRIu64, step, total);
    else
        snprintf(head, sizeof head, "step %" PRIu64, step);
    snprintf(percent, sizeof percent, " %3d%%", (int)(done * 100));
    if (isfinite(progress->loss))
        snprintf(loss, sizeof loss, "  loss %.4f", progress->loss);
    put_rate(rate, sizeof rate, progress->tokens_per_s);
    put_left(left, sizeof left, left_s);
    if (phase != NULL)
        snprintf(word, sizeof word, "  %s", phase);
    if (progress->generation > 0)
        snprintf(generation, sizeof generation, "  generation %d", progress->generation);
    if (columns < 10 || !put_part(out, size, &room, head))
        return out;
    if (total > 0)
        put_part(out, size, &room, percent);
    /* If the terminal is narrow, the bar is left out first, and then the parts from the right. */
    for (int i = 0; i < n_tail; i++)
        wanted += (int)strlen(tail[i]);
    bar_columns = total > 0 ? put_bar(bar, sizeof bar, room - wanted, done, colour) : 0;
    if (bar_columns > 0 && strlen(out) + strlen(bar) < size) {
        strcat(out, bar); /* appended directly: colours take no columns, so put_part() would count too many */
        room -= bar_columns;
    }
    for (int i = 0; i < n_tail; i++)
        if (!put_part(out, size, &room, tail[i]))
            break;
    return out;
}
