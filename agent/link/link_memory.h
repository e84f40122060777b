/*
 * What a worker is handed as memory: its progress page, and the job. Both are sealed memfds, so that nobody
 * can cut them short under a mapping.
 */
#ifndef AGENT_LINK_MEMORY_H
#define AGENT_LINK_MEMORY_H

#include <fsdp/link.h>

/** A new page, laid out: *page is its mapping of FSDP_PROGRESS_BYTES. Its descriptor, or -1 and errno. */
int link_memory_page(struct fsdp_progress **page);

/**
 * The job's text, read-only, at offset 0. Its descriptor, or -1 and errno. One for each worker: they would share
 * the offset of a common one.
 */
int link_memory_job(const char *json);

#endif
