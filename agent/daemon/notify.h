/*
 * Messages to systemd, as sd_notify(3) describes them: one datagram to the socket that $NOTIFY_SOCKET names.
 * systemd must accept them from the process that it started (NotifyAccess=main), which the daemon is.
 */
#ifndef AGENT_DAEMON_NOTIFY_H
#define AGENT_DAEMON_NOTIFY_H

/**
 * Send a message, lines of NAME=VALUE. Without $NOTIFY_SOCKET this does nothing. It never waits: a message
 * that systemd does not take at once is lost, and one line on stderr says so. Any thread may call it.
 */
__attribute__((format(printf, 1, 2))) void notify(const char *format, ...);

/** Say that the configuration is read again. READY=1 must follow. */
void notify_reloading(void);

#endif
