/*
 * --rdzv-conf: KEY=VALUE,KEY=VALUE,... as torchrun reads it. A pair is split at its first "=", both sides are
 * trimmed, and the last value of a key wins. Only the keys of struct rdzv_conf mean something here. The other
 * keys of torchrun are checked and have no effect, because nothing here corresponds to them
 * (docs/torchrun-differences.md). Pure.
 */
#ifndef LAUNCHER_RDZV_CONF_H
#define LAUNCHER_RDZV_CONF_H

#include <stdint.h>

#include <fsdp/status.h>

enum { RDZV_CONF_UNKNOWN_BYTES = 160 };

struct rdzv_conf {
    int64_t timeout_s, join_timeout_s, last_call_timeout_s, lease_s; /* 0: not given */
    int is_host;                                                     /* 1 or 0; -1: not given */
    /* keys that torchrun does not know either: "a, b" */
    char unknown[RDZV_CONF_UNKNOWN_BYTES];
};

/**
 * Read the value of --rdzv-conf. An empty text gives no settings.
 *   FSDP_ERR_CONFIG  a key or value is empty, or the key does not take the value; `err` says which
 */
enum fsdp_status rdzv_conf_read(struct rdzv_conf *conf, const char *text, struct fsdp_err *err);

#endif
