/*
 * A conversation with the desk of one job (agent/desk/desk.h): a line is sent, and lines come back.
 */
#ifndef LAUNCHER_TALK_H
#define LAUNCHER_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/desk/desk.h"
#include "agent/desk/registry.h"

struct cJSON;

/* The caller frees `bytes` after talk_end(). */
struct talk {
    int fd;    /* -1: not connected yet, or over */
    bool over; /* the job has hung up, or could not be reached */
    char *bytes;
    size_t n_bytes;
};

/**
 * Connect and send the line. A job at which too many connections wait is tried again later: then nothing
 * changes.
 */
void talk_begin(struct talk *talk, const struct registry_list *list, const struct registry_job *job,
                enum desk_word word);
void talk_end(struct talk *talk);

/** Take what has come. */
void talk_take(struct talk *talk);

/**
 * Take the first line out of what has come. Returns its object, which the caller frees by cJSON_Delete();
 * NULL: no whole line, or no object.
 */
struct cJSON *talk_next_line(struct talk *talk);

#endif
