/*
 * The protocol between a node's agent and each worker that it starts, and the memory that the two share.
 *
 * The agent and the worker each hold one end of a SOCK_SEQPACKET socket pair. The worker finds the descriptor
 * number of its end in the environment variable FSDP_LINK_FD. One packet is one message: a struct
 * fsdp_link_header, then `size` bytes of payload, and at most one descriptor (SCM_RIGHTS). Both processes run
 * on one host and come from one build, so the structs are sent as they are in memory. Each generation has its
 * own socket pairs, progress pages and keys. Only the snapshot segment and the value put at
 * FSDP_LINK_KEPT_KEY survive a generation.
 *
 * Order of packets:
 *   1. The agent queues HELLO (payload struct fsdp_link_hello; descriptor: the progress page).
 *   2. If the agent runs a training job of fsdprun, it queues JOB (descriptor: a sealed memfd with the
 *      resolved job as JSON). Both packets are in the socket before the worker starts, so the worker knows at
 *      once whether it has a job.
 *   3. From then on the worker sends PUT, GET, EVENT and SAVED, and the agent sends VALUE, NOTICE and
 *      PUBLISHED.
 * A worker on standby (fsdp-train --gate) waits for GATE before that. It is executed before its generation
 * begins, and its link is that of the generation from HELLO on.
 *
 * End of file on the socket means that the other process is gone.
 */
#ifndef FSDP_LINK_H
#define FSDP_LINK_H

#include <assert.h>
#include <stdint.h>

#include <fsdp/export.h>

/*
 * An atomic type that C and C++ code can share. C++17 and C++20 have no _Atomic. std::atomic has the same
 * size and layout, which is why C++23 allows its <stdatomic.h> to be shared with C. The extern "C++" block is
 * needed if a caller includes this header inside extern "C".
 */
#ifdef __cplusplus
extern "C++" {
#include <atomic>
}
#define FSDP_ATOMIC(type) std::atomic<type>
#else
#include <stdatomic.h>
#define FSDP_ATOMIC(type) _Atomic(type)
#endif

FSDP_BEGIN_DECLS

#define FSDP_LINK_FD_ENV "FSDP_LINK_FD"

/*
 * A key whose value (at most FSDP_LINK_KEPT_BYTES) the agent keeps on this node. Workers of later generations
 * find the value in HELLO.
 */
#define FSDP_LINK_KEPT_KEY "kept"

enum {
    FSDP_LINK_MAGIC = 0x4b4c5346, /* "FSLK" in memory */
    FSDP_LINK_VERSION = 6,
    FSDP_LINK_KEY_BYTES = 128, /* a key with its terminating zero */
    FSDP_LINK_VALUE_BYTES = 65536,
    FSDP_LINK_EVENT_BYTES = 3072,
    FSDP_LINK_NAME_BYTES = 256,
    FSDP_LINK_WORDS_BYTES = 512,
    FSDP_LINK_KEPT_BYTES = 64,
    FSDP_LINK_GATE_BYTES = 65536, /* the environment that opens the gate */
};

enum fsdp_link_type {
    FSDP_LINK_HELLO = 1,
    FSDP_LINK_JOB,
    /*
     * struct fsdp_link_put, then the value; optionally a descriptor. Each key is put only once. A key that is
     * put with a descriptor is for the workers of this host alone.
     */
    FSDP_LINK_PUT,
    /* struct fsdp_link_get. The agent answers with VALUE as soon as the key exists, however late. */
    FSDP_LINK_GET,
    /* the value of a key, with the `tag` of the GET; also the descriptor, if the PUT had one */
    FSDP_LINK_VALUE,
    FSDP_LINK_EVENT, /* a JSON object for events.jsonl: {"event": "resume", "step": 7, ...} */
    /* struct fsdp_link_saved: this rank's part of a checkpoint is on disk, or saving it failed */
    FSDP_LINK_SAVED,
    /* struct fsdp_link_published: the checkpoint of all ranks was published, or publishing failed */
    FSDP_LINK_PUBLISHED,
    FSDP_LINK_NOTICE, /* struct fsdp_link_notice */
    /*
     * To a worker on standby, before HELLO: its environment as texts "NAME=value", each with its zero. It has
     * two descriptors, the worker's stdout and stderr.
     */
    FSDP_LINK_GATE,
};

struct fsdp_link_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t tag;  /* chosen by the sender of a request, returned in the answer; 0 if no answer is expected */
    uint32_t size; /* payload bytes that follow */
};

struct fsdp_link_hello {
    uint32_t rank, world_size;
    uint32_t local_rank, local_world_size;
    uint32_t node_rank, n_nodes;
    uint32_t generation;
    uint32_t threads;      /* compute threads this worker may use, at least 1 */
    int64_t resume_step;   /* the newest checkpoint, which the ranks load; -1: start from initial weights */
    int64_t first_step_ns; /* CLOCK_MONOTONIC when the agent started this worker */
    int64_t lease_ms;      /* with several nodes: agents treat a node as lost after so long a silence */
    uint64_t term;         /* term of the agent that leads; 0: no arbiter decides who leads */
    char run_dir[4096];    /* absolute; empty if the run has none */
    char checkpoint_dir[4096]; /* where the run's checkpoints are, absolute; empty if it has none */
    /* the address at which other nodes reach this one; "127.0.0.1" on a single node */
    char node_address[256];
    /* key of the HMAC-SHA256 by which workers of this generation prove themselves over TCP */
    unsigned char token[32];
    /*
     * The step of a snapshot in memory that every rank has; they resume from it rather than from resume_step.
     * -1: there is none.
     */
    int64_t memory_step;
    uint32_t has_snapshot; /* 1: the agent keeps a snapshot segment for this worker */
    /*
     * 1: for some ranks only another node's memory has that step; the agents of these ranks copy it from
     * there
     */
    uint32_t memory_is_peer;
    uint32_t has_copies; /* 1: this node holds copies of the snapshots of another node's ranks */
    uint64_t held_bytes; /* memory that these copies take now */
    uint32_t kept_bytes; /* bytes in `kept`; 0: no worker of this node has put a value yet */
    unsigned char kept[FSDP_LINK_KEPT_BYTES]; /* the value that was last put at FSDP_LINK_KEPT_KEY */
};

struct fsdp_link_put {
    char key[FSDP_LINK_KEY_BYTES];
};

struct fsdp_link_get {
    char key[FSDP_LINK_KEY_BYTES];
};

/*
 * A rank reports that it wrote and synced `file` in `<directory>/<temporary>`. Or it reports that its agent
 * may do so from a slot of its snapshot segment. `directory` is the same on every rank; an empty one means
 * the checkpoint_dir of HELLO. Rank 0's packet carries a memfd with the head of the manifest: a JSON object
 * with everything but the list of files (shardfile/manifest.h). The coordinator then publishes the
 * checkpoint:
 *   1. It adds the list of files to the manifest and syncs it.
 *   2. It renames the temporary folder to its final name.
 *   3. It answers every rank.
 *   4. It deletes checkpoints that are beyond the number to keep.
 * `status` is an enum fsdp_status. If `status` is not FSDP_OK, `words` gives the reason and nothing is
 * published.
 */
struct fsdp_link_saved {
    int64_t step;
    uint32_t status;
    uint32_t keep;        /* retention: complete checkpoints to keep, 0 for all */
    uint64_t size_bytes;  /* size of the file; 0 if this rank owns no rows and wrote none */
    uint64_t checksum[2]; /* XXH3-128 of the whole file: low, high */
    int64_t started_ns;   /* CLOCK_MONOTONIC */
    /*
     * 0: the file is on disk. Otherwise: a slot of this worker's segment, counted from 1; `number` says which
     * filling of the slot is meant. The agent then writes the file, and sets its size and checksum.
     */
    uint32_t slot;
    uint32_t reserved;
    uint64_t number;
    int64_t stalled_ns; /* with a slot: how long the save kept this rank from training */
    /*
     * the step in `directory` that is never deleted; -1: there is none, or, in the run's own directory,
     * resume_step is never deleted
     */
    int64_t loaded_step;
    char directory[4096]; /* absolute */
    char temporary[FSDP_LINK_NAME_BYTES];
    char file[FSDP_LINK_NAME_BYTES];
    char words[FSDP_LINK_WORDS_BYTES];
};

struct fsdp_link_published {
    int64_t step;
    uint32_t status; /* enum fsdp_status: FSDP_OK when the checkpoint is durable under its final name */
    uint32_t reserved;
    char words[FSDP_LINK_WORDS_BYTES];
};

enum fsdp_link_notice_kind {
    FSDP_NOTICE_SAVE_AND_STOP = 1, /* finish the step, save a checkpoint of it, exit with FSDP_EXIT_NOTICE */
    FSDP_NOTICE_ABORT,             /* another rank is gone: leave every collective with FSDP_ERR_PEER */
};

struct fsdp_link_notice {
    uint32_t kind;
    uint32_t reserved;
    /* SAVE_AND_STOP: the step after which every rank stops; -1: the ranks agree on one */
    int64_t stop_after_step;
};

/*
 * Exit statuses by which a worker reports to its agent why it ended (the contract's table). A worker that
 * ends with FSDP_EXIT_PEER or FSDP_EXIT_LINK after it opened its link usually ended because another worker
 * died. The agent does not name such a worker as the root cause while another worker failed too.
 */
enum fsdp_exit {
    /* training diverged; programs other than our trainer also exit with 1 when they fail */
    FSDP_EXIT_DIVERGED = 1,
    FSDP_EXIT_USAGE = 2,
    FSDP_EXIT_INPUT = 66,
    FSDP_EXIT_BUG = 70,
    FSDP_EXIT_DEVICE = 71, /* a GPU or its driver failed: another try may help */
    FSDP_EXIT_IO = 74,     /* the system refused an operation: the disk is full, or memory ran out */
    FSDP_EXIT_PEER = 75,
    FSDP_EXIT_LINK = 76,
    FSDP_EXIT_NOTICE = 77,
    FSDP_EXIT_CONFIG = 78,
};

enum fsdp_phase {
    FSDP_PHASE_START = 0,
    FSDP_PHASE_LOAD,
    FSDP_PHASE_DATA,
    FSDP_PHASE_FORWARD,
    FSDP_PHASE_BACKWARD,
    FSDP_PHASE_OPTIMIZER,
    FSDP_PHASE_COLLECTIVE, /* waiting in a collective; `collective_seq` is its number */
    FSDP_PHASE_SAVE,
    FSDP_PHASE_DONE,
    /* waiting for an answer through the agent: another rank's address, or a published checkpoint */
    FSDP_PHASE_WAIT,
    /*
     * the loss or gradient norm of `step` is NaN or infinite: that step was not applied, and the worker ends
     */
    FSDP_PHASE_DIVERGED,
    /* the same, and among all ranks' contributions to the loss only this rank's is NaN or infinite */
    FSDP_PHASE_DIVERGED_ALONE,
    /* the link is open, and no other phase has begun: groups and devices are opened, the model is made */
    FSDP_PHASE_OPEN,
};

enum { FSDP_GPU_ID_BYTES = 32 };

/*
 * The GPU that a worker computes on, as a part of the worker's progress page. The worker stores the GPU's id.
 * The agent watches all GPUs of the node through NVML and stores its measurements of that one, at least every
 * few seconds. A value of -1 is not known.
 */
struct fsdp_progress_gpu {
    char id[FSDP_GPU_ID_BYTES]; /* address on the PCI bus in lower case: "0000:3b:00.0" */
    /* 1: `id` is set and no longer changes. The worker stores this last; only then does the agent store */
    FSDP_ATOMIC(uint32_t) named;
    FSDP_ATOMIC(uint32_t) n_xids, last_xid;
    FSDP_ATOMIC(int32_t) utilisation_percent, temperature_c;
    FSDP_ATOMIC(int64_t) memory_used_bytes, memory_total_bytes, ecc_uncorrected;
    FSDP_ATOMIC(uint64_t) throttle_reasons; /* bits of nvmlClocksThrottleReasons */
    /* samples of this GPU in this run; 0: the fields above are not set. The agent stores this last */
    FSDP_ATOMIC(uint64_t) n_samples;
};

enum {
    FSDP_THREADS = 2, /* threads of a worker that show their place: one computes, one may communicate */
    FSDP_GROUPS = 16,
    FSDP_GROUP_NAME_BYTES = 48,
    FSDP_PLACES = 2048,
    FSDP_PLACE_BYTES = 48,
    FSDP_WAITS_FOR_OTHER_THREAD = 255, /* in place of a group's number */
};

/*
 * What a thread of a worker is doing, as a part of the progress page. Thread 0 is the one that computes.
 * Thread 1 is the one that communicates, if the worker has such a thread.
 */
struct fsdp_progress_thread {
    FSDP_ATOMIC(uint32_t) place; /* number of the layer or unit in fsdp_places(), counted from 1; 0: none */
    /* number of the group in whose collective the thread is, counted from 1; 0: in none */
    FSDP_ATOMIC(uint32_t) group;
    /* the first member of that group whose bytes are missing, as its number in the group; -1: not known */
    FSDP_ATOMIC(int32_t) peer;
    FSDP_ATOMIC(uint32_t) n_missing; /* members whose bytes are missing; 0: not known */
    FSDP_ATOMIC(uint64_t) moved;     /* bytes that came over the network so far, in all collectives */
};

/*
 * A group of ranks, as a part of the progress page. The worker fills in an entry before the group's first
 * collective and stores `size` last. Its number is its place in the list, counted from 1. If there are more
 * groups than places, the last entry stands for all others: its name is empty.
 */
struct fsdp_progress_group {
    char name[FSDP_GROUP_NAME_BYTES]; /* the same on all members; no other group has this name */
    int32_t first, stride;      /* member i is rank first + i * stride; stride 0: the members are not known */
    FSDP_ATOMIC(uint32_t) size; /* members; 0: there is no such group */
    FSDP_ATOMIC(uint64_t) begun, ended; /* numbers of the newest collective that began, and that ended */
};

/* What the thread that computes spends time on; all other time is computing. */
enum fsdp_spent { FSDP_SPENT_DATA, FSDP_SPENT_WAIT, FSDP_SPENT_SAVE, FSDP_SPENT_N };

/*
 * The times at the end of a step, as a part of the progress page. Step s is in place s & 1, so the place of
 * the step before is not written while it is read. The worker stores 0 in `step` first, and the step last.
 */
struct fsdp_progress_step {
    FSDP_ATOMIC(uint64_t) step, at_ns; /* CLOCK_MONOTONIC of its end */
    FSDP_ATOMIC(uint64_t) spent_ns[FSDP_SPENT_N];
};

/*
 * The progress page: the first page of a memfd. Each worker has its own, which the worker and its agent both
 * map. The worker updates the page with plain relaxed stores. The agent reads it on a timer and never waits.
 * Doubles are stored as their bits. Only the agent stores `abort_word`. A value other than 0 means that
 * another rank is gone. A rank that waits in a collective then gives up.
 */
struct fsdp_progress {
    uint32_t magic, version;
    FSDP_ATOMIC(uint32_t) phase;
    FSDP_ATOMIC(uint32_t) abort_word;
    FSDP_ATOMIC(uint64_t) beat_ns; /* CLOCK_MONOTONIC of the last store */
    FSDP_ATOMIC(uint64_t) step, total_steps;
    FSDP_ATOMIC(uint64_t) collective_seq;
    FSDP_ATOMIC(uint64_t) tokens; /* tokens that all ranks have consumed so far */
    FSDP_ATOMIC(uint64_t) loss_bits, grad_norm_bits, tokens_per_s_bits;
    FSDP_ATOMIC(uint64_t) memory_bytes;
    FSDP_ATOMIC(uint64_t) n_collectives; /* collectives recorded by the flight recorder so far */
    /* what the worker is doing, apart from waiting: the last phase other than COLLECTIVE and WAIT */
    FSDP_ATOMIC(uint32_t) pass;
    FSDP_ATOMIC(uint32_t) n_places; /* number of names in fsdp_places() */
    struct fsdp_progress_gpu gpu;
    struct fsdp_progress_thread threads[FSDP_THREADS];
    struct fsdp_progress_group groups[FSDP_GROUPS];
    FSDP_ATOMIC(uint64_t) spent_ns[FSDP_SPENT_N]; /* since the link was opened */
    struct fsdp_progress_step step_spent[2];
};

/*
 * The flight recorder follows the progress page in the same memfd. It holds the last collectives of this
 * rank: number n is in place n % FSDP_FLIGHT_ENTRIES. The agent reads it when the worker dies or hangs, and
 * needs no help from the worker for that. The worker fills in an entry when the collective begins, and stores
 * `number` last. It sets `ended_ns` when the collective succeeded.
 */
struct fsdp_flight_entry {
    FSDP_ATOMIC(uint64_t) number;   /* counted from 1; 0 while the worker writes the entry */
    uint64_t sequence;              /* number of the collective in its group, as in error messages */
    uint64_t begun_ns;              /* CLOCK_MONOTONIC */
    FSDP_ATOMIC(uint64_t) ended_ns; /* 0: the collective has not ended, or it failed */
    /* bytes per rank for a gather or scatter, else bytes of the whole buffer */
    uint64_t size_bytes;
    int32_t root;                /* root rank of a broadcast; else -1 */
    char kind[16];               /* "all_gather" */
    char dtype[12];              /* "float32"; empty if the collective has no dtype */
    char op[8];                  /* "sum"; empty if the collective does not reduce */
    FSDP_ATOMIC(uint32_t) group; /* number of the group on the progress page, counted from 1 */
    /* place of the thread that called the collective, as in struct fsdp_progress_thread */
    FSDP_ATOMIC(uint32_t) place;
};

enum { FSDP_FLIGHT_ENTRIES = 256, FSDP_FLIGHT_OFFSET = 4096 };

enum { FSDP_PROGRESS_MAGIC = 0x47504653 /* "SFPG" */, FSDP_PROGRESS_VERSION = 5 };
enum {
    FSDP_FLIGHT_BYTES = FSDP_FLIGHT_ENTRIES * (int)sizeof(struct fsdp_flight_entry),
    FSDP_PLACES_OFFSET = FSDP_FLIGHT_OFFSET + (FSDP_FLIGHT_BYTES + 4095) / 4096 * 4096,
    FSDP_PROGRESS_BYTES = FSDP_PLACES_OFFSET + FSDP_PLACES * FSDP_PLACE_BYTES
};
static_assert(FSDP_PLACES_OFFSET % 4096 == 0 && FSDP_PROGRESS_BYTES % 4096 == 0 &&
                  sizeof(struct fsdp_progress) <= FSDP_FLIGHT_OFFSET,
              "the page, the recorder and the names are whole pages");

static inline struct fsdp_flight_entry *fsdp_flight(struct fsdp_progress *page)
{
    return (struct fsdp_flight_entry *)(void *)((char *)page + FSDP_FLIGHT_OFFSET);
}

/*
 * The names of places follow the recorder in the same memfd: FSDP_PLACES texts of FSDP_PLACE_BYTES, each with
 * its zero. They are names of a plan's layers and units, such as "layers.3.feed_forward.w1". A name that is
 * too long loses its beginning. The worker adds names when it makes a plan, and never changes one. Memory
 * beyond the last name is never touched, so it is not allocated.
 */
static inline char *fsdp_places(struct fsdp_progress *page)
{
    return (char *)page + FSDP_PLACES_OFFSET;
}

/*
 * The snapshot segment of a worker: a memfd that the agent holds and does not map, so it outlives the worker.
 * It is empty until the worker sets its size. Its first page is the head, and two slots follow. A slot holds
 * three things, one after another: the exact bytes of this rank's shard file, shards that other ranks save,
 * and the head of the manifest (shardfile/manifest.h). Filling a slot:
 *   1. The worker sets `state` to WRITING, and then copies the bytes.
 *   2. The worker stores the other words, and sets `state` to COMPLETE last.
 * A slot that is not COMPLETE is not used. A process that reads a slot compares `state` and `number` before
 * and after: if they have changed, the slot was filled again meanwhile.
 *
 * With checkpoint.replicas, a process of the agent copies each filling to another node. It writes into the
 * same slot of a segment like this one (agent/snapshot/copies.h). The worker does not fill a slot while one
 * of the two slots waits to be copied. So at each moment there is a step that every rank has in memory, and
 * that the other node has too.
 */
enum fsdp_snapshot_state { FSDP_SNAPSHOT_EMPTY = 0, FSDP_SNAPSHOT_WRITING = 1, FSDP_SNAPSHOT_COMPLETE = 2 };

enum {
    FSDP_SNAPSHOT_MAGIC = 0x4e535346, /* "FSSN" */
    FSDP_SNAPSHOT_VERSION = 2,
    FSDP_SNAPSHOT_SLOTS = 2,
    FSDP_SNAPSHOT_HEAD_BYTES = 4096,
};

/*
 * The key at which a worker finds the descriptor of its segment: this text and its local rank. struct
 * fsdp_link_hello says whether there is one.
 */
#define FSDP_LINK_SNAPSHOT_KEY "snapshot."

struct fsdp_snapshot_slot {
    FSDP_ATOMIC(uint32_t) state;
    uint32_t generation;
    int64_t step;
    uint64_t number; /* number of this filling in the segment, counted from 1; the largest is the newest */
    uint64_t offset, capacity; /* where the slot's bytes begin in the segment, and how many fit */
    uint64_t size_bytes;       /* bytes of the shard file; 0: this rank owns no rows, and has no file */
    uint64_t elsewhere_bytes;  /* bytes of the other ranks' shards, which follow the shard file */
    uint64_t manifest_bytes;   /* bytes of the head of the manifest, which follows the other ranks' shards */
    uint64_t checksum[2]; /* XXH3-128 of all these bytes, if the slot was copied from another node; else 0 */
    FSDP_ATOMIC(uint64_t) copied; /* the last `number` that another node has a copy of */
};

struct fsdp_snapshot_head {
    uint32_t magic, version;
    uint32_t rank, world_size;
    /*
     * XXH3-64 of the shard file's header without step and generation; another model or world has another hash
     */
    uint64_t layout_hash;
    FSDP_ATOMIC(uint32_t) copying; /* 1: fillings are copied to another node */
    /* counts changes of the words that a process can wait for (shardfile/snapshot_wait.h) */
    FSDP_ATOMIC(uint32_t) changes;
    struct fsdp_snapshot_slot slots[FSDP_SNAPSHOT_SLOTS];
};
static_assert(sizeof(struct fsdp_snapshot_head) <= FSDP_SNAPSHOT_HEAD_BYTES, "the head is one page");

FSDP_END_DECLS

#endif
