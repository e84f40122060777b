/*
 * What the node's agent and one of its workers share.
 *
 * FSDP_LINK_FD in a worker's environment names one end of a SOCK_SEQPACKET pair; the agent holds the other.
 * One packet is one message: a struct fsdp_link_header, then `size` bytes of payload, and at most one
 * descriptor (SCM_RIGHTS). Both ends are on one host and of one build, so the structs travel as they are.
 * A generation has its own pairs, pages and keys. Only the snapshot segment and the value put at
 * FSDP_LINK_KEPT_KEY outlive it.
 *
 * Order: the agent's first packets are HELLO (payload struct fsdp_link_hello; descriptor: the progress page),
 * then JOB when it runs a job of ours (descriptor: a sealed memfd with the resolved job as JSON). Both are in the
 * socket before the worker is started, so that a worker knows at once whether it has a job. From then on
 *   worker -> agent   PUT GET EVENT SAVED
 *   agent -> worker   VALUE NOTICE PUBLISHED
 * End of file on either side means that the other process is gone.
 */
#ifndef FSDP_LINK_H
#define FSDP_LINK_H

#include <assert.h>
#include <stdint.h>

#include <fsdp/export.h>

/* A word that two processes share. C++17 and C++20 have no _Atomic. std::atomic has the same size and layout, which is why
 * <stdatomic.h> of C++23 may be shared with C. The language linkage is for a caller that includes us inside extern "C". */
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

/* A key whose value (at most FSDP_LINK_KEPT_BYTES) stays on this node: later generations find it in HELLO. */
#define FSDP_LINK_KEPT_KEY "kept"

enum {
    FSDP_LINK_MAGIC = 0x4b4c5346, /* "FSLK" */
    FSDP_LINK_VERSION = 2,
    FSDP_LINK_KEY_BYTES = 128, /* a key with its terminating zero */
    FSDP_LINK_VALUE_BYTES = 65536,
    FSDP_LINK_EVENT_BYTES = 3072,
    FSDP_LINK_NAME_BYTES = 256,
    FSDP_LINK_WORDS_BYTES = 512,
    FSDP_LINK_KEPT_BYTES = 64,
};

enum fsdp_link_type {
    FSDP_LINK_HELLO = 1,
    FSDP_LINK_JOB,
    FSDP_LINK_PUT,   /* struct fsdp_link_put, then the value; optionally a descriptor. A key is put once. */
    FSDP_LINK_GET,   /* struct fsdp_link_get. Answered by VALUE when the key is there, however late. */
    FSDP_LINK_VALUE, /* the value; its descriptor if it was put with one on this host; same `tag` as the GET */
    FSDP_LINK_EVENT,     /* a JSON object for events.jsonl: {"event": "resume", "step": 7, ...} */
    FSDP_LINK_SAVED,     /* struct fsdp_link_saved: this rank's part of a checkpoint is on disk, or failed */
    FSDP_LINK_PUBLISHED, /* struct fsdp_link_published: all ranks' parts made a checkpoint, or did not */
    FSDP_LINK_NOTICE,    /* struct fsdp_link_notice */
};

struct fsdp_link_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t tag;  /* chosen by the asker, returned in the answer; 0 where there is no answer */
    uint32_t size; /* payload bytes that follow */
};

struct fsdp_link_hello {
    uint32_t rank, world_size;
    uint32_t local_rank, local_world_size;
    uint32_t node_rank, n_nodes;
    uint32_t generation;
    uint32_t threads;        /* compute threads this worker may use, at least 1 */
    int64_t resume_step;     /* the checkpoint every rank loads; -1: start from initial weights */
    int64_t first_step_ns;   /* CLOCK_MONOTONIC when this generation was begun */
    char run_dir[4096];      /* absolute; empty when the run has none */
    char node_address[256];  /* where other nodes reach this one; "127.0.0.1" on a single node */
    unsigned char token[32]; /* opens worker-to-worker TCP of this generation: key of an HMAC-SHA256 */
    uint32_t kept_bytes;     /* bytes in `kept`; 0: no worker of this node has put any yet */
    unsigned char kept[FSDP_LINK_KEPT_BYTES]; /* the last value that was put at FSDP_LINK_KEPT_KEY */
};

struct fsdp_link_put {
    char key[FSDP_LINK_KEY_BYTES];
};

struct fsdp_link_get {
    char key[FSDP_LINK_KEY_BYTES];
};

/*
 * A rank wrote and synced `file` in `<directory>/<temporary>`. `directory` is the same on every rank; empty: the run
 * directory's "checkpoints". Rank 0's packet carries a memfd with the manifest's head: a JSON object with everything
 * but the list of files (shardfile/manifest.h). The coordinator adds the files, syncs, renames, applies retention and
 * answers every rank. `status` is an enum fsdp_status; when it is not FSDP_OK, `words` says why and nothing is
 * published.
 */
struct fsdp_link_saved {
    int64_t step;
    uint32_t status;
    uint32_t keep;        /* retention: complete checkpoints to keep, 0 for all */
    uint64_t size_bytes;  /* of the file; 0 when this rank owns no rows and wrote none */
    uint64_t checksum[2]; /* XXH3-128 of the whole file: low, high */
    int64_t started_ns;   /* CLOCK_MONOTONIC */
    int64_t loaded_step;  /* where `directory` is named: the step that retention never deletes there; -1: none */
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
    FSDP_NOTICE_SAVE_AND_STOP = 1, /* finish the step, save it, exit with FSDP_EXIT_NOTICE */
    FSDP_NOTICE_ABORT,             /* a peer is gone: leave every collective with FSDP_ERR_PEER */
};

struct fsdp_link_notice {
    uint32_t kind;
    uint32_t reserved;
    int64_t stop_after_step; /* SAVE_AND_STOP: every rank stops after this step; -1: agree among yourselves */
};

/*
 * Exit statuses by which a worker tells its agent what ended it (the contract's table). A worker that ends with
 * FSDP_EXIT_PEER or FSDP_EXIT_LINK after it has opened its link is a consequence of another's death, never the root
 * cause while there is another.
 */
enum fsdp_exit {
    FSDP_EXIT_DIVERGED = 1, /* training diverged; other programs that fail give 1, too */
    FSDP_EXIT_USAGE = 2,
    FSDP_EXIT_INPUT = 66,
    FSDP_EXIT_BUG = 70,
    FSDP_EXIT_DEVICE = 71, /* a GPU or its driver failed: another try may help */
    FSDP_EXIT_IO = 74,     /* the system refuses something: a full disk, no memory */
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
    FSDP_PHASE_COLLECTIVE, /* waiting in one: `collective_seq` says which */
    FSDP_PHASE_SAVE,
    FSDP_PHASE_DONE,
    FSDP_PHASE_WAIT, /* waiting through the agent: for another rank's address, or for a checkpoint to be published */
    FSDP_PHASE_DIVERGED, /* the loss or the gradient of `step`, which was not done, is no number; the worker ends */
    FSDP_PHASE_DIVERGED_ALONE, /* the same, and of all ranks' parts of the loss only this one's is no number */
};

enum { FSDP_GPU_ID_BYTES = 32 };

/*
 * The GPU that a worker computes on, as a part of its page. The worker names it; the agent, which watches all GPUs of the node by NVML,
 * stores what it knows of that one, every few seconds at least. -1: not known.
 */
struct fsdp_progress_gpu {
    char id[FSDP_GPU_ID_BYTES]; /* of the PCI bus, lower case: "0000:3b:00.0" */
    /* 1: `id` is there, and stays. Last of the worker's stores; the agent's follow */
    FSDP_ATOMIC(uint32_t) named;
    FSDP_ATOMIC(uint32_t) n_xids, last_xid;
    FSDP_ATOMIC(int32_t) utilisation_percent, temperature_c;
    FSDP_ATOMIC(int64_t) memory_used_bytes, memory_total_bytes, ecc_uncorrected;
    FSDP_ATOMIC(uint64_t) throttle_reasons; /* NVML's bits */
    /* of it in this run; 0: nothing of it is known. The last of the agent's stores */
    FSDP_ATOMIC(uint64_t) n_samples;
};

/*
 * The progress page: the first page of a memfd for each worker, mapped by it and by its agent. The worker beats by plain relaxed
 * stores; the agent reads on a timer and never waits. Doubles travel as their bits. `abort_word` is the agent's:
 * anything but 0 means that a peer is gone, and a rank waiting in a collective gives up.
 */
struct fsdp_progress {
    uint32_t magic, version;
    FSDP_ATOMIC(uint32_t) phase;
    FSDP_ATOMIC(uint32_t) abort_word;
    FSDP_ATOMIC(uint64_t) beat_ns; /* CLOCK_MONOTONIC of the last store */
    FSDP_ATOMIC(uint64_t) step, total_steps;
    FSDP_ATOMIC(uint64_t) collective_seq;
    FSDP_ATOMIC(uint64_t) tokens; /* consumed by all ranks so far */
    FSDP_ATOMIC(uint64_t) loss_bits, grad_norm_bits, tokens_per_s_bits;
    FSDP_ATOMIC(uint64_t) memory_bytes;
    FSDP_ATOMIC(uint64_t) n_collectives; /* noted in the flight recorder so far */
    struct fsdp_progress_gpu gpu;
};

/*
 * The flight recorder stands behind the page, in the same memfd: the last collectives of this rank, number n in
 * place n % FSDP_FLIGHT_ENTRIES. It needs no help from the worker when that dies or hangs: the agent reads it then. One
 * is noted when it begins, with `number` stored last; `ended_ns` is set when it has ended well.
 */
struct fsdp_flight_entry {
    FSDP_ATOMIC(uint64_t) number;   /* 1-based; 0 while the entry is written */
    uint64_t sequence;              /* in its group, as error messages have it */
    uint64_t begun_ns;              /* CLOCK_MONOTONIC */
    FSDP_ATOMIC(uint64_t) ended_ns; /* 0: it has not ended, or failed */
    uint64_t size_bytes;            /* per rank of a gather or a scatter, of the buffer of the others */
    int32_t root;                   /* of a broadcast; -1 */
    char kind[16];                  /* "all_gather" */
    char dtype[12];                 /* "float32"; empty where it has none */
    char op[8];                     /* "sum"; empty where it has none */
    char group[32];                 /* name of the group, cut to fit */
};

enum { FSDP_FLIGHT_ENTRIES = 256, FSDP_FLIGHT_OFFSET = 4096 };

enum { FSDP_PROGRESS_MAGIC = 0x47504653 /* "SFPG" */, FSDP_PROGRESS_VERSION = 3 };
enum {
    FSDP_PROGRESS_BYTES = FSDP_FLIGHT_OFFSET + FSDP_FLIGHT_ENTRIES * (int)sizeof(struct fsdp_flight_entry)
};
static_assert(FSDP_PROGRESS_BYTES % 4096 == 0 && sizeof(struct fsdp_progress) <= FSDP_FLIGHT_OFFSET,
              "the page and the recorder are whole pages");

static inline struct fsdp_flight_entry *fsdp_flight(struct fsdp_progress *page)
{
    return (struct fsdp_flight_entry *)(void *)((char *)page + FSDP_FLIGHT_OFFSET);
}

/*
 * The snapshot segment (filled once in-memory checkpoints exist; laid out now so that agents and workers of
 * either age agree): a head, then two slots, each the exact bytes of this rank's shard file. The worker sets
 * `state` to WRITING, copies, stores step, size and checksum, and sets COMPLETE last; a reader trusts a slot
 * only when it is COMPLETE and its checksum holds.
 */
enum fsdp_snapshot_state { FSDP_SNAPSHOT_EMPTY = 0, FSDP_SNAPSHOT_WRITING = 1, FSDP_SNAPSHOT_COMPLETE = 2 };

struct fsdp_snapshot_slot {
    FSDP_ATOMIC(uint32_t) state;
    uint32_t generation;
    int64_t step;
    uint64_t offset, capacity; /* of the slot's bytes in the segment */
    uint64_t size_bytes;
    uint64_t checksum[2]; /* XXH3-128: low, high */
};

struct fsdp_snapshot_head {
    uint32_t magic, version;
    uint64_t layout_hash; /* of the shard file's header: another model or world size must not match */
    unsigned char job_id[16], boot_id[16];
    struct fsdp_snapshot_slot slots[2];
};

FSDP_END_DECLS

#endif
