/*
 * bench_checkpoint JSON_FILE [DIRECTORY]: save and load 256 MiB in 32 tensors, one rank, GB/s of tensor
 * bytes.
 *
 * A save is all of it: write around the page cache, sync, publish. Its limit: the same bytes, plain O_DIRECT
 * writes of 4 MiB from one buffer into a reserved file, then fsync. A load reads with the page cache dropped
 * (limit: plain O_DIRECT reads of 4 MiB). It also reads from the page cache, as a restart on the same machine
 * does (limit: plain reads into the same memory). Verifying reads from the page cache and hashes. A snapshot
 * is what a step waits for when the agent writes the file: the copy into a slot, and back. The limit is
 * memcpy of the same bytes into memory of the same kind. Peer: PyTorch's distributed checkpoint of the same
 * tensors, with sync_files, through the Python that FSDP_BENCH_PYTHON names. All take turns.
 */
#include <sys/mman.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/checkpoint/snapshot.h"
#include "tests/bench/bench.h"

enum {
    N_TENSORS = 32,
    ELEMENTS = 2 << 20,
    RUNS = 11,
    WARM = 2 /* both slots are touched */,
    CHUNK = 4 << 20
};
#define BYTES ((size_t)N_TENSORS * ELEMENTS * sizeof(float))

static struct checkpoint_tensor tensors[N_TENSORS];
static unsigned char *buffer; /* CHUNK, aligned */
static char directory[2048], plain_path[2200], shard_path[2400], step_path[2200], dcp_path[2200];

static struct peer peer;
static bool with_peer;

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status != FSDP_OK) {
        errno = 0;
        bench_die(err->message);
    }
}

/* Ours */

static double save(int64_t step)
{
    const struct checkpoint_state state = { .step = step };
    const struct commit_fence fence = { .step = step, .generation = 0, .world_size = 1 };
    char temporary[COMMIT_NAME_BYTES], *head;
    struct checkpoint_part part;
    struct manifest_file file;
    struct fsdp_err err = { 0 };
    const double start = bench_now();
    size_t length;

    commit_temporary_name(&fence, "bench", 5, temporary);
    check(checkpoint_write_part(&io_posix, directory, temporary, &state, 0, 1, 0, tensors, N_TENSORS, &part,
                                &err),
          &err);
    check(checkpoint_head(&state, 0, 1, tensors, N_TENSORS, &head, &length, &err), &err);
    file = (struct manifest_file){ .name = part.file,
                                   .size_bytes = part.size_bytes,
                                   .checksum = { part.checksum[0], part.checksum[1] } };
    check(commit_publish(&io_posix, directory, temporary, &fence, head, length, &file, 1, &err), &err);
    free(head);
    return bench_now() - start;
}

static double load(void)
{
    struct fsdp_err err = { 0 };
    const double start = bench_now();

    check(checkpoint_load(&io_posix, step_path, 1, 0, tensors, N_TENSORS, 0, NULL, NULL, NULL, &err), &err);
    return bench_now() - start;
}

static double verify(void)
{
    struct fsdp_err err = { 0 };
    const double start = bench_now();

    check(verify_step(&io_posix, step_path, VERIFY_CHECKSUMS, NULL, &err), &err);
    return bench_now() - start;
}

static struct snapshot *snapshot;
static char *snapshot_manifest;
static size_t snapshot_manifest_bytes;

static void open_snapshot(void)
{
    const struct checkpoint_state state = { .step = 1 };
    const int fd = memfd_create("bench-snapshot", MFD_CLOEXEC);
    struct snapshot_need need;
    struct fsdp_err err = { 0 };

    check(
        checkpoint_head(&state, 0, 1, tensors, N_TENSORS, &snapshot_manifest, &snapshot_manifest_bytes, &err),
        &err);
    check(snapshot_measure(&need, tensors, N_TENSORS, 1, 0, snapshot_manifest_bytes, &err), &err);
    check(snapshot_open(&snapshot, fd, &need, &err), &err);
}

static double fill_snapshot(void)
{
    const struct shards_save save = { 1, 0, 1, 0 };
    struct snapshot_filled filled;
    struct fsdp_err err = { 0 };
    const double start = bench_now();

    check(snapshot_fill(snapshot, &save, tensors, N_TENSORS, snapshot_manifest, snapshot_manifest_bytes, -1,
                        &filled, &err),
          &err);
    return bench_now() - start;
}

static double load_snapshot(void)
{
    const struct shards_save save = { 1, 0, 1, 0 };
    struct manifest manifest;
    struct fsdp_err err = { 0 };
    const double start = bench_now();

    check(snapshot_load(snapshot, &save, tensors, N_TENSORS, &manifest, &err), &err);
    manifest_free(&manifest);
    return bench_now() - start;
}

/* The limits: the same bytes, nothing else */

/* All tensors into shared memory that was touched before, or back. */
static double plain_copy(bool back)
{
    static unsigned char *memory;
    double start;

    if (memory == NULL)
        memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("memory");
    start = bench_now();
    for (int t = 0; t < N_TENSORS; t++) {
        unsigned char *at = memory + (size_t)t * ELEMENTS * sizeof(float);

        memcpy(back ? tensors[t].rows : at, back ? at : tensors[t].rows, ELEMENTS * sizeof(float));
    }
    return bench_now() - start;
}

static double plain_write(void)
{
    const double start = bench_now();
    const int fd = open(plain_path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);

    if (fd < 0 || fallocate(fd, 0, 0, BYTES) < 0)
        bench_die(plain_path);
    for (size_t at = 0; at < BYTES; at += CHUNK)
        if (pwrite(fd, buffer, CHUNK, (off_t)at) != CHUNK)
            bench_die("write");
    if (fsync(fd) < 0)
        bench_die("fsync");
    close(fd);
    return bench_now() - start;
}

static double plain_read(bool direct)
{
    const double start = bench_now();
    const int fd = open(plain_path, O_RDONLY | (direct ? O_DIRECT : 0));

    if (fd < 0)
        bench_die(plain_path);
    for (size_t at = 0; at < BYTES; at += CHUNK) {
        unsigned char *to = direct ? buffer
                                   : (unsigned char *)tensors[at / (ELEMENTS * sizeof(float))].rows +
                                         at % (ELEMENTS * sizeof(float));

        if (pread(fd, to, CHUNK, (off_t)at) != CHUNK)
            bench_die("read");
    }
    close(fd);
    return bench_now() - start;
}

/* Has a file's pages in the page cache, or none of them. */
static void drop_cache(const char *path)
{
    const int fd = open(path, O_RDONLY);

    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        bench_die(path);
    close(fd);
}

static void warm_cache(const char *path)
{
    const int fd = open(path, O_RDONLY);

    if (fd < 0)
        bench_die(path);
    for (off_t at = 0; pread(fd, buffer, CHUNK, at) > 0; at += CHUNK)
        continue;
    close(fd);
}

/* The peer */

static bool start_peer(void)
{
    const char *python = peer_python();
    char n_tensors[16], elements[16];

    snprintf(n_tensors, sizeof n_tensors, "%d", N_TENSORS);
    snprintf(elements, sizeof elements, "%d", ELEMENTS);
    if (python == NULL)
        return false;
    peer_start(&peer, (const char *const[]){ python, "tests/bench/dcp_rank.py", n_tensors, elements, NULL });
    if (peer_is_ready(&peer))
        return true;
    fprintf(stderr, "bench_checkpoint: %s has no PyTorch for us\n", python);
    return false;
}

/* Seconds of "save" or "load"; 1 where there is no peer. */
static double ask_peer(const char *verb)
{
    char line[64];

    if (!with_peer)
        return 1;
    dprintf(peer.orders, "%s %s\n", verb, dcp_path);
    if (!peer_read(&peer, line, sizeof line))
        bench_die("the peer ended");
    return atof(line);
}

/* Its files, as many as it wrote. */
static void each_peer_file(void (*visit)(const char *path))
{
    struct io_names names;
    char path[4096];

    if (io_posix.list(&io_posix, dcp_path, &names) < 0)
        return;
    for (size_t i = 0; i < names.n; i++) {
        snprintf(path, sizeof path, "%s/%s", dcp_path, names.names[i]);
        visit(path);
    }
    io_names_free(&names);
}

/* The table */

/* One of each in a turn, in seconds. */
struct turn {
    double ours, limit, peer;
};

static struct turn turn_of_save(void)
{
    return (struct turn){ save(1), plain_write(), ask_peer("save") };
}

static struct turn turn_of_load(void (*prepare)(const char *), bool cold)
{
    struct turn turn;

    prepare(shard_path);
    turn.ours = load();
    prepare(plain_path);
    turn.limit = plain_read(cold);
    if (with_peer)
        each_peer_file(prepare);
    turn.peer = ask_peer("load");
    return turn;
}

static struct turn turn_of_cold_load(void)
{
    return turn_of_load(drop_cache, true);
}

static struct turn turn_of_warm_load(void)
{
    return turn_of_load(warm_cache, false);
}

static struct turn turn_of_verify(void)
{
    struct turn turn = { .peer = 1 };

    warm_cache(shard_path);
    turn.ours = verify();
    warm_cache(plain_path);
    turn.limit = plain_read(false);
    return turn;
}

static struct turn turn_of_snapshot(void)
{
    struct turn turn = { .peer = 1 };

    turn.ours = fill_snapshot();
    turn.limit = plain_copy(false);
    return turn;
}

static struct turn turn_of_snapshot_load(void)
{
    struct turn turn = { .peer = 1 };

    turn.ours = load_snapshot();
    turn.limit = plain_copy(true);
    return turn;
}

static const struct measure {
    const char *what, *limit_name;
    struct turn (*turn)(void);
    bool has_peer;
} measures[] = {
    { "save, durable", "O_DIRECT writes + fsync", turn_of_save, true },
    { "load, page cache dropped", "O_DIRECT reads", turn_of_cold_load, true },
    { "load from the page cache", "plain reads", turn_of_warm_load, true },
    { "verify every byte, from the page cache", "plain reads", turn_of_verify, false },
    { "snapshot into memory", "memcpy", turn_of_snapshot, false },
    { "load from memory", "memcpy", turn_of_snapshot_load, false },
};

static void add_row(struct report *report, const struct measure *m)
{
    const double gb = (double)BYTES * 1e-9;
    const int n = bench_runs(RUNS);
    double ours[RUNS], limit[RUNS], theirs[RUNS];

    for (int i = -WARM; i < n; i++) {
        const struct turn turn = m->turn();
        const int at = i < 0 ? 0 : i;

        ours[at] = gb / turn.ours, limit[at] = gb / turn.limit, theirs[at] = gb / turn.peer;
    }
    report_add(report, &(struct report_row){ m->what, "GB/s", true, ours, limit,
                                             with_peer && m->has_peer ? theirs : NULL, n, m->limit_name,
                                             "PyTorch DCP" });
}

static void prepare_tensors(void)
{
    static char names[N_TENSORS][32];

    for (int t = 0; t < N_TENSORS; t++) {
        float *rows = aligned_alloc(4096, ELEMENTS * sizeof *rows);

        if (rows == NULL)
            bench_die("memory");
        for (int i = 0; i < ELEMENTS; i++)
            rows[i] = (float)(i ^ t);
        snprintf(names[t], sizeof names[t], "layers.%d.weight", t);
        tensors[t] = (struct checkpoint_tensor){
            .name = names[t], .dtype = FSDP_F32, .n_dims = 2, .shape = { ELEMENTS / 512, 512 }, .rows = rows
        };
    }
    buffer = aligned_alloc(4096, CHUNK);
    if (buffer == NULL)
        bench_die("memory");
    memset(buffer, 7, CHUNK);
}

int main(int argc, char **argv)
{
    struct report report;
    char command[2200];

    if (argc < 2) {
        fprintf(stderr, "usage: bench_checkpoint JSON_FILE [DIRECTORY]\n");
        return 2;
    }
    snprintf(directory, sizeof directory, "%s/bench-checkpoint.XXXXXX", argc > 2 ? argv[2] : "build");
    if (mkdtemp(directory) == NULL)
        bench_die(directory);
    snprintf(plain_path, sizeof plain_path, "%s/plain", directory);
    snprintf(step_path, sizeof step_path, "%s/step-00000001", directory);
    snprintf(shard_path, sizeof shard_path, "%s/shard-00001-model-00001-of-00001.safetensors", step_path);
    snprintf(dcp_path, sizeof dcp_path, "%s/dcp", directory);
    prepare_tensors();
    open_snapshot();
    with_peer = start_peer();
    if (!report_begin(&report, argv[1]))
        return 1;
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++)
        add_row(&report, &measures[i]);
    if (peer_python() != NULL)
        peers_stop(&peer, 1);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (system(command) != 0)
        bench_die(command);
    return report_end(&report) ? 0 : 1;
}
