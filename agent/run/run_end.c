/*
 * How a run ends. Its world is gone, or never was. Three waits come one after another:
 *   1. For the disk: it takes the last lines of logs and events. So the console gets them too, and everything
 *      that no file took is counted.
 *   2. For the readers of the output (output_drain()).
 *   3. For what else waits for a disk, e.g. a thread that publishes a checkpoint.
 * A disk that got nothing done for DISK_WAIT_MS is given up. A slow one that goes on is waited for. But after
 * a signal the first wait takes DISK_SLOW_MS at most, and the third DISK_WAIT_MS: the guard does not wait
 * longer. On one node there is no disk in this sense, and the first wait is over at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/os/sink.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/text.h"
#include "shard_runtime/shardfile/io_beneath.h"

enum { LOOK_MS = 250 };

/* Prints the line that names the files on this node with more details about the failure, or nothing. */
static void name_files(const struct run *run, char out[RUN_WHERE_BYTES])
{
    const bool errors = run->explained && run->recorded, log = run->log[0] != '\0';

    out[0] = '\0';
    if (errors || log)
        snprintf(out, RUN_WHERE_BYTES, "fsdprun: more in %s%s%s%s\n", errors ? rundir_path(run->rundir) : "",
                 errors ? "/errors.json" : "", errors && log ? " and " : "", run->log);
}

/* Prints the last lines. Breaks those that are too long for a terminal. */
static void print_last(const char *text, int patience_ms)
{
    const struct sink terminal = { .fd = STDERR_FILENO, .tty = isatty(STDERR_FILENO) != 0 };
    char *wrapped = NULL;
    size_t size;
    FILE *out = terminal.tty ? open_memstream(&wrapped, &size) : NULL;

    if (out != NULL)
        text_wrap_messages(out, text, sink_width(&terminal));
    sink_say(STDERR_FILENO, out != NULL && fclose(out) == 0 ? wrapped : text, patience_ms);
    free(wrapped);
}

/*
 * Prints the first cause as the last line, so that the user sees it directly above the prompt. Lines about
 * the whole run stand above it.
 */
static void say_last(const struct run *run)
{
    const struct agent_observer *observer = &run->config->observer;
    char text[RUN_ENDING_BYTES + RUN_WHERE_BYTES + RUN_ACCOUNT_BYTES + RUN_LINE_BYTES + 16];
    char ending[RUN_ENDING_BYTES] = "", where[RUN_WHERE_BYTES];
    const bool last = run->line[0] != '\0' && (!run->config->quiet || run->status != FSDP_EXIT_NOTICE);

    /* only the node that coordinates has events */
    if (observer->ending != NULL && run->events != NULL && !run->refused && !run->config->quiet)
        observer->ending(observer->arg, run->status,
                         run->captured && run->rundir != NULL && !run->config->output.no_files, ending,
                         sizeof ending);
    if (!last && ending[0] == '\0')
        return;
    snprintf(text, sizeof text, "%s%s", run->within_line ? "\n" : "", ending);
    name_files(run, where);
    if (last)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%sfsdprun: %s\n", where, run->account,
                 run->line);
    print_last(text, run->hurried ? LAST_WORD_MS : -1);
}

void run_discard_directory(struct run *run)
{
    const struct rundir_spec spec = { .kind = RUNDIR_PROGRAM,
                                      .path = run->config->run_dir,
                                      .temporary = true };

    if (run->config->run_dir == NULL || !run->config->run_dir_temporary ||
        rundir_open(&run->rundir, &spec, NULL) != FSDP_OK)
        return;
    rundir_close(run->rundir, true);
    run->rundir = NULL;
}

/*
 * Calls `done`. If the run is stuck, a thread may still use what is not freed here, so `done` ends the
 * process.
 */
static void finish(struct run *run)
{
    void (*done)(void *, int, bool) = run->done;
    void *arg = run->done_arg;
    const int status = run->status;
    const bool stuck = run->stuck;

    say_last(run);
    if (!stuck || disk_is_idle(run->disk)) {
        events_close(run->events);
        if (run->rundir == NULL)
            run_discard_directory(run);
        rundir_close(run->rundir, run->refused || (!run->captured && status == 0));
    }
    if (!stuck) {
        io_beneath_destroy(run->io);
        placement_fini(&run->placement);
        ended_fini(&run->ended);
        free(run);
    }
    done(arg, status, stuck);
}

static void on_closed(uv_handle_t *handle)
{
    struct run *run = handle->data;

    if (--run->n_handles == 0)
        finish(run);
}

/*
 * Closes everything. After that a stuck run does not return to the loop, because a late answer of its thread
 * would use what is closed.
 */
static void leave(struct run *run)
{
    run->ending = RUN_CLOSES;
    run->coordinator = NULL;
    run_desk_close(run);
    uv_timer_stop(&run->patience);
    uplink_destroy(run->uplink);
    nodes_destroy(run->nodes);
    store_host_destroy(run->store);
    run->store = NULL;
    run->within_line = run->output != NULL && output_within_line(run->output);
    run->stuck |= !error_reader_close(run->error_reader);
    if (!run->stuck) {
        world_destroy(run->world);
        output_destroy(run->output);
    }
    run->world = NULL;
    console_destroy(run->console);
    run->console = NULL;
    if (run->stuck) {
        finish(run);
        return;
    }
    run_lead_close(run);
    disk_close(run->disk);
    uv_close((uv_handle_t *)&run->children, on_closed);
    uv_close((uv_handle_t *)&run->patience, on_closed);
    uv_close((uv_handle_t *)&run->directory.tick, on_closed);
}

static void proceed(struct run *run);

static void on_answered(void *arg)
{
    struct run *run = arg;

    if (run->ending == RUN_WRITES || run->ending == RUN_SETTLES)
        proceed(run);
}

void run_lead_answered(void *run)
{
    on_answered(run);
}

static void wait_for_readers(struct run *run);

/*
 * Goes on to the next wait if the current one is over. If it is not over, the thread's answer calls this
 * function again.
 */
static void proceed(struct run *run)
{
    if (!disk_is_idle(run->disk))
        disk_when_idle(run->disk, on_answered, run);
    else if (run->ending == RUN_WRITES)
        wait_for_readers(run);
    else if (!run_lead_is_over(run))
        run_lead_wait(run);
    else if (coordinator_destroy(run->coordinator))
        leave(run);
    else
        coordinator_when_idle(run->coordinator, on_answered, run);
}

static void give_up(struct run *run)
{
    if (!run->gave_up)
        run_say(run, "the disk %s; leaving without it",
                run->silent_ms < DISK_WAIT_MS ? "is too slow" : "does not answer");
    run->gave_up = true;
    if (run->ending == RUN_WRITES) {
        wait_for_readers(run);
        return;
    }
    run->stuck = true;
    leave(run);
}

/*
 * Called every LOOK_MS. It counts its calls to measure time, so time in which the agent itself did not run is
 * not held against the disk.
 */
static void look_at_disk(uv_timer_t *timer)
{
    struct run *run = timer->data;
    const int most_ms = run->ending == RUN_WRITES ? DISK_SLOW_MS : DISK_WAIT_MS;
    const uint64_t progress = disk_progress(run->disk);

    run->waited_ms += LOOK_MS;
    run->silent_ms = progress != run->progress ? 0 : run->silent_ms + LOOK_MS;
    run->progress = progress;
    if (run->silent_ms >= DISK_WAIT_MS || (run->hurried && run->waited_ms >= most_ms))
        give_up(run);
}

static void begin_wait(struct run *run, enum run_ending ending)
{
    run->ending = ending;
    run->waited_ms = run->silent_ms = 0;
    run->progress = disk_progress(run->disk);
    uv_timer_start(&run->patience, look_at_disk, LOOK_MS, LOOK_MS);
    proceed(run);
}

static void settle(uv_timer_t *timer)
{
    struct run *run = timer->data;

    begin_wait(run, RUN_SETTLES);
    if (run->ending == RUN_SETTLES && run->gave_up)
        give_up(run);
}

static void on_drained(void *arg)
{
    struct run *run = arg;

    uv_timer_start(&run->patience, settle, 0, 0);
}

static void wait_for_readers(struct run *run)
{
    const uint64_t n_lost = events_lost(run->events) + events_waiting(run->events);

    run->ending = RUN_DRAINS;
    uv_timer_stop(&run->patience);
    if (n_lost > 0)
        run_say(run, "%" PRIu64 " lines of events.jsonl were not written", n_lost);
    if (run->output != NULL)
        output_drain(run->output, on_drained, run);
    else
        on_drained(run);
}

void run_world_ended(void *arg)
{
    begin_wait(arg, RUN_WRITES);
}
