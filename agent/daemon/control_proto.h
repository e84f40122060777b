/*
 * What fsdprun and a standing fsdp-agent say to each other over the agent's unix socket, inside frames
 * (agent/wire/frame.h; job and generation are 0). Both are of one build: RUN begins with the version, and an agent of
 * another one refuses.
 *
 *   fsdprun -> agent   RUN (the job; the first message; stdin, stdout and stderr travel with its first byte)
 *                      SIGNAL (u32: pass it on to the job)
 *   agent -> fsdprun   ACCEPTED (u32: pid of the job's guard)   REFUSED (u32 exit status, text)
 *                      STARTED (u32: that pid; its workers run: a detached job needs its fsdprun no more)
 *                      EXITED (u32: exit status of the job; the last message)
 *
 * A job whose fsdprun goes away is ended, unless it was detached and has started. Numbers are little-endian. A text is its length
 * (u32), its bytes and a zero; texts may hold any byte but zero. Pure: no sockets, no loop.
 */
#ifndef AGENT_CONTROL_PROTO_H
#define AGENT_CONTROL_PROTO_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <fsdp/status.h>

#include "agent/config.h"

enum control_type {
    CONTROL_RUN = 0x40, /* no number of agent/wire/proto.h */
    CONTROL_SIGNAL,
    CONTROL_ACCEPTED,
    CONTROL_REFUSED,
    CONTROL_EXITED,
    CONTROL_STARTED,
};

enum {
    CONTROL_MAX_BYTES = 4 * 1024 * 1024, /* of a RUN: the environment is most of it */
    CONTROL_MAX_TEXTS = 65536,
    CONTROL_MAX_WORKERS = 4096,
    CONTROL_WORDS_BYTES = 512,
    CONTROL_N_LIMITS = RLIM_NLIMITS,
};

/* Everything a job is, as the process that asked for it would have run it itself. */
struct control_job {
    struct agent_config config; /* stdio: 0, 1, 2; environment and directory set; no observer */
    bool detach;
    unsigned umask;
    uint64_t ignored, blocked;         /* signals 1 ... 64 as bits 0 ... 63, as fsdprun was started */
    uint64_t limits[CONTROL_N_LIMITS]; /* soft limits of fsdprun, for the workers */
    cpu_set_t cpus; /* its affinity: the threads a rank gets, and so its bits, depend on it */

    void *owned; /* what the pointers above point into, after control_decode_job() */
};

/** The payload of RUN, to be freed. FSDP_ERR_ARG: it is larger than CONTROL_MAX_BYTES, or a text is missing. */
enum fsdp_status control_encode_job(const struct control_job *job, unsigned char **payload, size_t *n_bytes,
                                    struct fsdp_err *err);

/**
 * Read such a payload. FSDP_ERR_MISMATCH: of another build; FSDP_ERR_FORMAT: damaged, or a value that no fsdprun
 * sends. On success control_job_free() releases it; on failure nothing is held.
 */
enum fsdp_status control_decode_job(struct control_job *job, const unsigned char *payload, size_t n_bytes,
                                    struct fsdp_err *err);
void control_job_free(struct control_job *job);

/** Payloads of one number, and of a number with words. Return their length. */
size_t control_encode_number(unsigned char out[4], uint32_t number);
size_t control_encode_words(unsigned char *out, size_t size, uint32_t number, const char *words);
bool control_decode_number(const unsigned char *payload, size_t n_bytes, uint32_t *number);
bool control_decode_words(const unsigned char *payload, size_t n_bytes, uint32_t *number, char *words,
                          size_t size);

/** May fsdprun ask for this signal? Any that a process can take: which of them mean something is the job's. */
bool control_signal_allowed(uint32_t signal);

/** "$XDG_RUNTIME_DIR/fsdp/agent.sock", else "/tmp/fsdp-<uid>/agent.sock". False when it does not fit. */
bool control_default_socket(char *out, size_t size, const char *runtime_dir, unsigned uid);

#endif
