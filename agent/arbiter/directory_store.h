/*
 * The arbiter's store in a directory that all nodes share. In the run directory, the folder `leader` (mode
 * 0700) has
 *   record  eight places for records, a page each: two for each term, which its leader overwrites in turn, by
 *           one write each, and synced. The terms N and N + 4 share theirs. So a torn record leaves the one
 *           before it. A host that was stopped during its write may go on after it was deposed: it hides no
 *           record of a higher term. On NFS a new file that is renamed to an old name can stay unseen for a
 *           minute. But an open asks the server whether the data has changed. So each call opens the file
 *           again. A reader creates it too: then the server is asked even if it was missing before
 *   term-N  the claim of term N. It is written under another name, synced, and linked: link(2) is atomic and
 *           exclusive on NFS too. If its answer is lost, the file's number of links says what became of it.
 *           Where a file system has no links (FUSE, SMB, exFAT), the file is created exclusively under its
 *           name, and written there; who reads it before that finds the term without its owner. A read looks
 *           for claims after the newest record: their owner may have died before it wrote one. No claim is
 *           ever removed, so no term is taken twice, whatever record a slow host still writes
 */
#ifndef AGENT_DIRECTORY_STORE_H
#define AGENT_DIRECTORY_STORE_H

#include "agent/arbiter/arbiter_store.h"
#include "shard_runtime/shardfile/io.h"

/**
 * Create the store. It makes the folder with its first call, so no disk is waited for here. No folder is made
 * unless the run directory exists.
 *   io       file operations; borrowed until the store is destroyed. Its calls are made on the arbiter's
 *            thread. NULL: the system's, below the run directory (io_beneath.h): no link of another user is
 *            followed there
 *   run_dir  path of the run directory, copied
 * Returns FSDP_ERR_ARG if the path is too long, and FSDP_ERR_NOMEM.
 */
enum fsdp_status directory_store_create(struct arbiter_store **out, struct fsdp_io *io, const char *run_dir,
                                        struct fsdp_err *err);

#endif
