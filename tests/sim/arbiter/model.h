/*
 * A deterministic simulation of who leads: agent/arbiter/lead.h in several agents, over a store that is as
 * bad as arbiter_store.h allows. Calls take their time or fail. Their answers are lost though they took
 * effect, and they take effect after they failed. A read brings what was overwritten a moment before. Agents
 * stand still, die and come back; their clocks run at different rates; links to the store and between agents
 * are cut.
 *   store.c    the store
 *   calls.c    the calls of it that are under way
 *   agents.c   agents, and what they hear of each other
 *   history.c  the plan of a seed, and what must hold
 */
#ifndef SIM_ARBITER_MODEL_H
#define SIM_ARBITER_MODEL_H

#include "agent/arbiter/lead.h"
#include "tests/sim/arbiter/store.h"
#include "tests/sim/history.h"

enum { HOSTS = 5, LIVES = 40, RUN = 17 };

/* One life of an agent: from its start to its death. */
struct life {
    int number, host;
    bool alive;
    struct lead lead;
    uint64_t n_turns; /* a turn that was planned before the last one does nothing */
    uint64_t n_calls; /* likewise for answers */

    uint64_t follows; /* the term of the leader that it is a member of, or tries to be; 0: none */
    int64_t heard_ms; /* by its clock, last word of a leader; 0: none */
    uint64_t let_in;  /* the term of that leader; 0: none */
    bool has_led;
    bool unlocked;     /* ... and did not take the lock */
    bool over;         /* it knows that the run is over */
    bool leaves;       /* it took over, and could not lead */
    int64_t stands_ns; /* since when it stands; -1: it does not */
    /* of a leader: when it sent what that life is known to have received, by its clock; 0: nothing yet */
    int64_t reached_ms[LIVES];
    bool has_let_in[LIVES];
    int64_t led_until_ns; /* until when it has led, or may lead; 0: never */
};

struct host {
    int64_t offset_ms;
    double rate;
    int64_t still_until;     /* its agent stands still */
    int64_t busy_until;      /* the loop of its agent does */
    int64_t store_cut_until; /* the store does not answer it */
    struct life *life;       /* the newest; NULL: none yet */
};

struct plan {
    int n_hosts;
    int64_t lease_ms;
    bool gentle; /* the leader dies once, and nothing else happens */
    /* a job is started twice: on another host, one begins by the endpoint although there is a leader */
    bool stranger;
    bool some_rest;           /* hosts above 1 read once in a lease */
    struct leader_record old; /* what the store has from before; term 0: nothing */
    bool calm;                /* the faults are over */
    bool resigns;             /* the leader ends the run when the faults are over */
    int64_t last_fault;       /* all are over then */
    int64_t calm_from;        /* and calls that were slow because of them */
    int64_t call_ns;          /* usual time of a call of the store */
    int fails_one_in, slow_one_in, loses_one_in, late_one_in; /* calls; 0: none */
    int drops_one_in;                                         /* messages; 0: none */
};
extern struct plan plan;
extern struct host hosts[HOSTS];
extern struct life lives[LIVES];
extern int n_lives;
extern struct life *owners[TERMS]; /* who has led with each term */
extern struct life *speaker;       /* whose event this is */

int64_t lease_ns(void);
int64_t clock_ms(const struct life *life);
/** The time at which the clock of `life` will be at `ms`. */
int64_t time_of(const struct life *life, int64_t ms);
bool is_still(const struct life *life);
/** Is only its loop busy, so that it takes no news and decides nothing, while its threads go on? */
bool is_busy(const struct life *life);
/** Does it lead by its own clock? Others cannot know whether it stands still. */
bool leads_now(const struct life *life);

/* calls.c */
/** The number of the life that took this term. */
int claim_owner(uint64_t term);
/** How many claims have no leader: their owner died or gave up, or has not learned of it yet. */
int n_lost_claims(void);
void call_begin(struct life *life, enum lead_call call, const struct leader_record *record);

/* agents.c */
void agent_start(int host);
void agent_die(struct life *life);
/** Let it do what is due. */
void agent_turn(struct life *life);
/** May a message pass from one host to another? */
extern bool cut[HOSTS][HOSTS];

/* history.c */
void check_news(struct life *life, enum lead_news news);
void check(void);

#endif
