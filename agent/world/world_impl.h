/*
 * What the files of the world share: world.c runs the machine, world_workers.c starts workers and takes their
 * ends and links, world_explain.c finds out why, world_sweep.c signals, reaps and kills, world_watch.c looks at their pages,
 * world_timers.c takes their watchdog timers, world_stuck.c finds those that the kernel does not let go.
 *
 * Whoever posts an event calls world_proceed() before returning to the loop; actions only post.
 */
#ifndef AGENT_WORLD_IMPL_H
#define AGENT_WORLD_IMPL_H

#include "agent/link/link_server.h"
#include "agent/os/oom.h"
#include "agent/output/progress.h"
#include "agent/placement/gpu_health.h"
#include "agent/world/timer_pipe.h"
#include "agent/world/world.h"
#include "agent/world/world_fsm.h"

enum { WORLD_QUEUE = 64, WORLD_LEFT = 64 };

struct gpu_watch;

struct world {
    const struct agent_config *config;
    struct world_services services;
    struct world_listener listener;
    struct world_plan plan;
    enum world_state state;
    struct worker *workers; /* of the generation; its handles are closed before the next is formed */
    int n_live, n_worker_handles;
    struct link_server *links;
    struct link_kept kept; /* for the workers of the next generations */
    bool noticed, running, hinted_at_torch;
    int stop_signal; /* by which the generation is asked to end; 0: TERM, as nobody named one */
    enum world_event queue[WORLD_QUEUE];
    int queue_head, queue_n;
    int64_t stuck_limit_ns;           /* world_stuck_limit_ns() */
    uv_timer_t deadline, sweep, look; /* of the state; while killing; at the pages */
    int64_t deadline_ns;              /* 0: none */
    int n_timers;
    struct progress_clock clock;
    struct oom_watch oom;
    struct timer_pipe *timers; /* NULL: nobody asked for watchdog timers */
    pid_t left[WORLD_LEFT];    /* what could not be killed, and is not waited for again */
    int n_left;
    struct gpu_watch *gpu_watch; /* of the generation; NULL: there is no driver */
    struct gpu_health gpu_health;
    int64_t gpu_deadline_ns; /* until then the next generation waits for their memory; 0: it does not */
    char host[DEATH_HOST_BYTES];
};

int64_t world_now_ns(const struct world *world);
/** A line of the agent itself on the console. */
void world_say(const struct world *world, const char *words);

void world_post(struct world *world, enum world_event event);
/** Perform what was posted. From within an action it does nothing: the loop that is running goes on. */
void world_proceed(struct world *world);
/** WE_DEADLINE comes after `ms`, unless the state changes before. */
void world_set_deadline(struct world *world, int64_t ms);

/**
 * How long workers may take between the signal that asks them to end and KILL. Those of a job are not asked: they have
 * nothing to lose that a checkpoint has not, and their grace is for a save alone.
 */
int64_t world_grace_ms(const struct world *world);

/** Start the workers of world->plan; one that cannot be started is reported, and ends the attempt. */
void world_spawn(struct world *world);
/** Take its end, if it has ended. */
void world_look_at_worker(struct world *world, struct worker *worker);
/**
 * What this node can say about the end of a worker: its last lines, its error file, the OOM killer. May change
 * worker->death: when it raised, in which words. False: `detail` is empty.
 */
bool world_explain(struct world *world, struct worker *worker, struct errors_detail *detail);
/** Its pidfd is closed when the loop lets go of it. Once for each worker that was started. */
void world_stop_watching(struct worker *worker);

/** Ask every worker to end by `signal`; SIGKILL does not ask. */
void world_end_all(struct world *world, int signal);
/** KILL to every worker and descendant. */
void world_kill_all(struct world *world);
/** The same, and again until none is left or the deadline comes. */
void world_kill(struct world *world);
/** The same for what workers left running: WE_SWEPT once none is left. */
void world_sweep(struct world *world);
/** TERM to what workers left running; WE_SWEPT once none is left. */
void world_drain(struct world *world);
/** Name those that cannot be killed, and forget them. */
void world_abandon(struct world *world);

/** Make the watchdog timers of the workers, where the environment asks for them (agent/world/timer_pipe.h). */
enum fsdp_status world_make_timers(struct world *world, struct fsdp_err *err);

/** The GPUs of a generation that is to be formed: watch them, and wait for their memory unless it is the first. */
void world_gpus_begin(struct world *world);
/** Does the generation have to wait? */
bool world_gpus_wait(const struct world *world);
/** Look whether it still has to, and go on when not. */
void world_gpus_look(struct world *world);
/** Tell each worker, on its page, how its GPU is. */
void world_gpus_show(const struct world *world);
/** Wait no more. */
void world_gpus_let_go(struct world *world);
/** The generation is over: watch no more, and record what was seen. */
void world_gpus_end(struct world *world);

/** How long a worker may be in state D at a time; 0: for ever. */
int64_t world_stuck_limit_ns(const struct agent_config *config);
/** Report a worker that has been in it for longer, and end the generation. */
void world_look_for_stuck(struct world *world);

/** Look for hangs and draw the progress line: the callback of world->look. */
void world_watch(uv_timer_t *timer);

#endif
