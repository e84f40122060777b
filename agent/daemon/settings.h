/*
 * The daemon's configuration: a file of lines "KEY = VALUE". "#" begins a comment, and a key that is absent
 * has its default. It is read at the start, and again at HUP.
 *
 *   key             value            default  meaning
 *   drain           yes, no          no       new jobs are refused; those that were accepted go on
 *   job_memory_max  4096, 64G, none  none     memory.max of the group of each job that begins later
 */
#ifndef AGENT_DAEMON_SETTINGS_H
#define AGENT_DAEMON_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

struct settings {
    bool drain;
    int64_t job_memory_max; /* bytes; 0: none */
};

/**
 * Read the text of such a file.
 *   path  the file's name, for messages
 *   FSDP_ERR_CONFIG  "PATH:LINE: what is wrong there", for the first wrong line; *settings is unchanged
 */
enum fsdp_status settings_parse(struct settings *settings, const char *text, const char *path,
                                struct fsdp_err *err);

/**
 * Read the file `path`. A file that is not there has no lines.
 *   FSDP_ERR_CONFIG  as for settings_parse(); or the file cannot be read, or has more than 64 KiB
 *   FSDP_ERR_NOMEM   no memory
 * On failure *settings is unchanged.
 */
enum fsdp_status settings_load(struct settings *settings, const char *path, struct fsdp_err *err);

#endif
