/*
 * Reads --rdzv-conf, KEY=VALUE,KEY=VALUE,... as torchrun does. A pair is split at its first "=", blanks
 * around both sides are removed, and the last value of a key wins. Only the keys of struct rdzv_conf have an
 * effect here. The values of torchrun's other keys are checked, but nothing here corresponds to those keys
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
    /* Keys in the text that neither torchrun nor fsdprun knows: "a, b". */
    char unknown[RDZV_CONF_UNKNOWN_BYTES];
};

/**
 * Reads the value of --rdzv-conf. An empty text sets nothing.
 *   FSDP_ERR_CONFIG  a key or value is empty, or the key does not take the value; `err` says which
 */
enum fsdp_status rdzv_conf_read(struct rdzv_conf *conf, const char *text, struct fsdp_err *err);

#endif
