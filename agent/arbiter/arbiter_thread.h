/*
 * The thread of an arbiter (arbiter.h): it does what is due, while the loop may be busy.
 *
 * Thread: the loop's, unless stated otherwise.
 */
#ifndef AGENT_ARBITER_THREAD_H
#define AGENT_ARBITER_THREAD_H

#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

struct arbiter_thread;

struct arbiter_thread_calls {
    /*
     * On the thread: do what is due, which may block. Returns after how many milliseconds to call again, if
     * nothing wakes the thread before.
     */
    int64_t (*turn)(void *arg);
    /* Called on the loop after arbiter_thread_tell(). One call may stand for several calls of that. */
    void (*told)(void *arg);
    void *arg;
};

/**
 * Start the thread, which waits until it is woken.
 *   FSDP_ERR_NOMEM  *out is NULL: the system has no thread, or no memory
 */
enum fsdp_status arbiter_thread_create(struct arbiter_thread **out, uv_loop_t *loop,
                                       const struct arbiter_thread_calls *calls, struct fsdp_err *err);
/** Let it turn soon. Thread: any. */
void arbiter_thread_wake(struct arbiter_thread *thread);
/** Call told() on the loop. Thread: any. */
void arbiter_thread_tell(struct arbiter_thread *thread);
/**
 * Ends the thread, which must not be blocked in a call. After that only `closed` is called, on the loop, when
 * the handle is closed.
 */
void arbiter_thread_close(struct arbiter_thread *thread, void (*closed)(void *arg));

#endif
