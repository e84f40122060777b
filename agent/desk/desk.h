/*
 * The desk of a run: a unix socket at which it answers this user's questions and takes orders. The commands
 * over jobs (`fsdprun ps`, `status`, `stop`, ...) are its callers; they find the socket in the registry
 * (agent/desk/registry.h). A run answers from memory and never waits for a caller.
 *
 * A caller sends one line, the name of an enum desk_word, and reads lines, each one a JSON object:
 *
 *   line       the answers
 *   ps         what docs/operations.md lists for `fsdprun ps`; then the connection is closed
 *   status     the same, and the workers of this node
 *   inspect    everything that is known
 *   watch      what `ps` has, without the age: now, and again whenever it has changed
 *   watch all  the same of what `status` has
 *   stop       {"accepted": true}; and when the run has ended {"ended": STATUS, "words": LINE}
 *   save       likewise; the ranks save a checkpoint first
 *   restart    {"accepted": true}; and {"generation": G} when the next generation was formed
 *
 * A line that is refused is answered with {"refused": STATUS, "words": REASON}: the exit status for the
 * caller. A restart that the end of the run overtakes is answered as a stop.
 *
 * Only processes of the same user, or root, may connect: the kernel tells their uid (SO_PEERCRED), whatever
 * the mode of the socket has become. These bounds hold whatever callers do:
 *   - DESK_CONNECTIONS are open at a time. One more takes the place of the oldest that has not sent its line,
 *     or else of the oldest that watches. If all of them wait for the end of the run, it is closed at once.
 *   - One that watches is told at most once in DESK_WATCH_MS, and not before it has taken the answer before.
 *     While there is one, the run looks at its own memory so often; no caller asks again.
 *   - A line has at most DESK_LINE_BYTES, and must be whole after DESK_MS. An answer has at most
 *     DESK_ANSWER_BYTES, and must be taken within DESK_MS. Else the connection is closed.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_DESK_DESK_H
#define AGENT_DESK_DESK_H

#include <uv.h>

#include <fsdp/status.h>

#include "shard_runtime/core/json.h"

enum {
    DESK_CONNECTIONS = 64,
    DESK_LINE_BYTES = 64,
    DESK_ANSWER_BYTES = 256 * 1024,
    DESK_MS = 2000,
    DESK_WATCH_MS = 500
};

enum desk_word {
    DESK_PS,
    DESK_STATUS,
    DESK_INSPECT,
    DESK_WATCH,
    DESK_WATCH_ALL,
    DESK_STOP,
    DESK_SAVE,
    DESK_RESTART,
    DESK_WORDS
};

/** Returns the line of a word, without its newline. */
const char *desk_word_text(enum desk_word word);

enum { DESK_REASON_BYTES = 256 };

struct desk_handlers {
    void *arg;
    /*
     * Writes the answer, a JSON object, to a word before DESK_STOP. To DESK_WATCH and DESK_WATCH_ALL it gives
     * the same text as long as nothing has changed.
     */
    void (*show)(void *arg, enum desk_word word, struct json_text *answer);
    /*
     * Takes an order: DESK_STOP, DESK_SAVE or DESK_RESTART. Returns 0 if the order is accepted. Otherwise
     * returns the exit status for the caller, with the reason in `reason` (DESK_REASON_BYTES). The order is
     * carried out later; this function calls no function of the desk.
     */
    int (*order)(void *arg, enum desk_word word, char *reason);
};

struct desk;

/**
 * Begin to answer at a socket that listens. `listen_fd` is taken over, also after an error. `handlers` is
 * copied.
 */
enum fsdp_status desk_open(struct desk **out, uv_loop_t *loop, int listen_fd,
                           const struct desk_handlers *handlers, struct fsdp_err *err);

/** A generation was formed: those who asked for a restart before that get their answer. NULL: no effect. */
void desk_formed(struct desk *desk, int generation);

/**
 * The run has ended: tell those who wait, close every connection, and free, once the loop has closed the
 * handles. No handler is called any more. NULL: no effect.
 */
void desk_close(struct desk *desk, int status, const char *words);

#endif
