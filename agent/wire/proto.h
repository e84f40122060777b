/*
 * What agents say to each other, inside frames (agent/wire/frame.h). The coordinator is the agent that listens at the
 * endpoint; the others are members. Every message but PUT and EVENT is one JSON object: an unknown or missing
 * key is refused.
 *
 *   member -> coordinator   JOIN  PUT  EXITED  STOPPED  EVENT  SAVED  ASK_STOP
 *   coordinator -> member   REFUSED | WELCOME  START  PUT  STOP  FORWARD  NOTICE  PUBLISHED  FINISH
 *
 * JOIN is the first message of a member and the only one before its admission. A generation begins with START
 * and ends with a STOPPED of every member that takes part in it; FINISH ends the job, or lets one member go: then the
 * member closes the connection, which is its goodbye. Messages of an older generation are dropped.
 *
 * Pure: no sockets, no loop.
 */
#ifndef AGENT_PROTO_H
#define AGENT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

enum proto_type {
    PROTO_JOIN = 1,
    PROTO_REFUSED,
    PROTO_START,
    PROTO_PUT,     /* key, zero, value: a worker's PUT, for the ranks of the other nodes */
    PROTO_EXITED,  /* one worker ended */
    PROTO_STOP,    /* stop the workers of this generation: at once, or within the grace */
    PROTO_STOPPED, /* none of this generation's workers is left on the node */
    PROTO_EVENT,   /* rank (-1: the agent itself), a space, an object for events.jsonl */
    PROTO_SAVED,
    PROTO_PUBLISHED,
    PROTO_NOTICE,   /* save and stop */
    PROTO_ASK_STOP, /* a member's fsdprun got a signal: stop the job, or save and stop it */
    PROTO_FINISH,   /* the job is over, or goes on without this node */
    PROTO_WELCOME,  /* the answer to a JOIN: it is one of us, and waits for START */
    PROTO_FORWARD,  /* pass this signal on to the workers */
    PROTO_COUNT
};

/* A STOP's number: the signal to end the workers by (0: a rank failed), and whether KILL comes at once instead. */
enum { PROTO_STOP_SIGNAL = 0xff, PROTO_STOP_NOW = 0x100 };

enum { PROTO_TEXT_BYTES = 256, PROTO_WORDS_BYTES = 512 };

/* Who joins. Everything that must be the same on every node is compared by the coordinator. */
struct proto_join {
    char version[64]; /* number and commit of the build: link structs travel inside messages */
    char host[PROTO_TEXT_BYTES];
    char address[PROTO_TEXT_BYTES]; /* by which it wants to be reached; empty: as its connection shows it */
    char role[PROTO_TEXT_BYTES];
    int node_rank; /* -1: any */
    int order;     /* its place among the nodes as the cluster's scheduler counts them; -1: unknown */
    int min_nodes, n_nodes;
    int n_workers;
    uint64_t what; /* XXH3 of the resolved job; 0 of a program */
};

enum proto_wait {
    PROTO_WAIT_FORMING,
    PROTO_WAIT_RUNNING,
    PROTO_WAIT_SPARE,
    PROTO_WAIT_ENDING /* a rank has ended: the job is over, or another generation begins */
};

struct proto_welcome {
    char host[PROTO_TEXT_BYTES]; /* of the coordinator */
    int wait;                    /* enum proto_wait: what it waits for */
};

struct proto_refused {
    int status; /* the member's exit status */
    char words[PROTO_WORDS_BYTES];
};

/* A generation begins: what one node needs to know of it. Its number is the frame's. */
struct proto_start {
    int restart_count;
    int world_size, first_rank;
    int n_nodes, node_rank; /* of this generation */
    int role_rank, role_world_size;
    char master_address[PROTO_TEXT_BYTES], node_address[PROTO_TEXT_BYTES];
    int master_port;
    int first_attempt;
    int64_t resume_step; /* -1: none */
    unsigned char token[32];
};

/* struct errors_detail (agent/record/errors.h): what a worker left behind about its end. */
struct proto_detail {
    char stderr_tail[4096 + 64]; /* its last lines, each ended by a newline; empty: not captured */
    char message[1024], traceback[8192], error_file[4096], log[4096];
    uint32_t shown;
    int64_t raised_us, output_at;
};

/* One worker's end: struct death as the node saw it, but for its place in time. */
struct proto_exited {
    uint32_t kind; /* enum death_kind */
    int rank, local_rank;
    int pid, code, sent_signal;
    uint32_t killed; /* 1: we had sent it KILL */
    int64_t step;    /* -1: unknown */
    int phase;       /* enum fsdp_phase; -1: unknown */
    char host[PROTO_TEXT_BYTES];
    char words[PROTO_WORDS_BYTES]; /* more about it; may be empty */
    int64_t age_ns;
    uint32_t oom_kill; /* 1: by the kernel's OOM killer */
    struct proto_detail detail;
};

struct proto_finish {
    int status;
    char words[2 * PROTO_WORDS_BYTES]; /* the first cause in one line; empty when all went well */
    int node, code;                    /* as struct coordinator_end has them */
    struct proto_detail detail;
};

/* Each returns the JSON text, to be freed, or NULL when memory ran out. */
char *proto_write_join(const struct proto_join *join);
char *proto_write_refused(const struct proto_refused *refused);
char *proto_write_welcome(const struct proto_welcome *welcome);
char *proto_write_start(const struct proto_start *start);
char *proto_write_exited(const struct proto_exited *exited);
char *proto_write_saved(const struct fsdp_link_saved *saved, int rank);
char *proto_write_published(const struct fsdp_link_published *published);
char *proto_write_finish(const struct proto_finish *finish);
/* STOP: the signal, and PROTO_STOP_NOW; FORWARD: the signal; NOTICE: the step to stop after; ASK_STOP: agent/cluster/uplink.h */
char *proto_write_number(int64_t number);

/* FSDP_ERR_FORMAT names the key that is missing, unknown, of a wrong type, too long or out of range. */
enum fsdp_status proto_read_join(struct proto_join *join, const void *text, size_t n_bytes,
                                 struct fsdp_err *err);
enum fsdp_status proto_read_refused(struct proto_refused *refused, const void *text, size_t n_bytes,
                                    struct fsdp_err *err);
enum fsdp_status proto_read_welcome(struct proto_welcome *welcome, const void *text, size_t n_bytes,
                                    struct fsdp_err *err);
enum fsdp_status proto_read_start(struct proto_start *start, const void *text, size_t n_bytes,
                                  struct fsdp_err *err);
enum fsdp_status proto_read_exited(struct proto_exited *exited, const void *text, size_t n_bytes,
                                   struct fsdp_err *err);
enum fsdp_status proto_read_saved(struct fsdp_link_saved *saved, int *rank, const void *text, size_t n_bytes,
                                  struct fsdp_err *err);
enum fsdp_status proto_read_published(struct fsdp_link_published *published, const void *text, size_t n_bytes,
                                      struct fsdp_err *err);
enum fsdp_status proto_read_finish(struct proto_finish *finish, const void *text, size_t n_bytes,
                                   struct fsdp_err *err);
enum fsdp_status proto_read_number(int64_t *number, const void *text, size_t n_bytes, struct fsdp_err *err);

/** A PUT's payload: the key with its zero, then the value. *value points into `payload`. */
enum fsdp_status proto_read_put(const char **key, const void **value, size_t *value_bytes,
                                const void *payload, size_t n_bytes, struct fsdp_err *err);

/** An EVENT's payload, to be freed; NULL when memory ran out. *json points into `payload`. */
char *proto_write_event(int rank, const char *json, size_t length, size_t *size_bytes);
enum fsdp_status proto_read_event(int *rank, const char **json, size_t *length, const void *payload,
                                  size_t n_bytes, struct fsdp_err *err);

const char *proto_name(unsigned type); /* "join", ...; "unknown" */

#endif
