/*
 * What a failure of the launcher itself ends with (docs: exit status of fsdprun).
 */
#ifndef LAUNCHER_EXIT_STATUS_H
#define LAUNCHER_EXIT_STATUS_H

#include <fsdp/link.h>
#include <fsdp/status.h>

int exit_status_of(enum fsdp_status status);

#endif
