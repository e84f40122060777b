/*
 * The jobs of this user on this machine, as the commands over jobs find, ask and tell them.
 */
#ifndef LAUNCHER_JOBS_H
#define LAUNCHER_JOBS_H

#include <fsdp/status.h>

#include "agent/desk/desk.h"
#include "agent/desk/registry.h"

struct cJSON;

enum { JOBS_ANSWER_MS = 1000 };

/**
 * Ask every job of the list at the same time.
 *   answers  (list->n) receives the object of each; NULL: it did not answer within JOBS_ANSWER_MS. The caller
 *            frees each by cJSON_Delete().
 */
void jobs_ask(const struct registry_list *list, enum desk_word word, struct cJSON **answers);

/** Returns what the registry knows of a job that does not answer. Members that are not known are null. */
struct cJSON *jobs_stand_in(const struct registry_job *job);

/**
 * Add to each worker of an answer to `status` what this machine shows of its process. `memory_bytes` is its
 * private memory now (RssAnon + RssShmem), or null if it has none.
 */
void jobs_add_memory(struct cJSON *job);

/**
 * Find a job by its id, its name, or a prefix of either that no other job has. The whole id or name wins over
 * prefixes.
 *   FSDP_ERR_NOT_FOUND  there is no such job
 *   FSDP_ERR_CONFIG     there are several, and the words name them
 */
enum fsdp_status jobs_find(const struct registry_job **out, const struct registry_list *list,
                           const char *name, struct fsdp_err *err);

/** Ask one job. Returns its answer, or NULL and the reason in `err`. */
struct cJSON *jobs_ask_one(const struct registry_list *list, const struct registry_job *job,
                           enum desk_word word, struct fsdp_err *err);

/**
 * Give an order, and wait for what it orders: the end of the job, which includes that of its fsdprun, or that
 * it runs again. Returns the last object that the job sent, or NULL and the reason in `err`.
 */
struct cJSON *jobs_order(const struct registry_list *list, const struct registry_job *job,
                         enum desk_word word, struct fsdp_err *err);

/**
 * Returns a descriptor that becomes readable when the fsdprun of the job has ended; -1: it has ended already.
 */
int jobs_watch(const struct registry_list *list, const struct registry_job *job);

#endif
