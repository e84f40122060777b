/*
 * Shared by the files of the coordinator:
 *   coordinator.c              runs the state machine, and ends the run
 *   coordinator_members.c      takes in nodes that join, and handles nodes that leave
 *   coordinator_wait.c         waits for nodes, and ends generations for a change of nodes
 *   coordinator_contact.c      knows which agents have heard from this one, and when
 *   coordinator_fence.c        knows until when ranks of lost nodes may run
 *   coordinator_ended.c        knows which agents never come back
 *   coordinator_quarantine.c   holds back nodes that come and go, or whose processes do not end
 *   coordinator_form.c         begins generations and takes them down
 *   coordinator_mark.c         marks a run directory that all nodes share
 *   coordinator_store.c        has the store opened at which the programs of a generation meet
 *   coordinator_reports.c      takes the reports of the nodes
 *   coordinator_timeline.c     keeps the times of a restart
 *   coordinator_survival.c     says which losses of nodes the job bears
 *   coordinator_entries.c      knows which snapshots of programs all nodes have
 *   coordinator_memory.c       chooses the step in memory from which the ranks go on
 *   coordinator_keys.c         passes the keys of workers to the nodes that ask for them
 *   coordinator_hang.c         finds the rank that keeps the others waiting
 *   coordinator_pace.c         finds the ranks that are slower than the others
 *
 * A function that posts an event calls coordinator_run() before it returns to the loop.
 */
#ifndef AGENT_COORDINATOR_IMPL_H
#define AGENT_COORDINATOR_IMPL_H

#include "agent/cluster/coordinator.h"
#include "agent/link/store.h"
#include "agent/members/attendance.h"
#include "agent/members/budget.h"
#include "agent/members/coordinator_fsm.h"
#include "agent/members/hang_leader.h"
#include "agent/members/quarantine.h"
#include "agent/members/recurrence.h"
#include "agent/members/roster.h"
#include "agent/members/stragglers.h"
#include "agent/members/timeline.h"
#include "agent/members/verdict.h"
#include "agent/os/lease.h"
#include "agent/save/save.h"
#include "agent/snapshot/entries.h"
#include "agent/snapshot/restore.h"
#include "agent/watch/hang_table.h"
#include "agent/world/start_wait.h"

/*
 * How many events can wait at a time. Each event waits at most once:
 *   - FAILED, STOP and CHANGE come from outside, any number of times. One that already waits is not
 *     queued again: what it means is in struct coordinator, and the machine looks at that when the event
 *     is taken.
 *   - Each other event answers one action, and is taken before that action can be performed again.
 */
enum { COORDINATOR_QUEUE = CE_COUNT };

/* What the coordinator keeps about a node, in addition to the roster's entry with the same number. */
struct coordinator_node {
    /* the coordinator that owns this struct; a reporter's `to` points to the struct */
    struct coordinator *coordinator;
    coordinator_tell *tell; /* NULL: no node has this number yet */
    void *member;
    bool stopped; /* no process of the generation is alive on the node */
    int n_failed; /* workers of the generation that did not end well */
    /* the node came while the world was ending, and has taken part in no generation yet */
    bool late;
    int leave_signal;       /* the signal for which the node leaves the job */
    bool leave_saved;       /* the node asked for a checkpoint before it leaves */
    uint64_t held_until_ms; /* end of its quarantine; 0: it is in none */
    /* if the job cannot run without the node, the end of its quarantine; else meaningless */
    uint64_t needed_ms;
    bool slow; /* it is in quarantine because a rank of it was slow */
    /* how many processes of earlier generations do not end on the node, for which it is held back */
    int n_unkilled;
    bool said_unkilled; /* it was reported that the node is held back for such processes */
    /* when a beat of the node was answered last; 0: never, and its ranks have not begun */
    uint64_t granted_ms;
    int64_t heard_ns; /* coordinator_heard(); 0: nothing was */
    /* the newest generation that the node's agent has reported to this coordinator; -1: none */
    int generation;
    bool can_lead;             /* it can take this coordinator's place */
    bool shows;                /* the node was asked what its ranks show (struct search) */
    struct restore_steps held; /* what the node has in memory, as it reported after its last generation */
    /* the node whose copies it resumes from, perhaps itself; -1: it has its own snapshots */
    int source;
};

/* An agent that was let in, and then lost. */
struct coordinator_away {
    unsigned char identity[PROTO_IDENTITY_BYTES];
    int64_t heard_ns;
    int generation; /* as of struct coordinator_node */
};

/* A lost agent, and until when its ranks may run, by coordinator_now_ms(). */
struct coordinator_fenced {
    unsigned char identity[PROTO_IDENTITY_BYTES];
    uint64_t until_ms;
};

/* The nodes of the lost coordinator's newest generation, whose ranks may still run. */
struct coordinator_awaited {
    int generation, n_nodes;
    bool *came; /* (n_nodes) by node rank in that generation: the node has come, so none of its ranks runs */
    int n;      /* nodes that have not come yet; 0: all have, or it is not known which nodes there were */
};

/* The search for the rank that keeps the others waiting. */
struct search {
    enum hang_leader_state state;
    uint64_t question; /* number of the last one */
    int n_missing;     /* ranks that have not answered it */
    /* (world_size) the answers of the ranks; NULL: no question was asked in this generation */
    struct hang_rank *ranks;
    uint64_t until_ms; /* by coordinator_now_ms(); 0: none */
    int64_t again_ms;  /* the pause that follows the last verdict */
    /*
     * of a program: when any node last saw a strong sign of life, by uv_hrtime(); 0: not known in this
     * generation
     */
    int64_t shown_at_ns;

    /*
     * The culprit's node (-1: none). It is told that its rank is the culprit only after the other nodes have
     * reported what their ranks show.
     */
    int culprit;             /* that node; -1: none */
    struct proto_hung hung;  /* what it is told */
    struct hang_table table; /* what the others have shown */
    int n_silent;            /* nodes that have not */
    uint64_t show_until_ms;  /* when that node is told, even if reports are missing; 0: it was told */
};

/* What is known of slow ranks. */
struct pacing {
    struct stragglers stragglers;
    /* (n_said) whether the console has named this rank as a straggler; NULL: there was no memory */
    bool *said;
    int n_said;
};

typedef void coordinator_opened(struct coordinator *coordinator, const struct fsdp_err *err);

/* PyTorch's store for the programs of a generation. It is on the node of the first seat. */
struct store_place {
    uint64_t question; /* number of the last order to open one */
    int node;          /* that has the order; -1: none has */
    bool is_awaited;   /* it has not answered */
    bool is_open;
    int port;
    char address[PROTO_TEXT_BYTES]; /* MASTER_ADDR */
    int64_t changed_ns;             /* when a client last changed a key, by uv_hrtime() */
    /* the nodes for which the store was ordered, in the order of their ranks */
    int *numbers, n;
    unsigned n_arrived;         /* of the roster at that time */
    coordinator_opened *opened; /* takes the answer */
};

struct coordinator {
    const struct agent_config *config;
    struct coordinator_services services;
    enum coordinator_state state;
    enum coordinator_event queue[COORDINATOR_QUEUE];
    int queue_head, queue_n;
    bool running;

    int generation, world_size;
    struct budget budget;
    int64_t resume_step;
    /* the newest snapshot that is in memory for all ranks, from which they resume; step -1: there is none */
    struct snapshot_held memory_step;
    int memory_world;                /* of how many ranks that step is */
    struct leader_progress progress; /* the progress that was last given to the arbiter */
    unsigned char token[32];         /* of the generation that forms or runs */
    struct save *save;
    struct store_place place;     /* of the generation that forms or runs */
    struct mark *mark;            /* the mark for --run-dir, while its writing is waited for; else NULL */
    uint64_t mark_look_ms;        /* when that wait is looked at next, by coordinator_now_ms() */
    struct attendance attendance; /* the workers that have connected to the store */

    struct entries *entries; /* snapshots of programs; NULL: none was reported */
    struct store *keys;      /* keys of the generation that nodes may ask for; NULL: there have been none */

    /* The deaths of the generation that runs or just ran. */
    struct death *deaths;
    size_t n_deaths, deaths_capacity;
    int cause;                   /* index of the first cause in `deaths`; -1: none */
    struct errors_detail detail; /* details about the rank of that cause */
    char *hang; /* what its ranks showed while one of them hung (hang_table_take()); NULL: none hung */

    struct leader_divergence diverged; /* world_size 0: none */

    struct search search;
    struct pacing pacing; /* of a job */

    struct recurrence recurrence; /* of a job: its last failure, and how often in a row it has happened */
    struct timeline timeline;     /* of the last restart */

    /*
     * Which losses of nodes the generation survives: when the line about that is due, by
     * coordinator_now_ms(); 0: not.
     */
    uint64_t survival_ms;       /* the next look; 0: none */
    uint64_t survival_until_ms; /* until when the line waits for nodes that cannot take the lead yet */
    /* the number of nodes that could take the lead, as in the last line; -1: there was no line yet */
    int n_heirs;

    int stop_signal, notice_signal; /* 0: none */
    bool stop_now;
    bool has_formed;                   /* a generation */
    bool took_over;                    /* this coordinator continues the run of one that was lost */
    bool deposed;                      /* another agent leads the run */
    bool without_directory;            /* the run directory was removed, and the run ends because of that */
    bool node_lost;                    /* a node of the generation is lost */
    struct coordinator_fenced *fenced; /* (n_fenced) */
    int n_fenced, fenced_capacity;
    uint64_t fenced_until_ms; /* until when ranks may run whose agents are not known; 0: there are none */
    struct coordinator_awaited awaited;

    /* The nodes that join and leave. */
    struct roster roster;
    bool has_guests; /* a node that came over loopback is present, and uses the address of this host */
    struct quarantine quarantine;
    int n_held;                    /* nodes in quarantine */
    struct coordinator_away *away; /* (n_away) */
    int n_away, away_capacity;
    /* agents that are not in `away` may be lost too, because there was no memory to add them */
    bool unknown_away;
    uint64_t n_ended;  /* how many of services.ended the members have been told */
    bool changing;     /* the generation ends, or has ended, because the nodes change */
    uv_timer_t *timer; /* NULL: the world is this node alone, so there is nothing to wait for */
    uint64_t gather_until_ms, last_call_ms, change_ms; /* by coordinator_now_ms(); 0: not set */
    uint64_t change_at_most_ms;
    /* how long ranks may take to save and leave, because the nodes change; 0: not set */
    uint64_t leave_until_ms;

    int status;
    enum errors_class end_class; /* why the run ended; 0: because of a death */
    char line[COORDINATOR_LINE_BYTES];
    struct coordinator_node *nodes; /* (roster.capacity) */
    /* nodes of the generation that are present and not `stopped`; valid while the generation is up */
    int n_up;
};

/** Does this node take part in the generation, and is it connected? */
static inline bool coordinator_in_play(const struct coordinator *coordinator, int node)
{
    return coordinator->roster.nodes[node].active && coordinator->roster.nodes[node].present;
}

/** Does a generation run, or is one being taken down? */
static inline bool coordinator_is_up(const struct coordinator *coordinator)
{
    return coordinator->state == CS_UP || coordinator->state == CS_CLEARING;
}

/** Returns the time by the clock that struct death, struct budget and struct quarantine use. */
static inline int64_t coordinator_now_ns(const struct coordinator *coordinator)
{
    return coordinator->services.os->now_ns(coordinator->services.os->arg);
}

static inline uint64_t coordinator_now_ms(const struct coordinator *coordinator)
{
    return (uint64_t)coordinator_now_ns(coordinator) / 1000000;
}

/** May a generation begin now? The arbiter and the lease of this node must both allow it. */
static inline bool coordinator_may_form(const struct coordinator *coordinator)
{
    const struct lease *lease = coordinator->services.lease;

    return coordinator_may_grant(coordinator) && (lease == NULL || lease_runs(lease));
}

/** May the world have fewer nodes than it has at most? */
static inline bool coordinator_is_elastic(const struct coordinator *coordinator)
{
    return coordinator->roster.min_nodes < coordinator->roster.max_nodes;
}

/** Writes "HOST (ADDRESS)" of a node into `out` (ROSTER_NAME_BYTES). Returns `out`. */
static inline const char *coordinator_name_of(const struct coordinator *coordinator, int node, char *out)
{
    const struct roster_node *at = &coordinator->roster.nodes[node];

    return roster_name(out, at->who.host, at->address);
}

/** Sends a message of this generation to every node that is in play, except the node `except` (-1: none). */
void coordinator_tell_all(struct coordinator *coordinator, int except, enum proto_type type,
                          const void *message);

/** Queue an event. Does not return if the queue is full, which is a bug (bug_stop()). */
void coordinator_post(struct coordinator *coordinator, enum coordinator_event event);
/**
 * Takes the posted events and performs their actions. A call from within an action does nothing, because the
 * outer call then takes the event.
 */
void coordinator_run(struct coordinator *coordinator);

/** How far the run has come. */
struct leader_progress coordinator_progress(const struct coordinator *coordinator);
/** Tells the arbiter how far the run has come, if there is one. */
void coordinator_publish(const struct coordinator *coordinator);

/** Writes an event of the run itself to events.jsonl. */
void coordinator_note(struct coordinator *coordinator, const char *event, const struct events_field *fields);
/**
 * Writes an event of a generation that may be over. If the disk refuses lines, the console reports it once,
 * and the job goes on.
 */
void coordinator_write_event(struct coordinator *coordinator, int generation, const char *event,
                             const struct events_field *fields);

/** Ends the run for a reason other than a death. `words` are copied, and cut to COORDINATOR_LINE_BYTES. */
void coordinator_end_with(struct coordinator *coordinator, int status, enum errors_class class,
                          const char *words);

/**
 * Handles a signal that stops the run, within the grace period or (now) without it. The exit status is 128 +
 * signal.
 */
void coordinator_stop(struct coordinator *coordinator, int signal, bool now);
/** Forwards a signal to every worker of the job. */
void coordinator_forward(struct coordinator *coordinator, int signal);
/**
 * Handles a signal that asks for a checkpoint before the end. The exit status is 77 if every rank has left
 * after saving, else 128 + signal.
 */
void coordinator_notice(struct coordinator *coordinator, int signal);
/**
 * Handles a stop signal on another node. If enough nodes remain without it, only that node leaves; otherwise
 * the run stops. `save`: workers that can do so save a checkpoint first.
 */
void coordinator_leave(struct coordinator *coordinator, int node, int signal, bool now, bool save);

/**
 * Posts CE_GATHERED if enough nodes are there. Otherwise waits for more, at most as long as the configuration
 * allows.
 */
void coordinator_gather(struct coordinator *coordinator);
/** Begins to wait for what the present nodes make possible: a first world, or a world with other nodes. */
void coordinator_consider(struct coordinator *coordinator);
/**
 * Ends the generation, so that another one with other nodes can follow. A job of the trainer saves its step
 * first; so does a program if `save` is set.
 */
void coordinator_change(struct coordinator *coordinator, bool save);
/**
 * Returns whether the generation is ending: a rank has ended, with or without success, or all ranks were
 * asked to end. Another generation may follow.
 */
bool coordinator_is_ending(const struct coordinator *coordinator);
/**
 * Ends a generation before another begins. Nodes that wanted to leave are let go. No node counts as late for
 * the next generation.
 */
void coordinator_part(struct coordinator *coordinator);
/** Asks every node that takes part to save a checkpoint and leave. */
void coordinator_ask_to_leave(struct coordinator *coordinator);
/**
 * Puts a node that was just let in into quarantine, if it was lost often or was slow. Prints a line about
 * that.
 */
void coordinator_hold(struct coordinator *coordinator, int node);
/** Writes for the next coordinator which nodes were lost often, or are slow. */
void coordinator_note_suspects(const struct coordinator *coordinator, struct leader_progress *progress);
/**
 * Takes over the notes of an earlier coordinator about nodes. Its own node was lost with it, and gets a
 * strike, unless it is this coordinator's node too.
 */
void coordinator_take_suspects(struct coordinator *coordinator, const struct leader_progress *progress);
/**
 * Puts a node that takes part into quarantine for `aside_ms`, because its rank `slow_rank` is slow, and
 * begins to form the world again without it. Reports that. Returns false, and does nothing, if the job needs
 * the node, or if it is in quarantine or leaves already.
 */
bool coordinator_set_aside(struct coordinator *coordinator, int node, int slow_rank, int64_t wait_ms);
/** Notes that the agent of a present node is lost, or is told to leave, but may still live. */
void coordinator_note_away(struct coordinator *coordinator, int node);
/**
 * Forgets a lost agent, because it could no longer take the lead: it was let in again, has left in order, or
 * has killed its ranks for good. Returns the newest generation that it had reported; -1: none.
 */
int coordinator_forget_agent(struct coordinator *coordinator,
                             const unsigned char agent[PROTO_IDENTITY_BYTES]);
/** Forgets the agent of `node` as coordinator_forget_agent() does. */
int coordinator_forget_away(struct coordinator *coordinator, int node);
/**
 * A node that takes part is lost: no generation begins before its lease must be over. No effect if its ranks
 * are known to be gone.
 */
void coordinator_fence(struct coordinator *coordinator, int node);
/**
 * Call it when this coordinator takes over. If the node of the lost one is swept, the fence will end as soon
 * as all other nodes of its newest generation have come.
 */
void coordinator_await(struct coordinator *coordinator, const struct coordinator_past *past);
/**
 * A node has come that had node rank `node_rank` in generation `generation`. None of its ranks is left. The
 * node may be this one.
 */
void coordinator_came(struct coordinator *coordinator, int generation, int node_rank);
/** No rank of that agent is left: ends the wait for its lease. Returns whether there was such a wait. */
bool coordinator_unfence(struct coordinator *coordinator, const unsigned char agent[PROTO_IDENTITY_BYTES]);
/** Returns until when ranks of lost nodes may run, by coordinator_now_ms(); 0: none can. */
uint64_t coordinator_fenced_until_ms(const struct coordinator *coordinator);
/**
 * `n` processes do not end on the node. As long as there are some, the node is held back, and a line says so.
 */
void coordinator_take_unkilled(struct coordinator *coordinator, int node, int n);
/**
 * Call it when a generation is over and another follows: reports which of its nodes are held back because of
 * such processes.
 */
void coordinator_tell_unkilled(struct coordinator *coordinator);
/** Returns the newest generation that an agent has reported, if the agent is present or lost; -1: none. */
int coordinator_generation_of(const struct coordinator *coordinator,
                              const unsigned char identity[PROTO_IDENTITY_BYTES]);
/** Tells a node that has just come which agents never come back. */
void coordinator_tell_ended(const struct coordinator *coordinator, int node);
/** Tells all nodes of the agents that were added since the last call. */
void coordinator_tell_all_ended(struct coordinator *coordinator);
/** Ends the quarantine of a node, if it is in one. */
void coordinator_release(struct coordinator *coordinator, int node);
/** Returns when the next quarantine ends, by coordinator_now_ms(); 0: no node is in one. */
uint64_t coordinator_held_ms(const struct coordinator *coordinator);
/** Ends the quarantines that are over. Returns whether there was one. */
bool coordinator_release_due(struct coordinator *coordinator);
/** Closes the timer, because the run is over. */
void coordinator_close_timer(struct coordinator *coordinator);
/** Cleans up, and chooses the step to resume from. CE_PREPARED or CE_REFUSED follows. */
void coordinator_prepare(struct coordinator *coordinator);
/**
 * The `weigh` function of struct save_handlers. If the step is the last one of the run, it fails with
 * FSDP_ERR_CONFIG when the job would give another result. It reads only the configuration, which never
 * changes, so it may run on any thread.
 */
enum fsdp_status coordinator_weigh_step(void *coordinator, struct fsdp_io *io, const char *directory,
                                        int64_t step, struct fsdp_err *err);
/** Returns how many steps the run has. A program's last step is not known to the agent. */
int64_t coordinator_last_step(const struct agent_config *config);
void coordinator_form(struct coordinator *coordinator);
/**
 * Stops the generation on every node. Of later calls, one with stop_now ends the grace period, and one with
 * node_lost shortens it.
 */
void coordinator_clear(struct coordinator *coordinator);

/**
 * Returns the address at which the ranks of a generation meet (MASTER_ADDR): that of the store. If there is
 * no store, it is the address that the user gave, or else that of the first node. The user's address is that
 * of the first host, so a coordinator on another host does not use it. Call it after roster_seat().
 */
const char *coordinator_master_address(const struct coordinator *coordinator);
/**
 * Is there a store for the ranks of a generation? A job of the trainer needs none, because its ranks meet
 * over the link.
 */
static inline bool coordinator_has_store(const struct coordinator *coordinator)
{
    return coordinator->config->job_json == NULL && !coordinator->config->no_store;
}
/**
 * Marks the directory of --run-dir for the generation that is about to form, if it has to be marked. Then it
 * calls `marked`, perhaps from within this call. If the disk does not answer in time, `marked` gets an error,
 * and a later answer has no effect.
 */
typedef void coordinator_marked(struct coordinator *coordinator, const struct fsdp_err *err);
void coordinator_mark(struct coordinator *coordinator, coordinator_marked *marked);
/** If the mark is being waited for, checks whether the disk has taken too long. */
void coordinator_mark_look(struct coordinator *coordinator);
/**
 * Has a new store opened for the generation that is about to form, and the old one closed, and then calls
 * `opened`, perhaps from within this call. A job of the trainer gets none, and neither does a run that wants
 * none. If the node that is to have it is lost before it answers, CE_FAILED is posted instead.
 */
void coordinator_open_store(struct coordinator *coordinator, coordinator_opened *opened);
/** Has the store closed, if there is one: its keys are lost, and its port is free. */
void coordinator_close_store(struct coordinator *coordinator);
/**
 * `node` is gone. If it was to open the store and has not answered, CE_FAILED is posted, after the events of
 * the loss itself.
 */
void coordinator_store_lost(struct coordinator *coordinator, int node);
/**
 * Returns how long ago a client changed a key of the store, as far as its node has reported; INT64_MAX: there
 * is no store.
 */
int64_t coordinator_store_idle_ns(const struct coordinator *coordinator);
/** The `store` of struct reporter. */
void coordinator_report_store(void *to, int generation, const struct reporter_store *report);
/**
 * Sets the workers that will connect to the store of the generation that begins. Call it after roster_seat().
 */
void coordinator_expect(struct coordinator *coordinator);
/** Forgets who was expected at the store, and who came. */
void coordinator_forget_arrivals(struct coordinator *coordinator);
/**
 * Returns the phase in which a worker of `node` died. For a program it is what the store shows; otherwise
 * what the node reported.
 */
int coordinator_phase_of(const struct coordinator *coordinator, int node, const struct death *death);
/**
 * Records a death of the generation, and compares it with the first cause so far. Returns false if there is
 * no memory for it.
 */
bool coordinator_report_death(struct coordinator *coordinator, const struct death *death);

/**
 * Handles a divergence after a generation has ended.
 *   - If training diverged for the first time, this is recorded.
 *   - If it diverged at the same step again, the words of the cause say so.
 *   - If a retry ended later, for any cause, it has passed the step of the first divergence.
 */
void coordinator_take_divergence(struct coordinator *coordinator, const struct verdict_run *run);
/**
 * Counts the failure of a generation of a job into run->n_same. If it has come so often that it is final, the
 * words of the cause say so.
 */
void coordinator_take_recurrence(struct coordinator *coordinator, struct verdict_run *run);
/**
 * Reports once that the hardware is suspect, if the generation has done `step` and an earlier one diverged at
 * that step or before.
 */
void coordinator_passed(struct coordinator *coordinator, int64_t step);

/**
 * Adds to the last line of a run that failed because no restart was left: how many there were, if they count
 * within a window. Without a window the number is in the command line, and nothing is added.
 */
void coordinator_add_window(const struct coordinator *coordinator, char *line, size_t size);

/**
 * The generation has failed, or must end for a change of nodes. Only the first call in a generation counts.
 */
void coordinator_detect(struct coordinator *coordinator);
/**
 * No process of the generation is left, and `generation` follows: begins the timeline of the restart. Call it
 * before the deaths are forgotten.
 */
void coordinator_begin_timeline(struct coordinator *coordinator, int generation);
/** The same for coordinator_create(): the generation before was that of a coordinator that was lost. */
void coordinator_continue_timeline(struct coordinator *coordinator, const struct coordinator_past *past);
/**
 * The nodes and ranks of the next generation are decided: notes the time. Call it before any node is told.
 */
void coordinator_form_timeline(struct coordinator *coordinator);
/**
 * Takes an event of the running generation (timeline_event()). If it completes the timeline of a restart,
 * writes the timeline.
 */
void coordinator_time_event(struct coordinator *coordinator, int rank, const char *event, int64_t step);
/** The same for an event's JSON text. Also prints the line of a checkpoint that the ranks passed over. */
void coordinator_time_line(struct coordinator *coordinator, int rank, const char *json, size_t length);
/** Writes the timeline of the last restart, if that was not done, with what is known of it. */
void coordinator_write_timeline(struct coordinator *coordinator);
/** If a node other than the leader's is lost, does the job go on, or wait for another node? */
bool coordinator_bears_loss(const struct coordinator *coordinator);
/**
 * A generation begins: prints which losses of nodes it survives. That happens at once, or as soon as every
 * node has said that it can take the lead, but at most two leases later. A new line follows when the number
 * of such nodes changes.
 */
void coordinator_survival_begin(struct coordinator *coordinator);
/** Prints that line, if it is due. */
void coordinator_survival_look(struct coordinator *coordinator);
/** A generation begins: there is no search for a hang yet. */
void coordinator_hang_begin(struct coordinator *coordinator);
/** Continues the search for a hang, if its deadline has come. */
void coordinator_hang_look(struct coordinator *coordinator);
/** Frees the answers of the ranks. */
void coordinator_hang_fini(struct coordinator *coordinator);
/** Three functions of struct reporter. */
void coordinator_report_suspects(void *to, int generation);
void coordinator_report_explained(void *to, int generation, const char *json, size_t length);
void coordinator_report_rank(void *to, int generation, uint64_t question, const struct hang_rank *rank);
/** A generation of a job begins: no rank is known to be slow yet. */
void coordinator_pace_begin(struct coordinator *coordinator);
/** Frees what is known of slow ranks. */
void coordinator_pace_fini(struct coordinator *coordinator);
/** A function of struct reporter. */
void coordinator_report_pace(void *to, int generation, const struct pace *pace);
/** Starts the timer for the deadline that comes first. Without a timer it does nothing. */
void coordinator_arm(struct coordinator *coordinator);

/** Sets memory_step to the newest one that is in memory for every rank of the generation that is over. */
void coordinator_find_memory_step(struct coordinator *coordinator);
/**
 * The nodes have their seats: writes into `plan` whether they resume from memory. They do not if the world
 * has another size, or if a node has another seat and no copy of what it needs.
 */
void coordinator_find_memory(struct coordinator *coordinator, struct world_plan *plan);
/** A function of struct reporter. */
void coordinator_report_entry(void *to, int generation, const struct snapshot_entry *entry);
/**
 * The node number `node` is free, or belongs to another agent now: forgets the snapshots of the earlier one.
 */
void coordinator_forget_entries(struct coordinator *coordinator, int node);
/** Writes the snapshot with which the seated generation begins into plan->snapshot. */
void coordinator_choose_entry(const struct coordinator *coordinator, struct world_plan *plan);

/**
 * Takes a key that a worker of `node` put, and sends it to the other nodes that asked for it. If the key was
 * put before, or is beyond the limit of memory, the console reports that.
 */
void coordinator_put(struct coordinator *coordinator, int node, const char *key, const void *value,
                     size_t size_bytes);
/** A worker of `node` asks for a key that its own node lacks. The node gets the key once it is known. */
void coordinator_want(struct coordinator *coordinator, int node, const char *key);
/** Forgets all keys, because another generation begins or the run is over. */
void coordinator_forget_keys(struct coordinator *coordinator);

/** If every node is down, reaches the verdict on the generation and posts it. */
void coordinator_judge_if_down(struct coordinator *coordinator);

#endif
