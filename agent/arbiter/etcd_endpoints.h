/*
 * The members of an etcd, as --arbiter names them:
 *
 *     etcd://HOST[:PORT],HOST[:PORT],...     etcds:// for TLS
 *
 * The port is 2379 unless it is given. An IPv6 address has brackets.
 *
 * Pure.
 */
#ifndef AGENT_ETCD_ENDPOINTS_H
#define AGENT_ETCD_ENDPOINTS_H

#include <stdbool.h>

#include <fsdp/status.h>

enum { ETCD_MAX_ENDPOINTS = 16, ETCD_URL_BYTES = 300, ETCD_PORT = 2379 };

struct etcd_endpoints {
    bool tls;
    int n;                                         /* 1 to ETCD_MAX_ENDPOINTS */
    char urls[ETCD_MAX_ENDPOINTS][ETCD_URL_BYTES]; /* "http://host:2379", or "https://..." */
};

/** Does `text` name an etcd: does it begin with "etcd://" or "etcds://"? */
bool etcd_endpoints_are_named(const char *text);

/** Take `text` apart. FSDP_ERR_CONFIG: it is not of the form above, and the words say what is wrong. */
enum fsdp_status etcd_endpoints_parse(struct etcd_endpoints *out, const char *text, struct fsdp_err *err);

#endif
