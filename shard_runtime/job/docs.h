/*
 * The schema table as text for people: --help, docs/config.md, the manual page.
 */
#ifndef JOB_DOCS_H
#define JOB_DOCS_H

#include <stdio.h>

#include "shard_runtime/job/schema.h"

/** What a key takes, in words: "a whole number of 1 to 4096", "one of auto, cpu (not yet: cuda)". */
const char *job_key_takes(const struct job_key *key, char *out, size_t size);

/** One line a key, for --help. */
void job_docs_help(FILE *out);
/** docs/config.md */
void job_docs_markdown(FILE *out);
/** The keys' part of fsdp.yaml(5), in man's language. */
void job_docs_man(FILE *out);

#endif
