/*
 * The coordinator, the one owner of a run. It forms generations, takes the reports of all nodes, decides
 * whether to go on, publishes checkpoints, and writes the events of the run. On one node it lives in the
 * agent of that node and has one member, the world of the same process. With more nodes, each other node is a
 * member that is reached by a connection (agent/rendezvous/nodes.h). Nodes may come and go during the run
 * (agent/members/roster.h). Each generation is formed of the nodes that are present.
 *
 * Thread: the loop's. A member may report from within a call that the coordinator makes to it.
 */
#ifndef AGENT_COORDINATOR_H
#define AGENT_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/arbiter/leader_record.h"
#include "agent/config.h"
#include "agent/members/ended.h"
#include "agent/members/proto.h"
#include "agent/output/console.h"
#include "agent/record/errors.h"
#include "agent/record/events.h"
#include "agent/record/first_cause.h"
#include "agent/world/reporter.h"
#include "agent/world/worker.h"
#include "shard_runtime/shardfile/io.h"

struct coordinator;

/*
 * Sends a message of the coordinator to a node: any of its messages from PROTO_START on
 * (agent/members/proto.h), as the struct of its type. The struct is borrowed for the call. `member` is the
 * argument that was given to coordinator_attach().
 */
typedef void coordinator_tell(void *member, enum proto_type type, int generation, const void *message);

/* What a coordinator needs to continue a run in the place of another coordinator. */
struct coordinator_past {
    unsigned char run[PROTO_IDENTITY_BYTES]; /* the run's name, see struct proto_welcome */
    /* of the run directory: the attempt that generation 0 is (struct world_plan) */
    int first_attempt;
    /* this node's number in the newest generation; -1: it took no part */
    int node_rank;
    /*
     * Times of this node's last generation, by CLOCK_BOOTTIME; 0: there was none. heard_ns: when the lost
     * coordinator was last heard; lost_ns: when its loss was noticed; stopped_ns: when no rank was left here.
     */
    int64_t heard_ns, lost_ns, stopped_ns;
    int64_t last_step; /* steps that the rank of this node that came farthest had done in it; -1: unknown */
    bool took_part;    /* this node took part in the newest generation of `progress` */
    bool swept; /* no process of the lost coordinator's node is left, and `progress` is what it wrote last */
    struct leader_progress progress;
    struct restore_steps held; /* what this node has in memory from that generation */
};

/* What the coordinator needs of the arbiter that decides who leads (agent/arbiter/arbiter.h). */
struct coordinator_lead {
    uint64_t term;
    bool (*holds)(void *arg); /* may the coordinator answer beats and begin a generation now? */
    void (*publish)(void *arg, const struct leader_progress *progress); /* the run has come so far */
    void *arg;
};

struct coordinator_services {
    uv_loop_t *loop;
    const struct agent_os *os;
    struct fsdp_io *io;
    struct disk *disk;       /* writes to the run directory; NULL: this is the only node */
    struct rundir *rundir;   /* NULL: none */
    struct events *events;   /* NULL: none */
    struct console *console; /* NULL: lines go to descriptor 2 */
    /*
     * Optional: write errors.json, before PROTO_FINISH is sent to any member. `text` is the callee's to free.
     */
    void (*write_errors)(void *arg, char *text);
    void *write_errors_arg;
    /* what this agent would send to join, borrowed during coordinator_create() */
    const struct proto_join *self;
    /* what to continue, borrowed during coordinator_create(); NULL: a new run begins */
    const struct coordinator_past *past;
    /* agents that never come back, borrowed; the coordinator adds to them. NULL: they are not kept */
    struct ended *ended;
    /* for how long from now ranks of the lost leader may still run; no generation begins before */
    int64_t fence_ms;
    /* the lease of this node, which the caller extends while this agent leads; NULL: there is none */
    const struct lease *lease;
    struct coordinator_lead lead; /* its `holds` is NULL: no arbiter decides who leads */
};

/**
 * Creates a coordinator. With a past (services->past) it continues the run of a coordinator that was lost.
 * Its first generation gets a number that no node has seen, and the nodes get their earlier order. The loss
 * of the other coordinator counts as a restart, unless the job may have fewer nodes.
 */
enum fsdp_status coordinator_create(struct coordinator **out, const struct agent_config *config,
                                    const struct coordinator_services *services, struct fsdp_err *err);
/**
 * Destroys the coordinator. Call it after PROTO_FINISH was sent to every member, when services->disk is idle;
 * NULL is a no-op. While a thread still works for a checkpoint, it returns false and frees nothing.
 */
bool coordinator_destroy(struct coordinator *coordinator);
/**
 * Calls `idle` once, from the loop, when that thread has ended. Call it only after coordinator_destroy() has
 * returned false.
 */
void coordinator_when_idle(struct coordinator *coordinator, void (*idle)(void *arg), void *arg);

/* The number of the coordinator's own node. */
enum { COORDINATOR_SELF = 0 };

/** Returns the largest number of nodes that may be present, spare nodes included. */
int coordinator_capacity(const struct coordinator *coordinator);
/**
 * Set the address by which other nodes reach this one. It is used unless the user gave one (--local-addr). It
 * also becomes the address of every node that came over loopback and named none, because such a node is on
 * this host.
 */
void coordinator_set_address(struct coordinator *coordinator, const char *address);

/**
 * Handles a node that asks to take part.
 *   join     the node's description of itself
 *   address  where its connection comes from
 *   refused  receives the reason and the exit status for the node, if it may not. Status 0: the job is
 *            complete, and the node only came too late
 * Returns its number, after which coordinator_attach() must follow, or -1.
 */
int coordinator_admit(struct coordinator *coordinator, const struct proto_join *join, const char *address,
                      struct proto_refused *refused);
/**
 * Returns the number of the present node that this agent is; -1: none. If such an agent asks to join, it has
 * given up its earlier session: call coordinator_gave_up() before coordinator_admit().
 */
int coordinator_find(const struct coordinator *coordinator, const unsigned char agent[PROTO_IDENTITY_BYTES]);
/**
 * Does this agent never come back? It has left the run, under this coordinator or an earlier one, or it was
 * restored from an earlier state. Then `refused` receives the reason. Call it before acting on
 * coordinator_find(): the agent found there may be the original of a restored copy.
 */
bool coordinator_never_again(struct coordinator *coordinator, const struct proto_join *join,
                             struct proto_refused *refused);
/** The agent with that identity was restored from an earlier state. It is refused from now on. */
void coordinator_refuse(struct coordinator *coordinator, const unsigned char identity[PROTO_IDENTITY_BYTES]);
/** The agent of `node`, which is lost, has left in order: its process ends. */
void coordinator_left(struct coordinator *coordinator, int node);
/**
 * Fills in the WELCOME for a node that was just admitted: which run and leader this is, why the node must
 * wait, and for how long.
 */
void coordinator_welcome(const struct coordinator *coordinator, int node, struct proto_welcome *welcome);
/**
 * Attaches a node that is now present. The coordinator sends messages to it by `tell`, with `member` as the
 * first argument. The first generation begins once all nodes are there, or once enough of them are and the
 * last call is over. A node that comes later is taken into a new generation, or waits until it is needed.
 */
void coordinator_attach(struct coordinator *coordinator, int node, coordinator_tell *tell, void *member);
/**
 * Handles a node whose connection was lost; `words` are the reason. Nothing had been heard from it for
 * `silent_ms`.
 */
void coordinator_lost(struct coordinator *coordinator, int node, int64_t silent_ms, const char *words);
/** May beats be answered now? If not, this agent has lost the right to lead, and another one may lead. */
bool coordinator_may_grant(const struct coordinator *coordinator);
/** A beat of `node` was answered `ago_ns` ago: its ranks may run for one lease from then on. */
void coordinator_granted(struct coordinator *coordinator, int node, int64_t ago_ns);
/**
 * The newest answer to a beat that has reached the node was sent at `answered_ns`, by CLOCK_BOOTTIME; 0: none
 * has.
 */
void coordinator_heard(struct coordinator *coordinator, int node, int64_t answered_ns);
/** Has this coordinator formed a generation? */
bool coordinator_has_formed(const struct coordinator *coordinator);
/**
 * Returns the time, by CLOCK_BOOTTIME, until which no other agent can take the lead: every agent that was
 * ever let in has heard from this coordinator at most a lease before that time. Agents that left in order, or
 * killed their ranks for good, do not count. 0: it is not known.
 */
int64_t coordinator_in_contact_until_ms(const struct coordinator *coordinator);
/**
 * Returns the earliest of the times that coordinator_heard() got for agents that are not present now;
 * INT64_MAX: there are none.
 */
int64_t coordinator_away_heard_ns(const struct coordinator *coordinator);
/**
 * The guard of the node has killed its ranks, because its lease ended `ago_ms` ago. The node stays: it
 * reports its end of the generation, and takes part in the next one.
 */
void coordinator_fenced(struct coordinator *coordinator, int node, int generation, int64_t ago_ms);
/** The node could take this coordinator's place if that is lost. A second call changes nothing. */
void coordinator_can_lead(struct coordinator *coordinator, int node);
/** The agent of `node` joins again as a new node, so the old node is lost. */
void coordinator_gave_up(struct coordinator *coordinator, int node);
/** The node has killed its ranks, and leaves. It is lost, and no rank of it has to be waited for. */
void coordinator_swept(struct coordinator *coordinator, int node);
/**
 * The guard of an agent that is not present reports that no process of the agent is left. If a lease of it
 * was waited for, that wait ends.
 */
void coordinator_agent_swept(struct coordinator *coordinator,
                             const unsigned char agent[PROTO_IDENTITY_BYTES]);
/**
 * Fills in what a coordinator needs to continue after this one. Returns whether the run goes on after the
 * loss of a node.
 */
bool coordinator_hand_over(const struct coordinator *coordinator, struct coordinator_past *past);
/**
 * The run directory of a job is gone (rundir_is_gone()): the ranks are killed, and the run ends with
 * FSDP_EXIT_IO and a line that names the directory. On a single node, a job also looks for its directory
 * after a save that failed, and if it would end with 0.
 */
void coordinator_lose_directory(struct coordinator *coordinator);
/**
 * Another agent leads the run. The ranks of this node are killed, and then its own member gets PROTO_FINISH,
 * with FSDP_EXIT_LINK and `words`. No other node is told, and no file of the run is written any more: they
 * are the other leader's.
 */
void coordinator_depose(struct coordinator *coordinator, const char *words);
/**
 * Writes to `words` why a run did not need a node that came after its end. Returns the exit status for that
 * node.
 *   status  of the run
 *   line    its last line; NULL: not known
 */
int coordinator_too_late(int status, const char *line, char words[PROTO_WORDS_BYTES]);
/**
 * Ends the running generation and begins another one, because the user asked for it. The ranks of a job save
 * first, those of a program get TERM. This does not count as a restart. Returns false, and does nothing, if
 * no generation runs, or if it is ending.
 */
bool coordinator_restart(struct coordinator *coordinator);
/**
 * The local instance of struct reporter for one node: what this node reports, the coordinator takes. It is
 * valid until coordinator_destroy().
 *
 * A signal that asks to stop has these effects:
 *   - on the coordinator's own node: the run stops, with 128 + signal, or with 77 after it has saved;
 *   - on another node, if the others are enough without it: only this node leaves;
 *   - on another node, if they are not: as on the coordinator's own.
 */
struct reporter coordinator_reporter(struct coordinator *coordinator, int node);

#endif
