/*
 * The one owner of a run: it forms generations, is told of every exit, decides whether to go on, publishes
 * checkpoints, and writes the run's events. On one node it stands in that node's agent and has one member, the
 * world of the same process; with more, each other node is a member behind a connection. Nodes may come and go
 * while it runs (agent/cluster/roster.h): a new generation is formed of those that are there.
 *
 * Thread: the loop's. Members may report from within the calls made to them.
 */
#ifndef AGENT_COORDINATOR_H
#define AGENT_COORDINATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/config.h"
#include "agent/output/console.h"
#include "agent/record/errors.h"
#include "agent/record/events.h"
#include "agent/record/first_cause.h"
#include "agent/wire/proto.h"
#include "agent/world/worker.h"
#include "shard_runtime/shardfile/io.h"

struct coordinator;

/* How the run ended, the same on every node; borrowed for the call. */
struct coordinator_end {
    int status;       /* exit status */
    const char *line; /* the first cause in words, empty when all went well */
    int node, code;   /* where a worker is the cause: of which node, and its exit code or minus its signal */
    const struct errors_detail *detail; /* of that worker; NULL: none, or nothing is known */
    bool recorded; /* errors.json has more about this failure; known on the coordinator's node alone */
};

/* What the coordinator tells a node; `member` is what coordinator_attach() was given. */
struct coordinator_member {
    void (*form)(void *member, const struct world_plan *plan);
    void (*stop)(void *member, int signal,
                 bool now); /* the workers, by this signal, 0: a rank failed; or (now) by KILL */
    void (*forward)(void *member, int signal); /* to every worker; ends nothing */
    void (*notify)(void *member, const struct fsdp_link_notice *notice);
    void (*publish)(void *member, const struct fsdp_link_published *published);
    void (*put)(void *member, int generation, const char *key, const void *value, size_t size_bytes);
    void (*finish)(void *member, const struct coordinator_end *end);
};

struct coordinator_services {
    uv_loop_t *loop;
    const struct agent_os *os;
    struct fsdp_io *io;
    struct rundir *rundir;   /* NULL: none */
    struct events *events;   /* NULL: none */
    struct console *console; /* NULL: lines go to descriptor 2 */
};

enum fsdp_status coordinator_create(struct coordinator **out, const struct agent_config *config,
                                    const struct coordinator_services *services, struct fsdp_err *err);
/** After every member's finish(); NULL is a no-op. False, and nothing is freed, while the disk is still busy. */
bool coordinator_destroy(struct coordinator *coordinator);
/** After that: `idle` is called once, from the loop, when the disk has answered. */
void coordinator_when_idle(struct coordinator *coordinator, void (*idle)(void *arg), void *arg);

/* The number of the coordinator's own node. */
enum { COORDINATOR_SELF = 0 };

/** So many nodes may be there at most, those to spare counted. */
int coordinator_capacity(const struct coordinator *coordinator);
/**
 * By which address the other nodes reach this one, where it was not said (--local-addr). It is also the address of
 * every node that came over loopback and said none: that node is on this host.
 */
void coordinator_set_address(struct coordinator *coordinator, const char *address);

/**
 * A node asks to come in. Its number, or -1, with the reason and its exit status in `refused`: 0 when the job is
 * complete, and it only came too late. With a number coordinator_attach() follows.
 */
int coordinator_admit(struct coordinator *coordinator, const struct proto_join *join, const char *address,
                      struct proto_refused *refused);
/** What a node that was just admitted will wait for. */
enum proto_wait coordinator_wait_of(const struct coordinator *coordinator, int node);
/**
 * The node is there, and can be told. Once all are (or enough, and the last call is over) the first generation
 * begins; a later node is taken in by a new generation, or waits until it is needed.
 */
void coordinator_attach(struct coordinator *coordinator, int node, const struct coordinator_member *ops,
                        void *member);
/** It vanished; nothing had been heard of it for `silent_ms`. */
void coordinator_lost(struct coordinator *coordinator, int node, int64_t silent_ms, const char *words);
/**
 * A signal of the user's on that node: it leaves, and the others go on, where enough remain; else the run is
 * stopped. `save`: after a checkpoint, where the workers can.
 */
void coordinator_leave(struct coordinator *coordinator, int node, int signal, bool now, bool save);

/* Reports of a node. `detail` (of a rank that failed) may be NULL. */
void coordinator_exited(struct coordinator *coordinator, int node, int generation, const struct death *death,
                        const struct errors_detail *detail);
void coordinator_stopped(struct coordinator *coordinator, int node, int generation);
void coordinator_event(struct coordinator *coordinator, int node, int generation, int rank, const char *json,
                       size_t length);
void coordinator_record(struct coordinator *coordinator, int node, int generation, const char *event,
                        const struct events_field *fields);
void coordinator_saved(struct coordinator *coordinator, int node, int generation, int rank,
                       const struct fsdp_link_saved *saved, int manifest_fd);
void coordinator_put(struct coordinator *coordinator, int node, int generation, const char *key,
                     const void *value, size_t size_bytes);

/** A signal of the user's: stop within the grace, or (now) without it. The exit status is 128 + signal. */
void coordinator_stop(struct coordinator *coordinator, int signal, bool now);
/** A signal that goes on to every worker of the job. */
void coordinator_forward(struct coordinator *coordinator, int signal);
/** A signal that asks for a checkpoint first: 77 when every rank has left, 128 + signal when they did not. */
void coordinator_notice(struct coordinator *coordinator, int signal);

#endif
