/*
 * Writes the schema table as text for people: --help, docs/config.md and the manual page.
 */
#ifndef JOB_DOCS_H
#define JOB_DOCS_H

#include <stdio.h>

#include "shard_runtime/job/schema.h"

/**
 * Describes the values that a key accepts, such as "true or false" or "whole number, 1 to 4096". Writes the
 * text to `out` and returns `out`.
 */
const char *job_key_takes(const struct job_key *key, char *out, size_t size);

/** Writes the keys for --help: key, default and help text. */
void job_docs_help(FILE *out);
/** Writes docs/config.md. */
void job_docs_markdown(FILE *out);
/** Writes the part of fsdp.yaml(5) that lists the keys, in roff. */
void job_docs_man(FILE *out);

#endif
