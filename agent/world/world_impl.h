/*
 * Shared by the files of the world:
 *   world.c          owns `struct world` and runs the state machine
 *   world_spawn.c    starts workers
 *   world_workers.c  handles their ends and links
 *   world_explain.c  finds out why a worker ended
 *   world_sweep.c    signals, reaps and kills
 *   world_watch.c    looks at the progress pages
 *   world_account.c  finds out what the ranks of a hang show
 *   world_hang.c     reports silent ranks, and what all ranks are doing
 *   world_pace.c     reports how ranks spend their time
 *   world_life.c     watches what a program shows
 *   world_gpus.c     watches the GPUs of a generation
 *   world_standby.c  keeps workers on standby
 *   world_save.c     keeps snapshot segments, and has slots of them written
 *   world_timers.c   handles expired watchdog timers
 *   world_stuck.c    finds workers in state D
 *
 * A callback that posts an event calls world_proceed() before it returns to the loop. Actions only post.
 */
#ifndef AGENT_WORLD_IMPL_H
#define AGENT_WORLD_IMPL_H

#include "agent/link/link_server.h"
#include "agent/os/oom.h"
#include "agent/output/progress.h"
#include "agent/placement/gpu_health.h"
#include "agent/snapshot/copies.h"
#include "agent/snapshot/entry_dir.h"
#include "agent/snapshot/segments.h"
#include "agent/snapshot/writer.h"
#include "agent/watch/hang_life.h"
#include "agent/watch/timer_pipe.h"
#include "agent/world/world.h"
#include "agent/world/world_fsm.h"

/*
 * How many events can wait at a time. FORM, and everything after it, may wait for the handles of the
 * generation before (world.c: must_wait). Before FORM, and after it, each event waits at most once:
 *   - STOP, STOP_NOW, NOTICE, FAILED and PEER_LOST come from outside, any number of times. One that already
 *     waits is not queued again.
 *   - Each other event answers one action or one order of the coordinator.
 */
enum {
    WORLD_QUEUE = 2 * WE_COUNT,
    WORLD_LEFT = 64,
    WORLD_LOOK_EVERY_MS = START_WAIT_LOOK_MS,
    WORLD_PROCESSES = 1024 /* the most processes of a worker that are examined */
};

struct gpu_watch;
struct world_account;
struct world_start;

struct world {
    const struct agent_config *config;
    struct world_services services;
    struct reporter reporter;
    struct world_plan plan;
    enum world_state state;
    /* workers of the generation; their handles are closed before the next generation begins */
    struct worker *workers;
    int n_live, n_unreported, n_worker_handles;
    struct link_server *links;
    struct link_kept kept;     /* for the workers of later generations */
    struct segments *segments; /* memory for the workers' snapshots, in every generation; NULL: none */
    /* segments for copies of another node's snapshots; NULL: checkpoint.replicas is 0 */
    struct segments *held;
    /* the process that copies the generation's snapshots to another node; NULL: snapshots are not copied */
    struct copies *copies;
    struct entry_dir *entries; /* snapshots of programs; NULL: there is no place for them */
    struct writer *writer;     /* writes slots of the generation to the disk; NULL: no slot was filled yet */
    struct world_save *saves;  /* the slots that it writes; NULL: none */
    uint64_t n_saves;          /* slots that were ever to be written */
    struct world_start *start; /* the start of a generation, until its files are open; else NULL */
    bool started;              /* all workers of the generation were started, and their execs are over */
    char program[RUNDIR_PATH_BYTES];
    struct fsdp_link_notice notice; /* the last one; only if `noticed` */
    bool noticed, running, hinted_at_torch;
    bool lost;       /* a node of the generation is lost */
    int stop_signal; /* the signal by which the generation is asked to end; 0: none was named, so TERM */
    enum world_event queue[WORLD_QUEUE];
    int queue_head, queue_n;
    struct hang_bounds bounds; /* kept from one generation to the next */
    struct hang_life life;     /* signs of life of a program that is watched (world_life.c) */
    uint64_t n_output;         /* bytes that the ranks had printed at the last look */
    int archive_fd;            /* with the module of --python-stacks; 0: none */
    bool prints_elsewhere;     /* workers print where this process does not see it */
    uint64_t signs_ns;         /* when the progress pages were last looked at, by uv_hrtime(); 0: never */
    unsigned told_learned;     /* the classes (as bits) about which an event has said that they are learned */
    bool said_traced;          /* a line has said that no rank is judged while a debugger holds one */
    int64_t told_waiting_ns;   /* when a line said that a rank waits in the kernel; 0: never */
    int64_t suspected_ns;      /* when a silent rank was last reported; 0: not in this generation */
    int64_t stuck_limit_ns;    /* world_stuck_limit_ns() */
    /* deadline: of the state; sweep: repeats while processes are killed; look: checks the progress pages */
    uv_timer_t deadline, sweep, look;
    int64_t deadline_ns; /* 0: none */
    int n_timers;
    struct progress_clock clock;
    struct oom_watch oom;
    struct timer_pipe *timers; /* NULL: the environment asks for no watchdog timers */
    pid_t left[WORLD_LEFT];    /* processes that could not be killed, for which no end waits again */
    int n_left;
    struct standby *standby;       /* NULL: no worker is kept on standby */
    pid_t *spared;                 /* (WORLD_LEFT + config->standby + 1) room for lists */
    struct world_account *account; /* the account of a hang that is about to be reported; NULL: none */
    struct gpu_watch *gpu_watch;   /* from the first generation on; NULL: there is no driver */
    struct gpu_health gpu_health;
    /* until when the next generation waits for GPU memory to be free; 0: it does not wait */
    int64_t gpu_deadline_ns;
    char host[DEATH_HOST_BYTES];
};

int64_t world_now_ns(const struct world *world);
/** Print a line of the agent on the console. */
void world_say(const struct world *world, const char *words);

/** Report an event of this agent in the current generation, for events.jsonl. */
void world_record(const struct world *world, const char *event, const struct events_field *fields);
/** Report a worker's death, or that it hangs. `detail` may be NULL. */
void world_report(const struct world *world, const struct death *death, const struct errors_detail *detail);

/** Queue an event. Does not return if the queue is full, which is a bug (bug_stop()). */
void world_post(struct world *world, enum world_event event);
/** Handle the posted events. Called from within an action it does nothing: the running call handles them. */
void world_proceed(struct world *world);
/** Post WE_DEADLINE after `ms`, unless the state changes before. */
void world_set_deadline(struct world *world, int64_t ms);

/**
 * How long workers may take from the signal that asks them to end to KILL. It is 0 for a job: its workers
 * would lose nothing but steps that are in no checkpoint, and the user's grace period is only for a save.
 */
int64_t world_grace_ms(const struct world *world);

/**
 * Start the workers of world->plan; with a disk, later. The first one that cannot be started is reported, and
 * no other is started.
 */
void world_spawn(struct world *world);
/** The generation is stopped: if its workers are not started yet, none will be. Posts WE_REAPED. */
void world_cancel_start(struct world *world);
/** If a start takes long, print what it waits for. If it takes too long, end the generation. */
void world_look_at_start(struct world *world);
/** worker_start_standby() for this world. */
bool world_start_standby(struct world *world, int local_rank, struct standby_process *process,
                         struct death *death);
/** Make world->links for the next generation. */
bool world_make_links(struct world *world, struct fsdp_err *err);
/** From now on, look after snapshots of programs, if there is a place for them that can be watched. */
enum fsdp_status world_open_entries(struct world *world, struct fsdp_err *err);
/**
 * Call it before the workers of world->plan start: removes all entries except the one that the coordinator
 * has chosen.
 */
void world_begin_entries(struct world *world);
/**
 * Give the workers the descriptors of their segments. With checkpoint.replicas, that happens only once the
 * segments have what the ranks resume from.
 */
bool world_give_segments(struct world *world, struct fsdp_err *err);
/** Has this node anything in memory for the next generation? */
bool world_in_memory(const struct world *world, struct restore_steps *held);
/**
 * A worker reports its part of a save. It is reported to the coordinator once its file is on the disk. The
 * callee owns manifest_fd.
 */
void world_saved(struct world *world, int rank, const struct fsdp_link_saved *saved, int manifest_fd);
/**
 * The generation is over, or its workers are being killed: nothing of it is written to the disk or reported
 * any more.
 */
void world_end_saves(struct world *world);
/** Watch the pidfd of a started worker. */
void world_watch_worker(struct worker *worker);
/** If the generation trains and a worker on standby is missing, start one. */
void world_standby_look(struct world *world);
/**
 * A child has ended and is about to be reaped. If it was on standby and could not execute its program, print
 * why.
 */
void world_standby_ended(struct world *world, pid_t pid);
/**
 * List the children that no end of a generation kills: those on standby and the one that watches the GPUs.
 * Returns how many they are; `pids` has room for config->standby + 1.
 */
size_t world_kept(const struct world *world, pid_t *pids);
/**
 * List the children for which the end of a generation does not wait: those of world_kept(), and those that
 * were given up because KILL does not end them. *pids is valid until the next call. Returns how many they
 * are.
 */
size_t world_spared(const struct world *world, const pid_t **pids);
/** If the worker has ended, reap it and handle its end. */
void world_look_at_worker(struct world *world, struct worker *worker);
/**
 * Report the end of a worker, with what this node knows about it: its last lines, its error file, the OOM
 * killer. With an error_reader, the report may come later, but before WE_REAPED. Posts that after the report,
 * if no worker is left.
 */
void world_explain(struct world *world, struct worker *worker);
/** Stop watching the worker and its pidfd, which a close callback closes. Once for each started worker. */
void world_stop_watching(struct worker *worker);

/** Ask every worker to end by `signal`; with SIGKILL, end it. */
void world_end_all(struct world *world, int signal);
/** Send KILL to the workers repeatedly, until none is left or the deadline comes. */
void world_kill(struct world *world);
/** Send KILL repeatedly to processes that workers left running. Posts WE_SWEPT once none is left. */
void world_sweep(struct world *world);
/** Send TERM to processes that workers left running. Posts WE_SWEPT once none is left. */
void world_drain(struct world *world);
/** Name the processes that cannot be killed. From now on nothing waits for them. */
void world_abandon(struct world *world);

/** Make world->timers, if the environment asks for watchdog timers (agent/watch/timer_pipe.h). */
enum fsdp_status world_make_timers(struct world *world, struct fsdp_err *err);

/** A generation is to be formed: watch the GPUs. Unless it is the first, begin to wait for their memory. */
void world_gpus_begin(struct world *world);
/** Does the generation still wait for memory of its GPUs? */
bool world_gpus_wait(const struct world *world);
/** Look at the memory of the GPUs, and begin the generation if it need not wait any longer. */
void world_gpus_look(struct world *world);
/** Store the last sample of each worker's GPU on its progress page. */
void world_gpus_show(const struct world *world);
/** Stop waiting for memory of the GPUs. */
void world_gpus_let_go(struct world *world);
/** The world ends: stop watching the GPUs, and record a gpu_usage event for each. */
void world_gpus_end(struct world *world);

/**
 * Returns how long a rank may be silent now; 0: without limit. The second function returns how long it has
 * been silent, without the time that is excused.
 */
int64_t world_bound_ns(const struct world *world, const struct worker *worker);
int64_t world_silence_ns(const struct world *world, const struct worker *worker);
/**
 * Returns the process that keeps a rank from going on: a process of the rank that was stopped or asleep in
 * the kernel in the last two looks, and still is. If there is none, returns the worker's own process.
 */
pid_t world_held(const struct worker *worker);
/** Returns for how much of its silence a rank is excused because it was asleep in the kernel. */
int64_t world_blocked_ns(const struct world *world, const struct worker *worker);
/** Forget the silence of all ranks: it counts from now on. */
void world_forget_silence(struct world *world);

/**
 * A generation begins: its ranks have shown no sign of life yet, if the program is watched. The second
 * function takes, at each look, what they have shown.
 */
void world_life_begin(struct world *world);
void world_life_look(struct world *world);
/**
 * Is this rank a program's that shows no steps on a progress page, so that its silence is judged by other
 * signs?
 */
bool world_life_has(const struct world *world, const struct worker *worker);
/** A node saw a strong sign of life of some rank, `ago_ns` ago. */
void world_life_shown(struct world *world, int64_t ago_ns);
/** The GPUs have new samples. */
void world_life_gpus(struct world *world);
/** Excuses the time `ns`, in which the processes did not run. */
void world_life_shift(struct world *world, int64_t ns);

/** Report that a rank is silent for too long, if one is. */
void world_look_for_hang(struct world *world);

/** Report what the ranks of a job spent, each time a window of steps is over. */
void world_look_at_pace(struct world *world);

/** Returns for how long a worker may be in state D; 0: without limit. */
int64_t world_stuck_limit_ns(void);
/** Report a worker that was in state D for longer, and end the generation. */
void world_look_for_stuck(struct world *world);

/**
 * Begins to look at the process of every rank, because `culprit` hangs, as `words` say. `culprit` NULL: the
 * culprit is not known yet, and what the ranks show decides it; world_account_name() then follows. Nothing is
 * reported yet. Returns false if there is no memory.
 */
bool world_account_begin(struct world *world, struct worker *culprit, const char *words);
/**
 * Returns the rank that is the account's culprit; NULL: there is no account, or its culprit is not known yet.
 */
struct worker *world_account_culprit(const struct world *world);
/** Set the culprit of an account that was begun without one. */
void world_account_name(struct world *world, struct worker *culprit, const char *words);
/**
 * Continues the account, if its culprit still hangs. When every process was looked at, or after a second,
 * reports what the ranks show and then the hang, and ends the generation. If the culprit is not known, only
 * returns true then.
 */
bool world_account_look(struct world *world);
/**
 * A rank of another node hangs: as soon as an account is ready, report what the ranks of this node show. If
 * there is no memory for an account, nothing is reported.
 */
void world_account_show(struct world *world);
/** Is an account being made because a rank of another node hangs? */
bool world_account_shows(const struct world *world);
/** Returns the Python stack of worker `i` from the account; NULL: it is not known. */
const struct python_stack *world_account_stack(const struct world *world, int i);
/** Forget the account, if there is one. */
void world_account_drop(struct world *world);

/** Callback of world->look: look for hangs, and draw the progress line. */
void world_watch(uv_timer_t *timer);
/** Call world_watch() in `ms` milliseconds, and then as often as before. */
void world_look_soon(struct world *world, uint64_t ms);

#endif
