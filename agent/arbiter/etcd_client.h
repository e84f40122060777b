/*
 * Requests to an etcd of several members, one after another, by HTTP. A request goes to the member that
 * answered last. If that member does not answer in a third of the time, or answers as no etcd does, the next
 * one is asked. This goes on in turn until the time is over. So a request may take effect twice, or after it
 * has failed. The caller allows for that.
 *
 * With TLS, a member needs a certificate that the system trusts. ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY
 * name other files, as they do for etcd's own client. Proxies of the environment are not used.
 *
 * Thread: one at a time. etcd_client_create() is called on the loop's thread, because it opens libcurl.
 */
#ifndef AGENT_ETCD_CLIENT_H
#define AGENT_ETCD_CLIENT_H

#include <stdint.h>

#include <fsdp/status.h>

#include "agent/arbiter/etcd_endpoints.h"

struct etcd_client;
struct cJSON;

/**
 *   endpoints   copied
 *   request_ms  how long a request may take, in all
 * After a failure *out is NULL. FSDP_ERR_UNSUPPORTED: there is no libcurl.
 */
enum fsdp_status etcd_client_create(struct etcd_client **out, const struct etcd_endpoints *endpoints,
                                    int64_t request_ms, struct fsdp_err *err);

/** NULL is a no-op. */
void etcd_client_destroy(struct etcd_client *client);

/** The time at which a request that begins now has to end (clock_boot_ns()). */
int64_t etcd_client_deadline(const struct etcd_client *client);

/**
 * Send a request, and wait for the answer.
 *   path    of etcd_message.h
 *   body    JSON; NULL means that there was no memory for it
 *   answer  receives it, parsed; the caller frees it with cJSON_Delete(). NULL after a failure
 * Returns FSDP_ERR_NOT_FOUND if etcd says that a lease is over; FSDP_ERR_IO if no member had given an answer
 * at the deadline, with the words of the last failure; FSDP_ERR_NOMEM.
 */
enum fsdp_status etcd_client_ask(struct etcd_client *client, const char *path, const char *body,
                                 int64_t deadline_ns, struct cJSON **answer, struct fsdp_err *err);

#endif
