/*
 * Memory that the agent hands to a worker: its progress page, and the job. Both are sealed memfds, so that no
 * process can shorten them while another has them mapped.
 */
#ifndef AGENT_LINK_MEMORY_H
#define AGENT_LINK_MEMORY_H

#include <fsdp/link.h>

/**
 * Make a progress page. *page is its mapping, FSDP_PROGRESS_BYTES long, with its header filled in. Returns
 * its descriptor, or -1 with errno.
 */
int link_memory_page(struct fsdp_progress **page);

/**
 * Make a read-only file with the job's text, at offset 0. Returns its descriptor, or -1 with errno. Each
 * worker needs one of its own: workers with a common one would share its offset.
 */
int link_memory_job(const char *json);

#endif
