/*
 * A listening socket from systemd (sd_listen_fds(3)): a socket unit makes it, and its descriptor is the first
 * after the standard streams. The first job then starts the daemon, and no connection is lost while the
 * daemon is started again.
 */
#ifndef AGENT_DAEMON_ACTIVATION_H
#define AGENT_DAEMON_ACTIVATION_H

#include <stddef.h>

#include <fsdp/status.h>

/**
 * Take the socket that came with this process, and clear the variables that say so.
 *   fd    the socket, close-on-exec, the caller's; -1: none came, or the variables are for another process
 *   path  (`size` bytes) where it listens; unchanged without a socket
 *   FSDP_ERR_CONFIG  what came is not one listening unix stream socket with a path that fits
 * On failure *fd is -1, and what came is closed.
 */
enum fsdp_status activation_take(int *fd, char *path, size_t size, struct fsdp_err *err);

#endif
