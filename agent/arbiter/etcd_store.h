/*
 * The arbiter's store in an etcd (version 3.4 or later, its JSON gateway).
 *
 * The newest record of a run is the value of one key, fsdprun/RUNID/leader. Each write is a transaction,
 * which succeeds only if the key did not change since this agent looked. A claim overwrites the record of an
 * earlier term. So after a claim, the agent that led before can write nothing more.
 *
 * A lease of etcd keeps the key for half an hour to an hour after the last write. If ten to twenty leases of
 * the run are longer than that, it keeps the key for these. So no run leaves anything in etcd for ever.
 * Agents of the run remember the term; only an agent that begins after that time begins with term 1 again.
 *
 * An etcd keeps old values until it is compacted: 0.7 KB for each write, so 60 MB a day for a lease of 3 s.
 * That is left to whoever runs the etcd (--auto-compaction-retention), because other programs may use it too.
 *
 * A call takes a third of the run's lease at most. A renewal that has failed may still take effect later, for
 * as long as a member keeps the request. It then undoes no other write, because it compares.
 */
#ifndef AGENT_ETCD_STORE_H
#define AGENT_ETCD_STORE_H

#include "agent/arbiter/arbiter_store.h"
#include "agent/arbiter/etcd_endpoints.h"

/**
 * Create the store. This opens libcurl, and connects to nothing.
 *   endpoints  copied
 *   run_id     names the run for all its nodes, and no other run that uses this etcd at the same time; copied
 *   lease_ms   the run's lease
 * Returns FSDP_ERR_UNSUPPORTED (no libcurl, or one without TLS for etcds://) or FSDP_ERR_NOMEM.
 */
enum fsdp_status etcd_store_create(struct arbiter_store **out, const struct etcd_endpoints *endpoints,
                                   const char *run_id, int64_t lease_ms, struct fsdp_err *err);

#endif
