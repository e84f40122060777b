/*
 * The messages between agents, which travel inside frames (agent/wire/frame.h). The coordinator is the agent
 * that listens at the endpoint. The other agents are members.
 *
 *   member -> coordinator   JOIN  PUT  WANT  EXITED  SUSPECT  RANK  EXPLAINED  STOPPED  EVENT  SAVED  PACE
 *                           ASK  BEAT  FENCED  UNKILLED  SWEPT  CAN_LEAD  STORE  HELD  ENTRY
 *   coordinator -> member   REFUSED | WELCOME  START  PUT  STOP  FORWARD  NOTICE  PUBLISHED  LOOK  SHOW  HUNG
 *                           FINISH  BEAT  OPEN  CLOSE  ENDED  ENTRY
 *
 * The order of the messages:
 *   1. A member sends JOIN. It sends nothing else before the coordinator has answered with WELCOME.
 *   2. The coordinator begins a generation with a START for every member that takes part in it.
 *   3. The generation ends when each of these members has sent STOPPED. Then step 2 may follow again.
 *   4. The coordinator sends FINISH when the job is over, or to let one member go. That member then closes
 *      the connection.
 * The receiver drops messages of an older generation.
 *
 * From WELCOME on, a member sends LEASE_BEATS times a BEAT in each lease, and the coordinator sends each one
 * back. This extends the member's lease (agent/os/lease.h), without which it begins no generation. FENCED
 * says that the lease is over, and that the ranks are killed. SWEPT is the last message of a member whose
 * guard is gone: it has killed its ranks, and leaves.
 *
 * CAN_LEAD comes once after WELCOME, as soon as the member could take the coordinator's place: the arbiter
 * has shown it the coordinator's record.
 *
 * Before the START of a program's generation, the node of the first seat gets an OPEN. It opens the store at
 * which the programs meet, and answers with STORE. CLOSE follows when the last worker of the generation is
 * gone.
 *
 * ENDED tells which agents have left the run, or were refused for good (agent/members/ended.h). It comes
 * after WELCOME, and before a START if there are new ones.
 *
 * Each message is one C struct. Most messages are encoded by the tables of fields in proto.c
 * (agent/wire/fields.h). PUT, WANT, EVENT, RANK, EXPLAINED, OPEN, ENDED and ENTRY have encodings of their
 * own. STOPPED, SUSPECT, SWEPT, CAN_LEAD, SHOW and CLOSE have no payload.
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

#include "agent/record/errors.h"
#include "agent/record/first_cause.h"
#include "agent/record/hang_rank.h"
#include "agent/snapshot/entries.h"
#include "agent/snapshot/restore.h"
#include "agent/world/reporter.h"
#include "agent/world/worker.h"

/*
 * The type of a frame; after each, the struct that proto_encode() and proto_decode() take, if there is one.
 */
enum proto_type {
    PROTO_JOIN = 1, /* struct proto_join: a node wants to take part */
    PROTO_REFUSED,  /* struct proto_refused: it may not */
    /* struct world_plan (agent/world/worker.h): a generation begins; its number is the frame's */
    PROTO_START,
    PROTO_PUT,       /* struct proto_put: a key that a worker put, for nodes whose workers asked for it */
    PROTO_EXITED,    /* struct proto_exited: one worker ended */
    PROTO_STOP,      /* struct proto_stop: stop the workers of this generation */
    PROTO_STOPPED,   /* empty: none of this generation's workers is left on the node */
    PROTO_EVENT,     /* struct proto_event: a line for events.jsonl */
    PROTO_SAVED,     /* struct proto_saved: a rank's part of a checkpoint is on disk, or failed */
    PROTO_PUBLISHED, /* struct fsdp_link_published */
    PROTO_NOTICE,    /* struct fsdp_link_notice, of kind FSDP_NOTICE_SAVE_AND_STOP: save and stop */
    PROTO_ASK,       /* struct proto_ask: the fsdprun of this member got a signal */
    PROTO_FINISH,    /* struct coordinator_end: the job is over, or this node must leave it */
    PROTO_WELCOME,   /* struct proto_welcome: a JOIN is accepted, and the member waits for START */
    PROTO_FORWARD,   /* struct proto_stop with `signal` alone: pass this signal on to the workers */
    PROTO_EXPLAINED, /* struct proto_explained: what the ranks of a node showed while one of them hung */
    PROTO_WANT,      /* struct proto_want: a worker asked for a key that no worker of its node has put */
    PROTO_SUSPECT,   /* empty: a rank of this node was silent for too long */
    PROTO_LOOK,      /* struct proto_look: report what each rank is doing, by a RANK for each */
    PROTO_RANK,      /* struct proto_rank: what a rank is doing */
    PROTO_HUNG,      /* struct proto_hung: a rank of this node is the cause of a hang: report it */
    PROTO_PACE,      /* struct pace (agent/watch/pace.h): what a rank of this node spent in some steps */
    PROTO_BEAT,      /* struct proto_beat: a question for a sign of life, and its answer */
    PROTO_FENCED,    /* struct proto_fenced: the lease is over, and the ranks are killed; STOPPED follows */
    PROTO_UNKILLED,  /* struct proto_unkilled: processes of the node do not end, or have ended at last */
    PROTO_SWEPT,     /* empty: the node has killed its ranks, and leaves the job */
    PROTO_CAN_LEAD,  /* empty: if the coordinator is lost, this node can take its place */
    PROTO_SHOW,  /* empty: a rank of another node hangs; report by EXPLAINED what this node's ranks show */
    PROTO_OPEN,  /* struct proto_open: open a store for the generation that is about to form */
    PROTO_CLOSE, /* empty: close it */
    /*
     * struct reporter_store (agent/world/reporter.h): the address of the store, or why it could not be opened
     */
    PROTO_STORE,
    PROTO_ENDED, /* struct proto_ended: these agents never come back */
    PROTO_HELD,  /* struct restore_steps: steps that the node has in memory; STOPPED follows */
    /*
     * struct snapshot_entry: a node has that snapshot of a program, or sends small files of it; or the
     * coordinator says that all nodes have it
     */
    PROTO_ENTRY,
    PROTO_COUNT
};

enum { PROTO_TEXT_BYTES = 256, PROTO_WORDS_BYTES = 512, PROTO_IDENTITY_BYTES = 16, PROTO_ENDED_MAX = 1024 };

/* The node that joins. The coordinator compares everything that must be the same on every node. */
struct proto_join {
    char version[64]; /* number and commit of the build: link structs travel inside messages */
    char host[PROTO_TEXT_BYTES];
    /* where the other nodes reach the joining node; empty: the address from which its connection comes */
    char address[PROTO_TEXT_BYTES];
    char role[PROTO_TEXT_BYTES];
    int node_rank; /* -1: any */
    int order;     /* the node's number in the cluster's scheduler; -1: unknown */
    int min_nodes, n_nodes;
    int n_workers;
    uint64_t what;                                /* XXH3 of the resolved job; 0 for a program */
    unsigned char identity[PROTO_IDENTITY_BYTES]; /* random; names the agent as long as it lives */
    /*
     * the run (struct proto_welcome) to which this node belonged when it and the coordinator lost each other;
     * zero: none
     */
    unsigned char lost_by[PROTO_IDENTITY_BYTES];
    int last_generation;       /* the newest generation that this node knows of; -1: none */
    int last_node_rank;        /* the node's number in that generation; -1: it had none */
    int n_unkilled;            /* as in struct proto_unkilled */
    struct restore_steps held; /* what the node has in memory from its last generation */
};

/* Why a node must wait after it was let in. */
enum proto_wait {
    PROTO_WAIT_FORMING,
    PROTO_WAIT_RUNNING,
    PROTO_WAIT_SPARE,
    PROTO_WAIT_ENDING, /* a rank has ended: the node waits until the job ends, or another generation begins */
    PROTO_WAIT_QUARANTINE, /* the node waits `seconds`, because it was lost more than once */
    PROTO_WAIT_SLOW,       /* the node waits `seconds`, because one of its ranks was slow */
    /* processes of an earlier generation are left on the node: it waits until they have ended */
    PROTO_WAIT_UNKILLED
};

struct proto_welcome {
    char host[PROTO_TEXT_BYTES]; /* host of the coordinator */
    unsigned char identity[PROTO_IDENTITY_BYTES];
    /* names the run: the identity of its first coordinator, also after another one has taken its place */
    unsigned char run[PROTO_IDENTITY_BYTES];
    int first_attempt; /* the attempt in the run directory that generation 0 is (struct world_plan) */
    uint64_t term;     /* of the coordinator; 0: no arbiter */
    enum proto_wait wait;
    int seconds; /* for PROTO_WAIT_QUARANTINE and PROTO_WAIT_SLOW: how long the node waits */
};

struct proto_refused {
    int status; /* the member's exit status */
    char words[PROTO_WORDS_BYTES];
};

struct proto_exited {
    struct death death; /* without node_rank and when_ns, which the coordinator's node fills in */
    struct errors_detail detail;
};

struct proto_saved {
    int rank;
    struct fsdp_link_saved saved;
};

struct proto_stop {
    int signal; /* the signal that ends the workers; 0: a rank failed */
    bool now;   /* send KILL at once, without the grace */
    bool lost;  /* a node of the generation is lost: the other nodes shorten the grace period */
};

struct proto_beat {
    /* in a question: when the member sent it, by the member's own CLOCK_BOOTTIME; the answer repeats it */
    int64_t sent_ns;
    int64_t lease_ms; /* in an answer: how long the lease runs, counted from sent_ns */
    /*
     * In an answer: when the coordinator sent it, by its own CLOCK_BOOTTIME. In a question: that time from
     * the newest answer that has reached the member; 0: none has.
     */
    int64_t answered_ns;
};

struct proto_fenced {
    int64_t ago_ms; /* for how long the lease had been over when this was sent */
};

struct proto_unkilled {
    /* how many processes of earlier generations are left on the node, because KILL does not end them */
    int n;
};

struct proto_ask {
    int signal;
    enum reporter_ask how;
};

struct proto_look {
    uint64_t question; /* its number */
    /*
     * for a program: how long ago any node saw a strong sign of life (agent/watch/hang_life.h); INT64_MAX:
     * unknown
     */
    int64_t shown_ns;
};

struct proto_rank {
    uint64_t question;
    struct hang_rank rank; /* without `node`; `answered` is true */
};

struct proto_hung {
    int rank;
    char words[HANG_WORDS_BYTES]; /* for the user: hang_words() */
};

/* After proto_decode(), the pointers in this struct and the next ones point into the payload. */
struct proto_put {
    const char *key;   /* not empty, below FSDP_LINK_KEY_BYTES */
    const void *value; /* (value_bytes) any bytes; may be NULL if there are none */
    size_t value_bytes;
};

struct proto_want {
    const char *key; /* as in a PUT */
};

struct proto_event {
    int rank;         /* -1: the agent itself */
    const char *json; /* (length) a JSON object, which proto_decode() does not check */
    size_t length;
};

struct proto_explained {
    /* (length) a report of agent/watch/hang_report.h, which proto_decode() does not check */
    const char *json;
    size_t length;
};

struct proto_open {
    uint64_t question;            /* its number */
    char named[PROTO_TEXT_BYTES]; /* the address that the user gave for the store; empty: none */
    /* where the other nodes reach this one; loopback if there are no other nodes */
    char address[PROTO_TEXT_BYTES];
    /*
     * true: an error unless `named` is an address of this node. false: `named` is used only if it is an
     * address of this node
     */
    bool must;
    bool alone; /* there are no other nodes */
    int port;   /* 0: any free one */
    int self;   /* this node's number */
    /* (guests_bytes) the nodes whose workers will come; proto_next_guest() reads them */
    const char *guests;
    size_t guests_bytes;
};

struct proto_ended {
    const unsigned char *identities; /* (n, PROTO_IDENTITY_BYTES); n is at most PROTO_ENDED_MAX */
    size_t n;
};

/* A node whose workers will connect to the store of an OPEN. */
struct proto_guest {
    int node, n_workers;
    /* address: at which the node is reached; from: where its connections come from; either may be empty */
    const char *address, *from;
};

enum { COORDINATOR_LINE_BYTES = 1024 };

/* How the run ended, the same on every node. */
struct coordinator_end {
    int status;                        /* exit status */
    char line[COORDINATOR_LINE_BYTES]; /* the first cause in words; empty: all went well */
    int node;                          /* the node on which a worker is the cause; -1: no worker is */
    int code;                          /* exit code of that worker, or minus its signal */
    struct errors_detail detail;       /* details about that worker; copied by errors_detail_copy() */
    bool explained;                    /* errors.json has details; only set on the coordinator's node */
};

/* The struct of any message. */
union proto_message {
    struct proto_join join;
    struct proto_refused refused;
    struct proto_welcome welcome;
    struct world_plan start;
    struct proto_exited exited;
    struct proto_stop stop;
    struct proto_saved saved;
    struct restore_steps held;
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct proto_ask ask;
    struct proto_beat beat;
    struct proto_fenced fenced;
    struct proto_unkilled unkilled;
    struct proto_put put;
    struct proto_want want;
    struct proto_event event;
    struct proto_explained explained;
    struct proto_look look;
    struct proto_rank rank;
    struct proto_hung hung;
    struct pace pace;
    struct coordinator_end finish;
    struct proto_open open;
    struct reporter_store store;
    struct proto_ended ended;
    struct snapshot_entry entry;
};

/**
 * Encodes a message. A PUT is its key with the zero, and then its value; a WANT is its key with the zero. An
 * EVENT is its rank, a space and its line. An EXPLAINED is its report. A RANK is zero-terminated lines of
 * JSON. An OPEN is JSON text with its zero, and then its guests. An ENTRY is JSON text with its zero,
 * and then its files. An ENDED is its identities. Any other message is zero-terminated JSON text.
 *
 *   type        a type that has a struct, see enum proto_type
 *   message     that struct
 *   size_bytes  receives the size of the payload, without a zero at its end
 *
 * Returns the payload, which the caller frees, or NULL if there is no memory for it.
 */
char *proto_encode(enum proto_type type, const void *message, size_t *size_bytes);

/**
 * Decode the payload of a frame, which may come from anyone.
 *
 *   type     the frame's type, any number
 *   message  receives the struct of that type; members that the message does not set are zero
 *   payload  (n_bytes) the payload
 *
 * Returns FSDP_OK, or FSDP_ERR_FORMAT for a type without a struct and for a payload that is not exactly such
 * a message. Then the contents of `message` are undefined.
 */
enum fsdp_status proto_decode(unsigned type, union proto_message *message, const void *payload,
                              size_t n_bytes, struct fsdp_err *err);

/**
 * Write a guest of an OPEN into `out` (`size` bytes), after the first `used` bytes. Returns how many bytes
 * are used then; 0: there is no room.
 */
size_t proto_add_guest(char *out, size_t size, size_t used, const struct proto_guest *guest);
/**
 * Read the next guest. `at` begins at open->guests. Returns false if there is none, or if what follows is not
 * a guest. In a message that proto_decode() accepted, all guests are complete, and no node number is above
 * PROTO_GUEST_MAX.
 */
bool proto_next_guest(const struct proto_open *open, const char **at, struct proto_guest *guest);
enum { PROTO_GUEST_MAX = 1 << 20 };

/** The name of a type, "join", "start", ...; "unknown" for any other number. */
const char *proto_name(unsigned type);

#endif
