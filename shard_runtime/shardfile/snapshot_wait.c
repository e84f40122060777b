#include "shard_runtime/shardfile/snapshot_wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint32_t snapshot_changes(const struct fsdp_snapshot_head *head)
{
    return atomic_load_explicit(&head->changes, memory_order_acquire);
}

void snapshot_wait(struct fsdp_snapshot_head *head, uint32_t changes, int timeout_ms)
{
    const struct timespec most = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };

    (void)syscall(SYS_futex, &head->changes, FUTEX_WAIT, changes, &most, NULL, 0);
}

void snapshot_wake(struct fsdp_snapshot_head *head)
{
    atomic_fetch_add_explicit(&head->changes, 1, memory_order_release);
    (void)syscall(SYS_futex, &head->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
