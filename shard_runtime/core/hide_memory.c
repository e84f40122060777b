#include "shard_runtime/core/hide_memory.h"

#include <sys/prctl.h>

void core_hide_memory(void)
{
#ifndef __SANITIZE_ADDRESS__ /* its leak check attaches to this process */
    prctl(PR_SET_DUMPABLE, 0);
#endif
}
