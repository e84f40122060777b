/*
 * What the files of the coordinator share: coordinator.c runs the machine and ends the run,
 * coordinator_members.c knows who comes and goes, coordinator_form.c begins generations and takes them down,
 * coordinator_names.c looks up where it listens, coordinator_store.c opens the store that a generation's programs meet at, coordinator_reports.c takes what the nodes
 * say.
 *
 * Whoever posts an event calls coordinator_run() before returning to the loop.
 */
#ifndef AGENT_COORDINATOR_IMPL_H
#define AGENT_COORDINATOR_IMPL_H

#include "agent/cluster/attendance.h"
#include "agent/cluster/coordinator.h"
#include "agent/cluster/coordinator_fsm.h"
#include "agent/cluster/roster.h"
#include "agent/cluster/verdict.h"
#include "agent/record/save.h"
#include "agent/tcpstore/tcpstore.h"
#include "agent/wire/lookup.h"

enum { COORDINATOR_QUEUE = 256, COORDINATOR_LINE_BYTES = 1024 };

/* Beside the roster's entry of the same number. */
struct coordinator_node {
    const struct coordinator_member *ops;
    void *member;
    bool stopped;     /* nothing of the generation is alive there */
    bool late;        /* it came while the world was ending, and has taken part in no generation */
    int leave_signal; /* of one that has said goodbye */
    bool leave_saved; /* it asked for a checkpoint first */
};

struct coordinator {
    const struct agent_config *config;
    struct coordinator_services services;
    enum coordinator_state state;
    enum coordinator_event queue[COORDINATOR_QUEUE];
    int queue_head, queue_n;
    bool running;

    int generation, n_restarts, world_size;
    int64_t resume_step;
    struct save *save;
    struct tcpstore *store;    /* of the generation that forms or runs, for a program; else NULL */
    int last_store_port;       /* of the generation before */
    struct lookup *lookup;     /* of a name where it is to listen, before a generation forms; else NULL */
    struct addrinfo *found[2]; /* by coordinator_find_names(); NULL: not known */
    void (*named)(struct coordinator *coordinator, const struct fsdp_err *err);
    struct attendance attendance; /* at the store */
    int n_searches;               /* in vain, for whose a connection is */

    /* Of the generation that runs or just ran. */
    struct death *deaths;
    size_t n_deaths, deaths_capacity;
    int cause;                   /* index of the first cause in `deaths`; -1: none */
    struct errors_detail detail; /* of that rank */

    /* The last divergence that was tried again, until that step has passed. */
    int64_t diverged_step; /* -1: none */
    int diverged_generation, diverged_world_size;
    int diverged_rank; /* the one whose part of the loss alone was no number; -1: not known */
    char diverged_host[DEATH_HOST_BYTES]; /* where it ran */

    int stop_signal, notice_signal; /* 0: none */
    bool stop_now;

    /* Who comes and goes. */
    struct roster roster;
    bool changing;     /* the generation ends, or ended, for a change of membership */
    uv_timer_t *timer; /* NULL: the world is this node alone, and nothing is waited for */
    uint64_t gather_until_ms, last_call_ms, change_ms; /* by the loop's clock; 0: not set */
    uint64_t change_at_most_ms;

    int status;
    enum errors_class end_class; /* what ended the run where it is not a death; 0: a death did */
    char line[COORDINATOR_LINE_BYTES];
    struct coordinator_node *nodes; /* (roster.capacity) */
};

/** Does this node take part in the generation, and can it be told? */
static inline bool coordinator_in_play(const struct coordinator *coordinator, int node)
{
    return coordinator->roster.nodes[node].active && coordinator->roster.nodes[node].present;
}

void coordinator_post(struct coordinator *coordinator, enum coordinator_event event);
/** Perform what was posted. From within an action it does nothing: the loop that is running goes on. */
void coordinator_run(struct coordinator *coordinator);

/** A line of the run itself for events.jsonl. */
void coordinator_note(struct coordinator *coordinator, const char *event, const struct events_field *fields);
/** The same in a generation that may have passed. A disk that refuses a line is said once; the job goes on. */
void coordinator_write_event(struct coordinator *coordinator, int generation, const char *event,
                             const struct events_field *fields);

/** What the run ends with where it is no death: `words` are copied, and cut to COORDINATOR_LINE_BYTES. */
void coordinator_end_with(struct coordinator *coordinator, int status, enum errors_class class,
                          const char *words);

/** Post CE_GATHERED if enough nodes are there; else wait, for so long as may be waited. */
void coordinator_gather(struct coordinator *coordinator);
/** The generation is over, and another begins: let those go that said goodbye. No node is late for the next one. */
void coordinator_part(struct coordinator *coordinator);
/** Every node that plays is asked to save and leave. */
void coordinator_ask_to_leave(struct coordinator *coordinator);
/** What a node is told that came too late for the run, which is over: the words, and its exit status. */
int coordinator_too_late(const struct coordinator *coordinator, char words[PROTO_WORDS_BYTES]);
/** Stop waiting for anything: the run is over. */
void coordinator_close_timer(struct coordinator *coordinator);
/** Clean up and choose the step to go on from; CE_PREPARED or CE_REFUSED follows. */
void coordinator_prepare(struct coordinator *coordinator);
/**
 * The `weigh` of struct save_handlers: refuse the step when it ends the run and the job would give another
 * result (FSDP_ERR_CONFIG). Reads the configuration alone, which never changes: any thread.
 */
enum fsdp_status coordinator_weigh_step(void *coordinator, struct fsdp_io *io, const char *directory,
                                        int64_t step, struct fsdp_err *err);
void coordinator_form(struct coordinator *coordinator);
/** Stop the generation on every node; again, with stop_now, to hurry them. */
void coordinator_clear(struct coordinator *coordinator);

/** The address that the user names for the ranks to meet at, else that of the store's node. After roster_seat(). */
const char *coordinator_named_address(const struct coordinator *coordinator);
/**
 * Where the ranks of a generation meet (MASTER_ADDR): the named address. The ranks of one node meet at our store on
 * loopback, whatever address of the host is named: nothing listens on the network for them. After roster_seat().
 */
const char *coordinator_master_address(const struct coordinator *coordinator);
/** Is there a store for the ranks of a generation? A job of ours meets over the link. */
static inline bool coordinator_has_store(const struct coordinator *coordinator)
{
    return coordinator->config->job_json == NULL && !coordinator->config->no_store;
}
/**
 * Look up where the store is to listen, within LOOKUP_WITHIN_MS for each name; then `named`, from within this call where
 * nobody has to be asked. What was found before is forgotten.
 */
typedef void coordinator_named(struct coordinator *coordinator, const struct fsdp_err *err);
void coordinator_find_names(struct coordinator *coordinator, coordinator_named *named);
/** Also of a lookup that is under way: `named` is not called. */
void coordinator_forget_names(struct coordinator *coordinator);
/**
 * A fresh store for the generation that is about to form; none for a job, or where none is wanted. What was open is closed.
 *   as tcpstore_open()
 */
enum fsdp_status coordinator_open_store(struct coordinator *coordinator, struct fsdp_err *err);
/** Everything in it is gone, and its port free. Nothing is done where there is none. */
void coordinator_close_store(struct coordinator *coordinator);
/** Whom the store of the generation that begins will see. After roster_seat(). */
void coordinator_expect(struct coordinator *coordinator);
/** The phase of a worker of that node when it died: as the node says, or for a program what the store knows. */
int coordinator_phase_of(const struct coordinator *coordinator, int node, const struct death *death);
/** Remember a death of the generation, and which is its first cause. False: no memory for it. */
bool coordinator_report_death(struct coordinator *coordinator, const struct death *death);

/**
 * The generation is down. If its first cause is that training diverged: say in the cause's words that it is the second
 * time, or remember it. A retry that ends later, for whatever cause, has passed the step of the first try.
 */
void coordinator_take_divergence(struct coordinator *coordinator, const struct verdict_run *run);
/** The generation has done `step`: if an earlier one diverged there or before, the hardware is suspect. Said once. */
void coordinator_passed(struct coordinator *coordinator, int64_t step);

/** If every node is down: reach the verdict, and post it. */
void coordinator_judge_if_down(struct coordinator *coordinator);

#endif
