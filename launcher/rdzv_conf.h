/*
 * --rdzv-conf: KEY=VALUE,KEY=VALUE,... as torchrun reads it: split at the first "=", both sides trimmed, the last one
 * of a key wins. Of its keys those below mean something here; the others that it knows are checked and do nothing,
 * as there is nothing of ours that they could set (docs/torchrun-differences.md). Pure.
 */
#ifndef LAUNCHER_RDZV_CONF_H
#define LAUNCHER_RDZV_CONF_H

#include <stdint.h>

#include <fsdp/status.h>

enum { RDZV_CONF_UNKNOWN_BYTES = 160 };

struct rdzv_conf {
    int64_t timeout_s, join_timeout_s, last_call_timeout_s; /* 0: not given */
    int is_host;                                            /* 1, 0; -1: not given */
    char unknown
        [RDZV_CONF_UNKNOWN_BYTES]; /* keys that mean nothing to torchrun either, ", " between; "": none */
};

/** FSDP_ERR_CONFIG: an empty key or value, or a value that its key does not take. An empty text is nothing given. */
enum fsdp_status rdzv_conf_read(struct rdzv_conf *conf, const char *text, struct fsdp_err *err);

#endif
