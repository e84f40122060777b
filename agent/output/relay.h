/*
 * The way of a program's inherited output: through the agent and out again, byte for byte, so that its last words are
 * known when it fails (last_words.h). Nothing is cut into lines, prefixed, or kept in a file.
 *
 * A worker gets one end of a channel in place of fsdprun's stderr: a pipe; where stderr is a terminal, a pseudo-terminal
 * in front of it (pty.h), so that isatty() says what it would have said. Where stdout is the same terminal, pipe, socket
 * or file as stderr the worker gets the same end for both: what order it writes in is the order that comes out. Else its
 * stdout is not touched.
 *
 * What is slow makes the writer wait, as it would without us: while our stderr takes nothing, no channel is read, and
 * memory stays at what one read brought (dead workers: what their channel still held). A stderr whose reader is gone
 * closes the channels, and the workers' writes fail as they would have. What cannot be written for another reason (a
 * full disk, /dev/full) is passed over and counted.
 *
 * A channel that cannot be made (no pseudo-terminal is left) leaves the worker with our own stderr; relay_tell() says so
 * in place of its last lines.
 *
 * Life: relay_create(); relay_open() for each rank of a generation; relay_tell() when it died; when the world of the
 * generation is reaped, relay_end_generation(); at the end relay_drain(), then relay_destroy().
 * Thread: the loop's.
 */
#ifndef AGENT_RELAY_H
#define AGENT_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/record/errors.h"

struct relay;

/** `out_fd` and `err_fd`: fsdprun's own, borrowed. `direct`: no channel is ever made. */
enum fsdp_status relay_create(struct relay **out, uv_loop_t *loop, int out_fd, int err_fd, bool direct,
                              struct fsdp_err *err);

/**
 * Close everything; what was not written out is lost. Memory is freed by close callbacks: run the loop to its end before
 * closing it. NULL is a no-op.
 */
void relay_destroy(struct relay *relay);

/** Do stdout and stderr go to the same place, so that a worker writes both into one channel? */
bool relay_joins(const struct relay *relay);

/**
 * The channel of a rank in a generation. `shown` false: its last words are kept, and nothing comes out.
 *   *fd  the worker's end, close-on-exec, the caller's to hand on and close; -1: none could be made, it keeps ours
 *   FSDP_ERR_NOMEM
 */
enum fsdp_status relay_open(struct relay *relay, int generation, int rank, bool shown, int *fd,
                            struct fsdp_err *err);

/**
 * What the last words of the rank's newest channel tell (last_words_tell()). What it still holds is read first: an exit
 * is often seen before the last words.
 */
void relay_tell(struct relay *relay, int rank, bool uncaught, struct errors_detail *detail);

/** Every process of the generation is gone: its channels end with what they hold now, whoever else may hold them. */
void relay_end_generation(struct relay *relay);

/**
 * Once all of it has come out: `done`, from the loop. Waits for a reader as long as he takes, as the workers would have;
 * once hurried, gives up after 5 s in which nothing went out.
 */
void relay_drain(struct relay *relay, void (*done)(void *data), void *data);
void relay_hurry(struct relay *relay);

/** The terminal may have another size (SIGWINCH). Looked at before everything that is relayed, too. */
void relay_resized(struct relay *relay);

/** Is the last byte that went out within a line? */
bool relay_within_line(const struct relay *relay);

uint64_t relay_taken(const struct relay *relay); /* bytes read so far of what is shown */
uint64_t relay_lost(const struct relay *relay); /* bytes that a file did not take, or that were given up on */

#endif
