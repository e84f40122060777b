#include "agent/os/lease.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "shard_runtime/core/clock.h"

struct lease_page {
    _Atomic int64_t until_ns;
    _Atomic uint32_t under; /* generation + 1 that is under the lease; 0: none */
    _Atomic uint32_t over;  /* generation + 1 whose lease has ended */
    _Atomic int64_t answered_ms;
    _Atomic uint32_t n_wills; /* that were written; the last one counts */
    struct will {
        size_t n_bytes;
        unsigned char bytes[LEASE_WILL_BYTES];
    } wills[2]; /* number n is in wills[n % 2] */
};

enum fsdp_status lease_create(struct lease *lease, struct fsdp_err *err)
{
    /* The name lets /proc/PID/maps show which processes have a lease. */
    const int fd = memfd_create("fsdp-lease", MFD_CLOEXEC);
    void *page = MAP_FAILED;

    *lease = (struct lease){ .timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK) };
    if (fd >= 0 && lease->timer >= 0 && ftruncate(fd, sizeof(struct lease_page)) == 0)
        page = mmap(NULL, sizeof(struct lease_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        fsdp_fail(err, FSDP_ERR_IO, "no lease can be made: %s", strerror(errno));
    if (page == MAP_FAILED && lease->timer >= 0)
        close(lease->timer);
    if (fd >= 0)
        close(fd);
    if (page == MAP_FAILED)
        return FSDP_ERR_IO;
    lease->page = page;
    return FSDP_OK;
}

void lease_destroy(struct lease *lease)
{
    if (lease->page == NULL)
        return;
    munmap(lease->page, sizeof *lease->page);
    close(lease->timer);
    lease->page = NULL;
}

void lease_extend(const struct lease *lease, int64_t sent_ns, int64_t lease_ms)
{
    const int64_t until_ns = sent_ns + lease_ms * 1000000;
    int64_t before_ns = lease->page->until_ns;

    lease->page->answered_ms = lease_ms;
    if (sent_ns > clock_boot_ns() || lease_is_over(lease))
        return;
    while (until_ns > before_ns &&
           !atomic_compare_exchange_weak(&lease->page->until_ns, &before_ns, until_ns))
        ; /* two threads extend the lease: the later end counts */
}

void lease_clear(const struct lease *lease)
{
    lease->page->until_ns = 0;
}

bool lease_runs(const struct lease *lease)
{
    return clock_boot_ns() < lease->page->until_ns;
}

void lease_begin(const struct lease *lease, int generation)
{
    lease->page->under = (uint32_t)generation + 1;
    lease_wake_at(lease, lease->page->until_ns);
}

void lease_end(const struct lease *lease)
{
    lease->page->under = 0;
}

int64_t lease_look(const struct lease *lease)
{
    struct lease_page *page = lease->page;
    const uint32_t under = page->under;
    const int64_t until_ns = page->until_ns;

    if (under == 0)
        return 0;
    if (page->over != under && clock_boot_ns() < until_ns)
        return until_ns;
    page->over = under;
    return INT64_MIN;
}

bool lease_is_over(const struct lease *lease)
{
    return lease->page != NULL && lease_look(lease) == INT64_MIN;
}

int64_t lease_over_ms(const struct lease *lease)
{
    const int64_t over_ns = clock_boot_ns() - lease->page->until_ns;

    return over_ns > 0 ? over_ns / 1000000 : 0;
}

void lease_bequeath(const struct lease *lease, const void *will, size_t n_bytes)
{
    const uint32_t number = lease->page->n_wills + 1;
    struct will *to = &lease->page->wills[number % 2];

    assert(n_bytes <= LEASE_WILL_BYTES);
    to->n_bytes = n_bytes;
    if (n_bytes > 0)
        memcpy(to->bytes, will, n_bytes);
    lease->page->n_wills = number;
}

bool lease_inherit(const struct lease *lease, void *will, size_t n_bytes)
{
    const struct will *from = &lease->page->wills[lease->page->n_wills % 2];

    if (from->n_bytes != n_bytes)
        return false;
    memcpy(will, from->bytes, n_bytes);
    return true;
}

int64_t lease_answered_ms(const struct lease *lease)
{
    return lease->page->answered_ms;
}

void lease_wake_at(const struct lease *lease, int64_t when_ns)
{
    const struct itimerspec at = { .it_value = { when_ns / 1000000000, when_ns % 1000000000 } };

    (void)timerfd_settime(lease->timer, TFD_TIMER_ABSTIME, &at, NULL);
}
