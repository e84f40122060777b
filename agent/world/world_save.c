/*
 * Snapshots of the workers. Their segments stay from one generation to the next. If a worker wants a snapshot
 * written to the disk, the writer's process does that while the generation lives. The save is then reported
 * as if the worker had written the file itself. With checkpoint.replicas, another process copies them to
 * another node (agent/snapshot/copies.h). Programs have their own snapshots (agent/snapshot/entry_dir.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/world/world_impl.h"
#include "shard_runtime/core/require.h"

/* A slot that is being written to the disk. The slots are in a list, in no order. */
struct world_save {
    struct world_save *next;
    uint64_t id;
    int rank;
    struct fsdp_link_saved saved;
    int manifest_fd;
};

static bool give_segments(const struct world *world, struct fsdp_err *err)
{
    for (int i = 0; world->segments != NULL && i < world->config->n_workers; i++) {
        char key[sizeof FSDP_LINK_SNAPSHOT_KEY + 16];

        snprintf(key, sizeof key, FSDP_LINK_SNAPSHOT_KEY "%d", i);
        if (link_server_put_fd(world->links, key, segments_fd(world->segments, i), err) != FSDP_OK)
            return false;
    }
    return true;
}

/* Copies of snapshots */

static void on_copies_put(void *arg, const char *key, const void *value, size_t size_bytes)
{
    const struct world *world = arg;

    world->reporter.put(world->reporter.to, world->plan.generation, key, value, size_bytes);
}

static void on_copies_want(void *arg, const char *key)
{
    const struct world *world = arg;

    world->reporter.want(world->reporter.to, world->plan.generation, key);
}

static void on_copies_ready(void *arg)
{
    struct fsdp_err err = { 0 };

    if (!give_segments(arg, &err))
        world_say(arg, err.message);
}

static void on_line(void *arg, const char *words)
{
    world_say(arg, words);
}

static enum fsdp_status begin_copies(struct world *world, struct fsdp_err *err)
{
    const struct world_plan *plan = &world->plan;
    const struct copies_handlers handlers = {
        .arg = world, .put = on_copies_put, .want = on_copies_want, .ready = on_copies_ready, .line = on_line
    };
    struct copies_seat seat = { .node_rank = plan->node_rank,
                                .n_nodes = plan->n_nodes,
                                .address = plan->node_address,
                                .fetch_from = plan->memory_from == plan->node_rank ? -1 : plan->memory_from,
                                .begin = {
                                    .n = (uint32_t)world->config->n_workers,
                                    .first_rank = (uint32_t)plan->first_rank,
                                    .world_size = (uint32_t)plan->world_size,
                                    .from = { plan->memory_step, (uint32_t)plan->memory_generation } } };

    memcpy(seat.begin.token, plan->token, sizeof seat.begin.token);
    if (plan->memory_from == plan->node_rank) { /* the copies that this node holds are of these ranks */
        struct segments *own = world->held;

        world->held = world->segments;
        world->segments = own;
    }
    return copies_begin(&world->copies, world->services.loop, &seat, world->segments, world->held, &handlers,
                        err);
}

bool world_give_segments(struct world *world, struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };

    if (world->held == NULL)
        return give_segments(world, err);
    /* a copy of the earlier generation may be unfinished, because its process was killed */
    segments_end_copying(world->segments);
    if (world->plan.n_nodes < 2) {
        segments_clear(world->held);
        return give_segments(world, err);
    }
    if (begin_copies(world, &why) == FSDP_OK)
        return true;
    /* the snapshots may be of another history, and no copy will replace them */
    segments_clear(world->segments);
    world_say(world, why.message);
    return give_segments(world, err);
}

bool world_in_memory(const struct world *world, struct restore_steps *held)
{
    held->world_size = world->plan.world_size;
    held->own_first_rank = world->plan.first_rank;
    held->own = segments_held(world->segments, world->plan.first_rank, world->plan.world_size);
    held->copies = segments_copies(world->held, world->plan.world_size, &held->copies_first_rank);
    return held->own.held[0].step >= 0 || held->copies.held[0].step >= 0;
}

/* Snapshots of programs */

static void on_entry(void *arg, const struct snapshot_entry *entry)
{
    const struct world *world = arg;

    world->reporter.entry(world->reporter.to, world->plan.generation, entry);
}

enum fsdp_status world_open_entries(struct world *world, struct fsdp_err *err)
{
    const struct entry_dir_handlers handlers = { .arg = world, .found = on_entry, .line = on_line };
    const struct agent_config *config = world->config;
    struct fsdp_err why = { 0 };
    char words[FSDP_ERR_MESSAGE_BYTES + 64];

    if (config->place == NULL || entry_dir_open(&world->entries, world->services.loop, config->place,
                                                config->snapshot_persist, &handlers, &why) == FSDP_OK)
        return FSDP_OK;
    if (config->snapshot_bytes >= 0 || config->snapshot_persist != NULL)
        return fsdp_fail(err, why.status, "%s", why.message);
    snprintf(words, sizeof words, "programs get no FSDPRUN_SNAPSHOT_DIR: %s", why.message);
    world_say(world, words);
    return FSDP_OK;
}

void world_begin_entries(struct world *world)
{
    const struct world_plan *plan = &world->plan;
    struct persist_seat seat = { .node_rank = plan->node_rank,
                                 .n_nodes = plan->n_nodes,
                                 .is_first = plan->generation == 0 };

    memcpy(seat.token, plan->token, sizeof seat.token);
    if (world->entries != NULL)
        entry_dir_begin(world->entries, plan->snapshot, plan->first_rank, plan->world_size, &seat);
}

void world_take_entry(struct world *world, const struct snapshot_entry *entry)
{
    if (world->entries != NULL)
        entry_dir_take(world->entries, entry);
}

static void report(const struct world *world, int rank, const struct fsdp_link_saved *saved, int manifest_fd)
{
    world->reporter.saved(world->reporter.to, world->plan.generation, rank, saved, manifest_fd);
}

static void report_failure(const struct world *world, int rank, const struct fsdp_link_saved *saved,
                           enum fsdp_status status, const char *words, int manifest_fd)
{
    struct fsdp_link_saved failed = *saved;

    failed.status = (uint32_t)status;
    snprintf(failed.words, sizeof failed.words, "%s", words);
    report(world, rank, &failed, manifest_fd);
}

static struct world_save *take_off(struct world *world, uint64_t id)
{
    struct world_save **at = &world->saves, *save;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    save = *at;
    if (save != NULL)
        *at = save->next;
    return save;
}

static void on_written(void *arg, const struct writer_answer *answer)
{
    struct world *world = arg;
    struct world_save *save = take_off(world, answer->id);

    if (save == NULL)
        return;
    if (answer->status == FSDP_OK) {
        save->saved.size_bytes = answer->size_bytes;
        memcpy(save->saved.checksum, answer->checksum, sizeof save->saved.checksum);
        report(world, save->rank, &save->saved, save->manifest_fd);
    } else {
        report_failure(world, save->rank, &save->saved, (enum fsdp_status)answer->status, answer->words,
                       save->manifest_fd);
    }
    free(save);
}

/* Files take long to write. */
static void on_word(void *arg, const struct writer_answer *word)
{
    const struct world *world = arg;

    world_record(world, "checkpoint_progress",
                 (struct events_field[]){ EVENT_INT("rank", world->plan.first_rank),
                                          EVENT_INT("step", word->step), EVENT_INT("files", word->n_files),
                                          EVENT_INT("written_bytes", word->written_bytes),
                                          EVENT_INT("bytes", word->size_bytes),
                                          EVENT_REAL("seconds", (double)word->took_ns * 1e-9), EVENT_END });
}

static enum fsdp_status submit(struct world *world, const struct world_save *save, struct fsdp_err *err)
{
    const int local_rank = save->rank - world->plan.first_rank;
    struct writer_request request = { .id = save->id,
                                      .worker = (uint32_t)local_rank,
                                      .rank = (uint32_t)save->rank };

    if (world->segments == NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "there is no slot");
    OK_OR_RETURN(writer_request_fill(&request, &save->saved, rundir_path(world->services.rundir),
                                     world->config->checkpoint_dir, err));
    if (world->writer == NULL)
        world->writer = writer_create(world->services.loop, on_written, on_word, world);
    if (world->writer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    return writer_submit(world->writer, &request, segments_fd(world->segments, local_rank), err);
}

void world_saved(struct world *world, int rank, const struct fsdp_link_saved *saved, int manifest_fd)
{
    struct world_save *save;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    if (saved->slot == 0 || saved->status != FSDP_OK) {
        report(world, rank, saved, manifest_fd);
        return;
    }
    save = calloc(1, sizeof *save);
    if (save != NULL)
        *save = (struct world_save){ world->saves, ++world->n_saves, rank, *saved, manifest_fd };
    status = save == NULL ? fsdp_fail(&err, FSDP_ERR_NOMEM, "out of memory") : submit(world, save, &err);
    if (status == FSDP_OK) {
        world->saves = save;
        return;
    }
    free(save);
    report_failure(world, rank, saved, status, err.message, manifest_fd);
}

void world_end_saves(struct world *world)
{
    copies_stop(world->copies);
    world->copies = NULL;
    writer_stop(world->writer);
    world->writer = NULL;
    while (world->saves != NULL) {
        struct world_save *save = world->saves;

        world->saves = save->next;
        if (save->manifest_fd >= 0)
            close(save->manifest_fd);
        free(save);
    }
}
