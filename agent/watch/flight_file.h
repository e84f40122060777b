/*
 * The file of a worker's last collectives, collectives.jsonl (agent/watch/flight.h). Nothing of fsdprun reads
 * it, so what cannot be written is lost, and a line on the console says so.
 */
#ifndef AGENT_FLIGHT_FILE_H
#define AGENT_FLIGHT_FILE_H

#include "agent/os/disk.h"
#include "agent/output/console.h"
#include "agent/record/rundir.h"
#include "agent/watch/flight.h"

/**
 * Take the collectives from the worker's page, and write them to its folder of the run directory. Does
 * nothing without a page, a collective or a run directory.
 *   source   borrowed for the call; its page may be NULL
 *   rundir   borrowed until the disk has answered; NULL: none
 *   disk     writes the file; NULL: it is written before the call returns
 *   console  borrowed until the disk has answered
 * Thread: the loop's.
 */
void flight_file_write(const struct flight_source *source, int local_rank, struct rundir *rundir,
                       struct disk *disk, struct console *console);

#endif
