/*
 * The messages between fsdprun and a standing fsdp-agent, over the agent's unix socket. Each message is one
 * frame (agent/wire/frame.h), with job and generation 0.
 *
 *   from      message    payload
 *   fsdprun   RUN        a job; always the first message. Its first byte carries stdin, stdout and stderr
 *             (SCM_RIGHTS)
 *   fsdprun   SIGNAL     u32: a signal for the job
 *   fsdprun   JOBS       u32: 0; the only message of a connection
 *   agent     ACCEPTED   u32: process id of the job's guard
 *   agent     REFUSED    u32: exit status, then words for the user; the last message
 *   agent     QUEUED     u32: that process id again; the job waits for GPUs of the node. At most once
 *   agent     STARTED    u32: that process id again; the workers of the job run
 *   agent     EXITED     u32: exit status of the job; the last message
 *   agent     JOBS       the jobs that live, a struct control_place each; the last message
 *
 * Numbers of one message are little-endian. A RUN is different: it begins with struct control_head as it is
 * in memory, because both programs are of one build on one machine. An agent of another build refuses the
 * RUN.
 *
 * A job describes the process of fsdprun, not the run: argv, environment, working directory and what else a
 * process hands to its children. The agent executes its own fsdprun with them, which reads the command line
 * again. So a launch option is no part of this protocol.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_CONTROL_PROTO_H
#define AGENT_CONTROL_PROTO_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <fsdp/status.h>

enum control_type {
    CONTROL_RUN = 0x40, /* above every number of agent/members/proto.h */
    CONTROL_SIGNAL,
    CONTROL_ACCEPTED,
    CONTROL_REFUSED,
    CONTROL_EXITED,
    CONTROL_STARTED,
    CONTROL_QUEUED,
    CONTROL_JOBS,
};

enum {
    CONTROL_MAX_BYTES = 4 * 1024 * 1024, /* bytes of a RUN message; most of it is the environment */
    CONTROL_MAX_TEXTS = 65536,
    CONTROL_WORDS_BYTES = 512,
    CONTROL_BUILD_BYTES = 96,
    CONTROL_JOBS_BYTES = 65536, /* bytes of an answer to JOBS: a socket's buffer has room for it */
    CONTROL_PATH_BYTES = 4096,  /* bytes of a path in it, with its zero */
};

/*
 * First word of the arguments that fsdp-agent gives to the fsdprun of a job. The number of a socket follows:
 * over it fsdprun asks for GPUs, and says that the workers run (agent/daemon/lease.h).
 */
#define CONTROL_START_WORD "--agent-waits-on="

/* The fixed part of a RUN, and what a process hands to its children apart from texts. */
struct control_head {
    /* "VERSION (COMMIT)" of the sender; the first member, so that every build finds it */
    char build[CONTROL_BUILD_BYTES];
    uint32_t detach; /* 1: the job outlives its fsdprun once it has started, or waits for GPUs */
    uint32_t saves;  /* 1: a job file, which can be asked for a checkpoint */
    uint32_t umask;
    uint32_t n_arguments, n_variables;
    /* signals that were ignored and blocked when fsdprun was started; bits 0 to 63 are signals 1 to 64 */
    uint64_t ignored, blocked;
    uint64_t limits[RLIM_NLIMITS]; /* soft limits of fsdprun; RLIM_INFINITY: none */
    cpu_set_t cpus; /* the CPUs fsdprun may use: threads per rank, and so the bits, depend on them */
};

struct control_job {
    struct control_head head;
    char *const *argv;        /* of fsdprun, zero-terminated, at least one */
    char *const *environment; /* zero-terminated */
    const char *directory;    /* an absolute path */
    void *owned;              /* after control_decode_job(): the memory of the three above */
};

/**
 * Write the payload of a RUN. Of job->head it fills in `build` and the two counts, the caller everything
 * else.
 *   payload, n_bytes  the payload, to be freed by the caller, and its length
 *   FSDP_ERR_ARG      it would be larger than CONTROL_MAX_BYTES
 *   FSDP_ERR_NOMEM    no memory
 * On failure *payload is NULL.
 */
enum fsdp_status control_encode_job(struct control_job *job, unsigned char **payload, size_t *n_bytes,
                                    struct fsdp_err *err);

/**
 * Read the payload of a RUN. The job keeps a copy of it; control_job_free() releases that.
 *   FSDP_ERR_MISMATCH  the sender is of another build
 *   FSDP_ERR_FORMAT    it is cut short, has something after its end, or has a value that no fsdprun sends
 *   FSDP_ERR_NOMEM     no memory
 * On failure the job is empty and holds nothing.
 */
enum fsdp_status control_decode_job(struct control_job *job, const unsigned char *payload, size_t n_bytes,
                                    struct fsdp_err *err);

/** Release a decoded job. Afterwards it is empty; freeing it again does nothing. */
void control_job_free(struct control_job *job);

/** Write the payload of a message that is one number. Returns its length, 4. */
size_t control_encode_number(unsigned char out[4], uint32_t number);

/**
 * Write a number and words (no zero at their end) into `size` bytes; longer words are cut. Returns the
 * length.
 */
size_t control_encode_words(unsigned char *out, size_t size, uint32_t number, const char *words);

/** Read the payload of a message that is one number. Returns false when it has another length. */
bool control_decode_number(const unsigned char *payload, size_t n_bytes, uint32_t *number);

/**
 * Read a number and the words after it into `words` (`size` bytes), with a space for each control character.
 * Returns false when the payload has no number, or more than CONTROL_WORDS_BYTES of words.
 */
bool control_decode_words(const unsigned char *payload, size_t n_bytes, uint32_t *number, char *words,
                          size_t size);

/* A job in an answer to JOBS: where a reader finds its entry in the registry (agent/desk/registry.h). */
struct control_place {
    uint32_t pid; /* of the job's guard */
    /* XDG_RUNTIME_DIR and TMPDIR of its environment; "": not set */
    const char *runtime_dir, *temporary;
};

/**
 * Append a job to the payload of JOBS: its pid, then the two texts, each with its zero.
 *   at  (CONTROL_JOBS_BYTES is the size of `out`) where it goes; is moved past it
 * Returns false, with nothing written, if it does not fit.
 */
bool control_put_place(unsigned char *out, size_t *at, const struct control_place *place);

/**
 * Read the next job of such a payload.
 *   at     where it is; is moved past it
 *   place  its texts point into the payload
 * Returns 1; 0 at the end of the payload; -1 if it is damaged. Nothing of a damaged payload is to be used.
 */
int control_take_place(const unsigned char *payload, size_t n_bytes, size_t *at, struct control_place *place);

/** May fsdprun ask for this signal? Yes for each that a process can handle, except SIGCHLD. */
bool control_signal_allowed(uint32_t signal);

/**
 * Write the path of the default socket: "$XDG_RUNTIME_DIR/fsdp/agent.sock", else
 * "/tmp/fsdp-<uid>/agent.sock".
 *   runtime_dir  the value of XDG_RUNTIME_DIR; NULL or a relative path counts as not set
 * Returns false when the path does not fit in `size` bytes.
 */
bool control_default_socket(char *out, size_t size, const char *runtime_dir, unsigned uid);

#endif
