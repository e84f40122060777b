/*
 * How the ranks of a host meet, with one counter and one futex word:
 *   1. Each rank that comes adds one to `arrived`.
 *   2. The last one adds one to `released`, and wakes those that sleep.
 *   3. A rank passes once `released` has reached the number of its meeting.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shard_runtime/comm/shm_segment.h"
#include "shard_runtime/core/require.h"

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake_all(struct shm_head *head)
{
    syscall(SYS_futex, &head->released, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void shm_arrive(struct shm *shm)
{
    struct shm_head *head = shm->head;
    const uint32_t mine = ++shm->meeting;

    if (atomic_fetch_add(&head->arrived, 1) + 1 != mine * (uint32_t)shm->n)
        return;
    /*
     * No sleeper is missed. These two operations and the sleeper's two (it adds itself to `sleepers`, then
     * loads `released`) are sequentially consistent. So either the sleeper sees `released` and does not
     * sleep, or this rank sees the sleeper.
     */
    atomic_store(&head->released, mine);
    if (atomic_load(&head->sleepers) != 0)
        wake_all(head);
}

/*
 * Returns whether the meeting to which this rank has come is over. The difference of the counters is right
 * even when they wrap.
 */
static bool is_open(const struct shm *shm)
{
    return (int32_t)(atomic_load_explicit(&shm->head->released, memory_order_acquire) - shm->meeting) >= 0;
}

/*
 * If another rank of this host has given up, returns its status and words, unless the meeting was over before
 * that.
 */
static enum fsdp_status check_failed(const struct shm *shm, struct fsdp_err *err)
{
    const struct shm_head *head = shm->head;

    if (atomic_load_explicit(&head->failed, memory_order_acquire) != SHM_FAILED || is_open(shm))
        return FSDP_OK;
    return fsdp_fail(err, (enum fsdp_status)head->failed_status, "%.*s", SHM_WORDS_BYTES, head->failed_words);
}

static enum fsdp_status sleep_until_open(struct shm *shm, struct fsdp_err *err)
{
    static const struct timespec slice = { .tv_nsec = WATCH_SLICE_MS * 1000000L };
    struct shm_head *head = shm->head;
    enum fsdp_status status = FSDP_OK;

    atomic_fetch_add(&head->sleepers, 1);
    while (status == FSDP_OK && !is_open(shm)) {
        const uint32_t seen = atomic_load(&head->released);
        long woken = 0;

        status = check_failed(shm, err);
        if (status == FSDP_OK && (int32_t)(seen - shm->meeting) < 0)
            woken = syscall(SYS_futex, &head->released, FUTEX_WAIT, seen, &slice, NULL, 0);
        if (woken < 0 && errno == ETIMEDOUT && status == FSDP_OK) {
            struct fsdp_err words = { 0 };

            status = watch_check(shm->watch, &words);
            if (status != FSDP_OK && is_open(shm))
                /*
                 * the process that has ended had come to this meeting before, and the meeting is over: no
                 * failure of it
                 */
                status = FSDP_OK;
            else if (status != FSDP_OK && check_failed(shm, err) != FSDP_OK)
                status = (enum fsdp_status)head->failed_status; /* its words say why it ended */
            else if (status != FSDP_OK)
                fsdp_fail(err, status, "%s", words.message);
        }
    }
    atomic_fetch_sub(&head->sleepers, 1);
    return status;
}

static enum fsdp_status compare_calls(struct shm *shm, struct fsdp_err *err)
{
    for (int r = 0; r < shm->n; r++) {
        const struct comm_call *theirs = &shm->marks[r].calls[shm->n_calls & 1];

        OK_OR_RETURN(comm_call_compare(&shm->call, shm->first + shm->self, theirs, shm->first + r, err));
    }
    return FSDP_OK;
}

enum fsdp_status shm_await(struct shm *shm, struct fsdp_err *err)
{
    struct fsdp_err own = { 0 };
    enum fsdp_status status = FSDP_OK;

    for (int i = 0; i < shm->n_spins && !is_open(shm); i++)
        pause_briefly();
    /*
     * A rank that has not come may need this CPU. sched_yield() takes a tenth of the time of sleeping and
     * being woken.
     */
    for (int i = 0; i < shm->n_yields && !is_open(shm); i++)
        sched_yield();
    if (!is_open(shm))
        status = sleep_until_open(shm, &own);
    if (status == FSDP_OK && shm->call_pending) {
        shm->call_pending = false;
        status = compare_calls(shm, &own);
    }
    if (status == FSDP_OK)
        return FSDP_OK;
    shm_fail(shm, status, own.message);
    return fsdp_fail(err, status, "%s", own.message);
}

void shm_fail(struct shm *shm, enum fsdp_status status, const char *words)
{
    struct shm_head *head = shm->head;
    uint32_t whole = SHM_WHOLE;

    if (!atomic_compare_exchange_strong(&head->failed, &whole, SHM_FAILING))
        return;
    /* Other ranks learn only that this rank has left, unless the failure is a mismatch. */
    head->failed_status = status == FSDP_ERR_MISMATCH ? FSDP_ERR_MISMATCH : FSDP_ERR_PEER;
    snprintf(head->failed_words, sizeof head->failed_words, "rank %d left: %s", shm->first + shm->self,
             words);
    atomic_store(&head->failed, SHM_FAILED);
    wake_all(head);
}

bool shm_hear(const struct shm *shm, struct fsdp_err *err)
{
    const struct shm_head *head = shm->head;

    if (atomic_load_explicit(&head->failed, memory_order_acquire) != SHM_FAILED)
        return false;
    fsdp_fail(err, (enum fsdp_status)head->failed_status, "%.*s", SHM_WORDS_BYTES, head->failed_words);
    return true;
}

enum fsdp_status shm_meet(struct shm *shm, struct fsdp_err *err)
{
    shm_arrive(shm);
    return shm_await(shm, err);
}

void shm_enter(struct shm *shm, const struct comm_call *call)
{
    shm->n_calls++;
    shm->call = *call;
    shm->marks[shm->self].calls[shm->n_calls & 1] = *call;
    shm->call_pending = true;
}

enum fsdp_status shm_leave(struct shm *shm, struct fsdp_err *err)
{
    return shm->call_pending ? shm_meet(shm, err) : FSDP_OK;
}
