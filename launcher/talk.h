/*
 * A conversation with the desk of one job (agent/desk/desk.h): this process sends one line, and the job
 * answers with lines.
 */
#ifndef LAUNCHER_TALK_H
#define LAUNCHER_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/desk/desk.h"
#include "agent/desk/registry.h"

struct cJSON;

/* One conversation. The caller frees `bytes` after talk_end(). */
struct talk {
    int fd;    /* -1: not connected yet, or already closed */
    bool over; /* the job has closed the connection, or cannot be reached */
    char *bytes;
    size_t n_bytes;
};

/**
 * Connects to the job and sends the line. If too many connections wait at the job, this function changes
 * nothing, and the caller tries again later.
 */
void talk_begin(struct talk *talk, const struct registry_list *list, const struct registry_job *job,
                enum desk_word word);
void talk_end(struct talk *talk);

/** Reads what the job has sent, without waiting. */
void talk_take(struct talk *talk);

/**
 * Removes the first complete line from what was read, and parses it. Returns its object, which the caller
 * frees by cJSON_Delete(). NULL: there is no complete line, or it is no object.
 */
struct cJSON *talk_next_line(struct talk *talk);

#endif
