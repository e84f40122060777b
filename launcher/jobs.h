/*
 * What the commands over jobs use to find a job of this user on this machine, to ask it and to give it
 * orders.
 */
#ifndef LAUNCHER_JOBS_H
#define LAUNCHER_JOBS_H

#include <fsdp/status.h>

#include "agent/desk/desk.h"
#include "agent/desk/registry.h"
#include "launcher/talk.h"

struct cJSON;

enum { JOBS_ANSWER_MS = 1000 };

/**
 * Asks all jobs of the list at the same time.
 *   answers  (list->n) receives the answer of each job; NULL: it did not answer within JOBS_ANSWER_MS. The
 *            caller frees each by cJSON_Delete().
 */
void jobs_ask(const struct registry_list *list, enum desk_word word, struct cJSON **answers);

/**
 * Returns an answer in place of a job that gives none, made from its registry entry. Unknown members are
 * null.
 */
struct cJSON *jobs_stand_in(const struct registry_job *job);

/**
 * Adds `memory_bytes` to each worker in an answer to `status`. It is the process's private memory (RssAnon +
 * RssShmem), read from /proc, or null if the process has none or has ended.
 */
void jobs_add_memory(struct cJSON *job);

/**
 * Finds a job by its id, its name, or a prefix of either that no other job has. A whole id or name goes
 * before a prefix.
 *   FSDP_ERR_NOT_FOUND  there is no such job
 *   FSDP_ERR_CONFIG     several jobs match, and the message names them
 * If a job of that name was killed lately, the message names its run directory.
 */
enum fsdp_status jobs_find(const struct registry_job **out, const struct registry_list *list,
                           const char *name, struct fsdp_err *err);

/**
 * Finds the run that a word RUN means: a job as jobs_find() does, or a run directory. The whole id or name of
 * a job goes before a directory, a directory before a prefix.
 *   out  receives the job that runs. For a directory in which no listed job runs it receives one whose `pid`
 *        is 0, with only `run_dir` set.
 */
enum fsdp_status jobs_find_run(struct registry_job *out, const struct registry_list *list, const char *run,
                               struct fsdp_err *err);

/** Asks one job. Returns its answer, or NULL with the reason in `err`. The caller frees the answer. */
struct cJSON *jobs_ask_one(const struct registry_list *list, const struct registry_job *job,
                           enum desk_word word, struct fsdp_err *err);

/* An order that was given to a job. */
struct jobs_order {
    struct talk talk;
    int ended_fd; /* becomes readable when the fsdprun of the job has ended; -1: the job does not answer */
};

/** Gives an order to a job. jobs_order_end() must follow. */
void jobs_order_begin(struct jobs_order *order, const struct registry_list *list,
                      const struct registry_job *job, enum desk_word word);

/**
 * Waits until the order is carried out. A stop is carried out when the job and its fsdprun have ended, and a
 * restart when the ranks run again. The order is over then. Returns the last object that the job sent, which
 * the caller frees; NULL: the reason is in `err`.
 */
struct cJSON *jobs_order_end(struct jobs_order *order, const struct registry_job *job, struct fsdp_err *err);

/** Returns a descriptor that becomes readable when the fsdprun of the job ends; -1: it has ended already. */
int jobs_watch(const struct registry_list *list, const struct registry_job *job);

#endif
