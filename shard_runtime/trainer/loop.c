#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "shard_runtime/comm/flight.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/process_memory.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"
#include "shard_runtime/job/schema.h"
#include "shard_runtime/state/saver.h"
#include "shard_runtime/trainer/batch.h"
#include "shard_runtime/trainer/metrics.h"
#include "shard_runtime/trainer/trainer.h"

enum { NO_STOP = -1 };

struct loop {
    struct trainer *trainer;
    struct batch batch;
    struct metrics metrics; /* open on rank 0 only */
    uint64_t memory_bytes;  /* rank 0: the largest memory seen so far */
    uint64_t first_step;    /* steps done when this process began */
    uint64_t logged_step;   /* the last logged step; first_step if no step was logged yet */
    /*
     * the clock at the end of the last logged step, plus the time of saves since then, because speed excludes
     * saves
     */
    double logged_s;
    /* how long the device was waited for until that time, plus the wait during saves since then */
    double logged_wait_s;
    bool saving; /* a save is on its way to the disk on some rank, as the ranks have agreed */
    /* a snapshot is on its way to another node on some rank, as the ranks have agreed */
    bool copying;
    int64_t wanted_stop; /* what notices ask for: stop after this step; 0: stop at once; NO_STOP: go on */

    /* Snapshots that go to no disk. No agent reports them, so the ranks do. */
    int64_t snapshot_step; /* the step of the last one, until the ranks agreed on how it ended; else -1 */
    /* why this rank's part of that snapshot failed; the status is FSDP_OK if it did not */
    struct fsdp_err trouble;
    bool snapshots_fail; /* the last one failed on some rank, as they agreed */

    /* Results of the last completed step. */
    struct fsdp_loss loss;
    double grad_norm, lr;
    double tokens_per_s;
};

static void sample_memory(struct loop *loop)
{
    uint64_t now;

    if (loop->trainer->rank != 0)
        return;
    /* a plan forecasts the memory that holds the tensors, so metrics report the same */
    now = fsdp_context_device_memory(loop->trainer->context);
    if (now == 0)
        now = process_memory_now();
    if (now > loop->memory_bytes)
        loop->memory_bytes = now;
}

/* Rank 0 reads its memory when it is highest: at the beginning and at the end of backward. */
static void on_phase(enum fsdp_phase phase, void *user)
{
    if (phase == FSDP_PHASE_BACKWARD || phase == FSDP_PHASE_OPTIMIZER)
        sample_memory(user);
}

static double norm_type(const struct job *job)
{
    return job->train.clip_norm_type == JOB_NORM_INF ? (double)INFINITY
                                                     : job->train.clip_norm_type - JOB_CHOICE_NUMBER;
}

/*
 * Computes one step. If the loss or the gradient is not finite, sets *diverged, returns FSDP_OK and does not
 * apply the step. `err` may then describe which value was not finite. *diverged is the same on every rank, so
 * all ranks stop here.
 */
static enum fsdp_status compute_step(struct loop *loop, bool *diverged, struct fsdp_err *err)
{
    struct trainer *t = loop->trainer;
    struct fsdp_progress *page = link_progress(context_link(t->context));
    const uint64_t began_ns = (uint64_t)clock_now_ns();
    enum fsdp_status status;

    fsdp_err_clear(err);
    fsdp_context_phase(t->context, FSDP_PHASE_DATA);
    status = batch_fill(&loop->batch, t->tokens, &t->order, t->cursor, t->data_rank, t->data_ranks, err);
    flight_spend(page, FSDP_SPENT_DATA, (uint64_t)clock_now_ns() - began_ns);
    OK_OR_RETURN(status);
    status = fsdp_model_forward_backward(t->model, loop->batch.micro, t->n_micro, &loop->loss, err);
    loop->grad_norm = (double)NAN;
    /* only with optimizer.in_backward, which must check gradients before it uses them */
    *diverged = status == FSDP_ERR_NOT_FINITE;
    if (status != FSDP_OK)
        return *diverged ? FSDP_OK : status;
    sample_memory(loop);
    loop->grad_norm = 0;
    loop->lr = fsdp_optimizer_lr(t->optimizer);
    if (loop->loss.n_targets > 0) {
        /*
         * Every rank waits until its copy of the last step is complete. So if a rank dies, at most one step
         * is lost.
         */
        if (t->saver != NULL)
            saver_end_copy(t->saver);
        status = fsdp_clip_grad_norm_of(t->model, t->job->train.clip_norm, norm_type(t->job),
                                        &loop->grad_norm, err);
        *diverged = status == FSDP_ERR_NOT_FINITE || (status == FSDP_OK && !isfinite(loop->loss.mean));
        if (status != FSDP_OK || *diverged)
            return *diverged ? FSDP_OK : status;
        OK_OR_RETURN(fsdp_optimizer_step(t->optimizer, err));
    }
    t->step++;
    for (uint64_t m = 0; m < t->n_micro; m++)
        t->cursor = order_advance(t->cursor, t->data_ranks, t->batch);
    sample_memory(loop);
    return FSDP_OK;
}

static uint64_t tokens_per_step(const struct trainer *t)
{
    return (uint64_t)t->data_ranks * t->batch * t->n_micro * t->job->model.seq;
}

static void print_step(const struct loop *loop)
{
    const struct trainer *t = loop->trainer;

    if (loop->loss.n_targets == 0)
        printf("step %" PRIu64 "/%" PRIu64 "  skipped: no target counts\n", t->step, t->job->train.steps);
    else
        printf("step %" PRIu64 "/%" PRIu64 "  loss %.4f  grad norm %.3g  %.0f tokens/s  memory %.0f MiB\n",
               t->step, t->job->train.steps, loop->loss.mean, loop->grad_norm, loop->tokens_per_s,
               (double)loop->memory_bytes / 1048576);
    (void)fflush(stdout);
}

static bool is_logged(const struct trainer *t)
{
    return t->step % t->job->run.log_every == 0 || t->step == 1 || t->step == t->job->train.steps;
}

/*
 * Writes a metrics line. If the disk refuses lines, the trainer reports the first one and counts all, as it
 * does for logs. Training goes on.
 */
static void write_metrics(struct loop *loop, const struct metrics_record *record)
{
    struct fsdp_err why = { 0 };

    if (metrics_write(&loop->metrics, record, &why) != FSDP_OK && loop->metrics.n_lost == 1)
        fprintf(stderr, "fsdp-train: step %" PRIu64 ": %s; training goes on\n", record->step, why.message);
}

static void close_metrics(struct loop *loop)
{
    if (loop->metrics.n_lost > 0)
        fprintf(stderr, "fsdp-train: %" PRIu64 " lines of metrics.jsonl were not written\n",
                loop->metrics.n_lost);
    metrics_close(&loop->metrics);
}

static void log_step(struct loop *loop)
{
    const struct trainer *t = loop->trainer;
    const double now = clock_now_s();
    const uint64_t n_steps = t->step - loop->logged_step;
    const double seconds = now > loop->logged_s ? now - loop->logged_s : 1e-9;
    const double waited_s = fsdp_context_device_wait_s(t->context);
    const struct metrics_record record = {
        .step = t->step,
        .loss = loop->loss.mean,
        .grad_norm = loop->grad_norm,
        .lr = loop->lr,
        .tokens_per_s = (double)(n_steps * tokens_per_step(t)) / seconds,
        .step_s = seconds / (double)n_steps,
        .host_s = waited_s > 0 ? (seconds - (waited_s - loop->logged_wait_s)) / (double)n_steps : 0,
        .memory_bytes = loop->memory_bytes,
        .generation = fsdp_context_generation(t->context),
        .term = link_hello(context_link(t->context))->term,
        .time = clock_epoch_s(),
        .gpu = metrics_read_gpu(link_progress(context_link(t->context))),
    };

    loop->tokens_per_s = record.tokens_per_s;
    if (!is_logged(t) && loop->loss.n_targets > 0)
        return;
    loop->logged_s = now;
    loop->logged_wait_s = waited_s;
    loop->logged_step = t->step;
    if (t->rank != 0)
        return;
    print_step(loop);
    write_metrics(loop, &record);
}

static void show_step(const struct loop *loop, uint64_t step)
{
    const struct trainer *t = loop->trainer;

    fsdp_context_beat(t->context, &(struct fsdp_beat){
                                      .step = step,
                                      .total_steps = t->job->train.steps,
                                      .tokens = t->cursor * t->job->model.seq,
                                      .loss = loop->loss.mean,
                                      .grad_norm = loop->grad_norm,
                                      .tokens_per_s = loop->tokens_per_s,
                                      .memory_bytes = loop->memory_bytes,
                                  });
}

static enum fsdp_status report_step(struct loop *loop, struct fsdp_err *err)
{
    const struct trainer *t = loop->trainer;
    char words[128];

    log_step(loop);
    show_step(loop, t->step);
    flight_end_step(link_progress(context_link(t->context)), t->step, (uint64_t)clock_now_ns());
    if (t->rank != 0 || t->step != loop->first_step + 1)
        return FSDP_OK;
    snprintf(words, sizeof words, "{\"event\": \"first_step\", \"step\": %" PRIu64 "}", t->step);
    return fsdp_context_event(t->context, words, err);
}

/* A snapshot that fails costs nothing else. Keeps the reason, until the ranks agree on who says it. */
static enum fsdp_status keep_trouble(struct loop *loop, enum fsdp_status status, struct fsdp_err *err)
{
    if (status != FSDP_ERR_IO)
        return status;
    loop->trouble = *err;
    fsdp_err_clear(err);
    return FSDP_OK;
}

/*
 * Says that snapshots fail, once until one succeeds on every rank. `teller` is W - rank of the lowest rank on
 * which the last one failed; 0: it failed on none.
 */
static enum fsdp_status say_trouble(struct loop *loop, int64_t teller, struct fsdp_err *err)
{
    const struct trainer *t = loop->trainer;
    const bool is_mine = teller != 0 && teller == t->W - t->rank && !loop->snapshots_fail;
    char words[FSDP_LINK_EVENT_BYTES];
    struct json_text event = json_text_fixed(words, sizeof words);

    if (loop->snapshot_step < 0)
        return FSDP_OK;
    if (is_mine) {
        fprintf(stderr,
                "fsdp-train: rank %d: the snapshot of step %" PRId64
                " failed: %s; training goes on, the one before stands\n",
                t->rank, loop->snapshot_step, loop->trouble.message);
        json_open(&event, NULL, '{');
        json_field_string(&event, "event", "snapshot_failed");
        json_field(&event, "step", "%" PRId64, loop->snapshot_step);
        json_field_string(&event, "reason", loop->trouble.message);
        json_close(&event, '}');
    }
    loop->snapshots_fail = teller != 0;
    loop->snapshot_step = -1;
    fsdp_err_clear(&loop->trouble);
    return is_mine && !event.failed ? fsdp_context_event(t->context, words, err) : FSDP_OK;
}

/*
 * Agrees with the other ranks on the step to stop after. A notice reaches the ranks at different moments:
 *   1. Each rank proposes the step that its notices ask for, but at least the step it has just done.
 *   2. The latest proposal counts, so no rank must stop after a step that it has passed.
 */
static enum fsdp_status agree_on_stop(struct loop *loop, bool *stop, struct fsdp_err *err)
{
    struct saver *saver = loop->trainer->saver;
    const int64_t step = (int64_t)loop->trainer->step;
    struct fsdp_link_notice notice;
    /*
     * [0] the step to stop after, or NO_STOP; [1] whether any rank's save is on its way to the disk; [2]
     * whether any rank's snapshot is on its way to another node; [3] which rank says why one failed
     */
    int64_t agreed[4] = { 0 };
    int64_t after;

    while (fsdp_context_poll_notice(loop->trainer->context, &notice))
        if (notice.kind == FSDP_NOTICE_SAVE_AND_STOP)
            loop->wanted_stop = notice.stop_after_step < 0 ? 0 : notice.stop_after_step;
    after = loop->wanted_stop;
    if (after != NO_STOP && after < step)
        after = step;
    agreed[0] = after;
    if (saver != NULL) {
        agreed[1] = saver_is_busy(saver);
        agreed[2] = saver_is_copying(saver); /* waits until the copy has ended, so the next line knows how */
        OK_OR_RETURN(keep_trouble(loop, saver_copied(saver, err), err));
    }
    if (loop->trouble.status != FSDP_OK)
        agreed[3] = loop->trainer->W - loop->trainer->rank;
    OK_OR_RETURN(
        fsdp_all_reduce(fsdp_context_comm(loop->trainer->context), agreed, 4, FSDP_I64, FSDP_MAX, NULL, err));
    OK_OR_RETURN(say_trouble(loop, agreed[3], err));
    loop->wanted_stop = after = agreed[0];
    if (saver != NULL)
        saver_agreed(saver, agreed[1] != 0);
    loop->saving = agreed[1] != 0;
    loop->copying = agreed[2] != 0;
    *stop = after != NO_STOP && step >= after;
    return FSDP_OK;
}

/* Drops the sign of a NaN, which has no meaning. */
static double plain(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/*
 * If the disk refuses a save, or has lost a file of it (FSDP_ERR_FORMAT), training goes on: older checkpoints
 * remain, and the next save may succeed. The agent that publishes checkpoints says why, or this process if
 * there is no agent. Every rank gets the same result. The `last` save must succeed, because otherwise the end
 * of the run would be lost.
 */
static enum fsdp_status bear(const struct loop *loop, enum fsdp_status status, bool last,
                             struct fsdp_err *err)
{
    if (status != FSDP_ERR_IO && status != FSDP_ERR_FORMAT)
        return status;
    if (last)
        return fsdp_fail(err, FSDP_ERR_IO, "%s", err->message);
    if (fsdp_context_alone(loop->trainer->context))
        fprintf(stderr, "fsdp-train: %s; training goes on, older checkpoints stand\n", err->message);
    fsdp_err_clear(err);
    return FSDP_OK;
}

/* Learns how the last save ended, and waits until it has. */
static enum fsdp_status end_save(struct loop *loop, bool last, struct fsdp_err *err)
{
    if (loop->trainer->saver == NULL)
        return FSDP_OK;
    loop->saving = false;
    return bear(loop, saver_wait(loop->trainer->saver, err), last, err);
}

/* What is due after a step: a checkpoint, or a snapshot in memory. */
enum due { DUE_NOTHING, DUE_SNAPSHOT, DUE_SAVE, DUE_LAST_SAVE };

static enum due what_is_due(const struct trainer *t, bool stop)
{
    const uint64_t every = t->job->checkpoint.every, snapshot_every = t->job->checkpoint.snapshot_every;

    if (stop || (every > 0 && t->step == t->job->train.steps))
        return DUE_LAST_SAVE;
    if (every > 0 && t->step % every == 0)
        return DUE_SAVE;
    return t->saver != NULL && snapshot_every > 0 && t->step % snapshot_every == 0 ? DUE_SNAPSHOT
                                                                                   : DUE_NOTHING;
}

/*
 * Saves a checkpoint, or takes a snapshot. With a saver, a checkpoint waits for the one before, if that is
 * still on its way. The copy of the state is made while the next step runs, up to its update. Only the last
 * checkpoint waits for the disk.
 */
static enum fsdp_status save_or_snapshot(struct loop *loop, enum due due, struct fsdp_err *err)
{
    struct trainer *t = loop->trainer;
    const bool last = due == DUE_LAST_SAVE;

    if (due == DUE_SNAPSHOT) {
        loop->snapshot_step = (int64_t)t->step;
        return keep_trouble(loop, trainer_snapshot(t, false, err), err);
    }
    OK_OR_RETURN(end_save(loop, false, err));
    if (t->saver == NULL || !t->job->checkpoint.async)
        return bear(loop, trainer_save(t, err), last, err);
    OK_OR_RETURN(trainer_snapshot(t, true, err));
    return last ? end_save(loop, true, err) : FSDP_OK;
}

static enum fsdp_status save_step(struct loop *loop, enum due due, struct fsdp_err *err)
{
    const struct fsdp_context *context = loop->trainer->context;
    const double began_s = clock_now_s(), waited_s = fsdp_context_device_wait_s(context);
    const enum fsdp_status status = save_or_snapshot(loop, due, err);

    flight_spend(link_progress(context_link(context)), FSDP_SPENT_SAVE,
                 (uint64_t)((clock_now_s() - began_s) * 1e9));
    loop->logged_s += clock_now_s() - began_s;
    loop->logged_wait_s += fsdp_context_device_wait_s(context) - waited_s;
    return status;
}

/*
 * Determines which rank reports that training diverged. A wrong sum on one rank makes the loss wrong on all
 * ranks. If only one rank's own part of the loss is NaN or infinite, that rank is named and reports. If a job
 * diverges by itself, the parts of many ranks are wrong, and rank 0 reports.
 */
static enum fsdp_status find_speaker(struct trainer *t, struct fsdp_err *err)
{
    const bool mine = !isfinite(t->model->own_loss_sum);
    /* the all-reduce by MAX finds both the lowest and the highest of these ranks */
    int64_t bad[2] = { mine ? t->W - t->rank : 0, mine ? t->rank + 1 : 0 };
    const enum fsdp_status status =
        fsdp_all_reduce(fsdp_context_comm(t->context), bad, 2, FSDP_I64, FSDP_MAX, NULL, err);
    const bool alone = bad[0] != 0 && t->W - bad[0] == bad[1] - 1 && t->W > 1;

    t->speaker = alone ? (int)bad[1] - 1 : 0;
    fsdp_context_phase(t->context, alone ? FSDP_PHASE_DIVERGED_ALONE : FSDP_PHASE_DIVERGED);
    return status;
}

static enum fsdp_status run_steps(struct loop *loop, enum trainer_end *end, struct fsdp_err *err)
{
    struct trainer *t = loop->trainer;
    bool stop = false, diverged = false;
    enum due due;

    while (t->step < t->job->train.steps && !stop) {
        OK_OR_RETURN(compute_step(loop, &diverged, err));
        if (diverged) {
            struct fsdp_err why = *err; /* says more of the divergence */

            /* before this process ends, what was saved must be complete on the disk */
            OK_OR_RETURN(end_save(loop, false, err));
            *err = why;
            *end = TRAINER_DIVERGED; /* the status below is FSDP_OK, but `err` describes the divergence */
            /* the step that diverged; the agent compares it with the next generation */
            show_step(loop, t->step + 1);
            OK_OR_RETURN(find_speaker(t, err));
            return fsdp_fail(err, FSDP_OK,
                             "step %" PRIu64
                             ": training diverged: the loss is %g, its gradient's norm %g%s%s",
                             t->step + 1, plain(loop->loss.mean), plain(loop->grad_norm),
                             err->message[0] != '\0' ? ": " : "", err->message);
        }
        OK_OR_RETURN(report_step(loop, err));
        OK_OR_RETURN(agree_on_stop(loop, &stop, err));
        if (!loop->saving) /* if a save has ended, its result is reported now */
            OK_OR_RETURN(end_save(loop, false, err));
        due = what_is_due(t, stop);
        if (due == DUE_SNAPSHOT && loop->copying)
            /* none is due, because the snapshot before is still on its way to another node */
            due = DUE_NOTHING;
        if (due != DUE_NOTHING)
            OK_OR_RETURN(save_step(loop, due, err));
    }
    *end = t->step < t->job->train.steps ? TRAINER_STOPPED : TRAINER_COMPLETE;
    return FSDP_OK;
}

enum fsdp_status trainer_run(struct trainer *trainer, enum trainer_end *end, struct fsdp_err *err)
{
    struct loop loop = {
        .trainer = trainer,
        .metrics = { .fd = -1 },
        .first_step = trainer->step,
        .logged_step = trainer->step,
        .wanted_stop = NO_STOP,
        .snapshot_step = -1,
    };
    enum fsdp_status status;

    *end = TRAINER_COMPLETE;
    if (trainer->step >= trainer->job->train.steps)
        return (trainer->resumed && !trainer->unsaved) || trainer->job->checkpoint.every == 0
                   ? FSDP_OK
                   : trainer_save(trainer, err);
    status = batch_init(&loop.batch, trainer->batch, trainer->job->model.seq, trainer->n_micro, err);
    if (status == FSDP_OK && trainer->rank == 0)
        status = metrics_open(&loop.metrics, trainer->run_dir, err);
    if (status == FSDP_OK) /* before the first step is timed */
        status = model_draw(trainer->model, err);
    status = trainer_agree(trainer, status, err);
    if (status == FSDP_OK) {
        sample_memory(&loop);
        fsdp_context_on_phase(trainer->context, trainer->rank == 0 ? on_phase : NULL, &loop);
        loop.logged_s = clock_now_s();
        loop.logged_wait_s = fsdp_context_device_wait_s(trainer->context);
        status = run_steps(&loop, end, err);
        fsdp_context_on_phase(trainer->context, NULL, NULL);
    }
    close_metrics(&loop);
    batch_fini(&loop.batch);
    return status;
}
