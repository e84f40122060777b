#include "agent/watch/flight_file.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A worker's last collectives on their way to the disk. */
struct flight_file {
    struct disk_job job;
    struct rundir *rundir;
    struct console *console;
    int generation, rank, local_rank;
    char *line;
    size_t length;
    struct fsdp_err err;
};

static void write_flight(struct disk_job *job)
{
    struct flight_file *file = (struct flight_file *)job;
    char folder[RUNDIR_PATH_BYTES];

    if (rundir_rank_folder(file->rundir, file->generation, file->rank, file->local_rank, folder,
                           &file->err) == FSDP_OK)
        (void)flight_write(file->line, file->length, rundir_io(file->rundir), folder, &file->err);
}

static void on_flight(struct disk_job *job)
{
    struct flight_file *file = (struct flight_file *)job;

    if (file->err.status != FSDP_OK)
        console_say(file->console, "fsdprun: rank %d: its last collectives are lost: %s", file->rank,
                    file->err.message);
    free(file->line);
    free(file);
}

void flight_file_write(const struct flight_source *source, int local_rank, struct rundir *rundir,
                       struct disk *disk, struct console *console)
{
    struct flight_file *file;

    if (source->page == NULL || rundir == NULL ||
        atomic_load_explicit(&source->page->n_collectives, memory_order_relaxed) == 0)
        return;
    file = calloc(1, sizeof *file);
    if (file == NULL || (file->line = flight_json(source, &file->length)) == NULL) {
        console_say(console, "fsdprun: rank %d: its last collectives are lost: out of memory", source->rank);
        free(file);
        return;
    }
    file->job = (struct disk_job){ .work = write_flight, .done = on_flight };
    file->rundir = rundir;
    file->console = console;
    file->generation = source->generation;
    file->rank = source->rank;
    file->local_rank = local_rank;
    disk_submit(disk, &file->job);
}
