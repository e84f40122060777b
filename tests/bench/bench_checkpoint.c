/*
 * bench_checkpoint JSON_FILE [DIRECTORY [MIB...]]: saves and loads of so many MiB (256) in tensors of 8 MiB,
 * by 1 and 4 ranks, GB/s of tensor bytes of all ranks together.
 *
 * A save is all of it: write around the page cache, sync, publish. A load reads with the page cache dropped,
 * and from the page cache, as a restart on the same machine does. Verifying reads from the page cache and
 * hashes. A snapshot is what a step waits for if nothing overlaps it: the copy into a slot; and back.
 *
 * Limits: fio, if it is there, with as many jobs as ranks, blocks of 1 MiB, four at a time around the page
 * cache, and one sync at the end. Without fio, plain O_DIRECT writes and reads of 4 MiB. From the page cache:
 * plain reads into the same memory. Snapshots: memcpy of the same bytes into memory of the same kind. Peer:
 * PyTorch's distributed checkpoint of the same tensors, with sync_files, through the Python that
 * FSDP_BENCH_PYTHON names; of a snapshot, the time for which its async_save() blocks. All take turns.
 *
 * A size that does not fit into the memory of the machine is left out, with a line.
 */
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "shard_runtime/checkpoint/snapshot.h"
#include "shard_runtime/core/memory_room.h"
#include "tests/bench/bench.h"

enum {
    ELEMENTS = 2 << 20, /* of a tensor, over all ranks */
    MOST_TENSORS = 8192,
    MOST_RANKS = 4,
    RUNS = 11,
    WARM = 2, /* both slots are touched */
    CHUNK = 4 << 20,
    MIB = 1 << 20,
};

/* What all ranks do at the same time. */
enum order { SAVE, LOAD, FILL, LOAD_SLOT, COPY, COPY_BACK, WRITE_PLAIN, READ_PLAIN, READ_CACHED, END };

/* Shared by the bench and its ranks. */
static struct board {
    pthread_barrier_t begins, ends;
    enum order order;
    struct checkpoint_part parts[MOST_RANKS];
} * board;

static int W, rank, n_tensors;
static size_t own_bytes; /* of a rank */
static struct checkpoint_tensor tensors[MOST_TENSORS];
static unsigned char *buffer; /* CHUNK, aligned */
static char directory[2048], step_path[2200], dcp_path[2200], temporary[COMMIT_NAME_BYTES];
static pid_t ranks[MOST_RANKS];
static bool with_fio;

static struct peer peers[MOST_RANKS];
static bool with_peer;

static size_t all_bytes(void)
{
    return (size_t)n_tensors * ELEMENTS * sizeof(float);
}

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status != FSDP_OK) {
        errno = 0;
        bench_die(err->message);
    }
}

static const char *plain_path(int r)
{
    static char path[2300];

    snprintf(path, sizeof path, "%s/plain-%d", directory, r);
    return path;
}

static const char *shard_path(int r)
{
    static char path[2400];
    char name[MANIFEST_SHARD_NAME_BYTES];

    manifest_shard_name((uint32_t)r, name);
    snprintf(path, sizeof path, "%s/%s", step_path, name);
    return path;
}

/* What a rank does */

static void write_part(void)
{
    const struct checkpoint_state state = { .step = 1 };
    struct fsdp_err err = { 0 };

    check(checkpoint_write_part(&io_posix, directory, temporary, &state, 0, W, rank, tensors,
                                (size_t)n_tensors, &board->parts[rank], &err),
          &err);
}

static void load(void)
{
    struct fsdp_err err = { 0 };

    check(
        checkpoint_load(&io_posix, step_path, W, rank, tensors, (size_t)n_tensors, 0, NULL, NULL, NULL, &err),
        &err);
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

    check(checkpoint_head(&state, 0, W, tensors, (size_t)n_tensors, &snapshot_manifest,
                          &snapshot_manifest_bytes, &err),
          &err);
    check(snapshot_measure(&need, tensors, (size_t)n_tensors, W, rank, snapshot_manifest_bytes, &err), &err);
    check(snapshot_open(&snapshot, fd, &need, &err), &err);
}

static void fill_snapshot(void)
{
    const struct shards_save save = { 1, 0, W, rank };
    struct snapshot_filled filled;
    struct fsdp_err err = { 0 };

    if (snapshot == NULL)
        open_snapshot();
    check(snapshot_fill(snapshot, &save, tensors, (size_t)n_tensors, snapshot_manifest,
                        snapshot_manifest_bytes, -1, &filled, &err),
          &err);
}

static void load_snapshot(void)
{
    const struct shards_save save = { 1, 0, W, rank };
    struct manifest manifest;
    struct fsdp_err err = { 0 };

    check(snapshot_load(snapshot, &save, tensors, (size_t)n_tensors, &manifest, &err), &err);
    manifest_free(&manifest);
}

/* The limits: the same bytes, nothing else */

/* All tensors into shared memory that was touched before, or back. */
static void plain_copy(bool back)
{
    const size_t part = own_bytes / (size_t)n_tensors;
    static unsigned char *memory;

    if (memory == NULL)
        memory =
            mmap(NULL, own_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("memory");
    for (int t = 0; t < n_tensors; t++) {
        unsigned char *at = memory + (size_t)t * part;

        memcpy(back ? tensors[t].rows : at, back ? at : tensors[t].rows, part);
    }
}

static void plain_write(void)
{
    const int fd = open(plain_path(rank), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);

    if (fd < 0 || fallocate(fd, 0, 0, (off_t)own_bytes) < 0)
        bench_die(plain_path(rank));
    for (size_t at = 0; at < own_bytes; at += CHUNK)
        if (pwrite(fd, buffer, CHUNK, (off_t)at) != CHUNK)
            bench_die("write");
    if (fsync(fd) < 0)
        bench_die("fsync");
    close(fd);
}

static void plain_read(bool direct)
{
    const size_t part = own_bytes / (size_t)n_tensors, n = part < CHUNK ? part : CHUNK;
    const int fd = open(plain_path(rank), O_RDONLY | (direct ? O_DIRECT : 0));

    if (fd < 0)
        bench_die(plain_path(rank));
    for (size_t at = 0; at < own_bytes; at += n) {
        unsigned char *to = direct ? buffer : (unsigned char *)tensors[at / part].rows + at % part;

        if (pread(fd, to, n, (off_t)at) != (ssize_t)n)
            bench_die("read");
    }
    close(fd);
}

static void obey(enum order order)
{
    switch (order) {
    case SAVE:
        write_part();
        break;
    case LOAD:
        load();
        break;
    case FILL:
        fill_snapshot();
        break;
    case LOAD_SLOT:
        load_snapshot();
        break;
    case COPY:
        plain_copy(false);
        break;
    case COPY_BACK:
        plain_copy(true);
        break;
    case WRITE_PLAIN:
        plain_write();
        break;
    case READ_PLAIN:
        plain_read(true);
        break;
    case READ_CACHED:
        plain_read(false);
        break;
    case END:
        _exit(0); /* the table that the parent has begun is not the rank's to write */
    }
}

/* Without memory: the manifest needs no more. */
static void prepare_names(void)
{
    static char names[MOST_TENSORS][32];

    for (int t = 0; t < n_tensors; t++) {
        snprintf(names[t], sizeof names[t], "layers.%d.weight", t);
        tensors[t] = (struct checkpoint_tensor){
            .name = names[t], .dtype = FSDP_F32, .n_dims = 2, .shape = { ELEMENTS / 512, 512 }
        };
    }
}

static void prepare_tensors(void)
{
    const size_t n_elems = ELEMENTS / (size_t)W;

    prepare_names();
    for (int t = 0; t < n_tensors; t++) {
        float *rows = aligned_alloc(4096, n_elems * sizeof *rows);

        if (rows == NULL)
            bench_die("memory");
        for (size_t i = 0; i < n_elems; i++)
            rows[i] = (float)((int)i ^ t);
        tensors[t].rows = rows;
    }
}

static void alloc_buffer(void)
{
    buffer = aligned_alloc(4096, CHUNK);
    if (buffer == NULL)
        bench_die("memory");
    memset(buffer, 7, CHUNK);
}

static _Noreturn void be_rank(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alloc_buffer();
    prepare_tensors();
    pthread_barrier_wait(&board->ends);
    for (;;) {
        pthread_barrier_wait(&board->begins);
        obey(board->order);
        pthread_barrier_wait(&board->ends);
    }
}

/* The bench */

/* A rank that ends before it is told to has said why. */
static void on_child(int signal)
{
    (void)signal;
    for (int r = 0; r < W; r++)
        if (ranks[r] > 0 && waitpid(ranks[r], NULL, WNOHANG) == ranks[r])
            _exit(1);
}

/* Has all ranks do it. Returns the seconds until the last one has. */
static double all_do(enum order order)
{
    double start;

    board->order = order;
    start = bench_now();
    pthread_barrier_wait(&board->begins);
    pthread_barrier_wait(&board->ends);
    return bench_now() - start;
}

static void begin_ranks(void)
{
    pthread_barrierattr_t shared;

    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        bench_die("memory");
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->begins, &shared, (unsigned)W + 1);
    pthread_barrier_init(&board->ends, &shared, (unsigned)W + 1);
    signal(SIGCHLD, on_child);
    for (rank = 0; rank < W; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] < 0)
            bench_die("fork");
        if (ranks[rank] == 0)
            be_rank();
    }
    pthread_barrier_wait(&board->ends); /* they have their tensors */
}

static void end_ranks(void)
{
    signal(SIGCHLD, SIG_DFL);
    board->order = END;
    pthread_barrier_wait(&board->begins);
    for (int r = 0; r < W; r++)
        waitpid(ranks[r], NULL, 0);
    munmap(board, sizeof *board);
}

/* The seconds of a save: all parts, and the publishing. */
static double save(void)
{
    const struct checkpoint_state state = { .step = 1 };
    const struct commit_fence fence = { .step = 1, .generation = 0, .world_size = (uint32_t)W };
    struct manifest_file files[MOST_RANKS];
    struct fsdp_err err = { 0 };
    double start, seconds;
    char *head;
    size_t length;

    commit_temporary_name(&fence, "bench", 5, temporary); /* the ranks have made the same */
    seconds = all_do(SAVE);
    start = bench_now();
    check(checkpoint_head(&state, 0, W, tensors, (size_t)n_tensors, &head, &length, &err), &err);
    for (int r = 0; r < W; r++) {
        const struct checkpoint_part *part = &board->parts[r];

        files[r] = (struct manifest_file){ .name = board->parts[r].file,
                                           .rank = (uint32_t)r,
                                           .size_bytes = part->size_bytes,
                                           .checksum = { part->checksum[0], part->checksum[1] } };
    }
    check(commit_publish(&io_posix, directory, temporary, &fence, head, length, files, (size_t)W, &err),
          &err);
    free(head);
    return seconds + bench_now() - start;
}

static double verify(void)
{
    struct fsdp_err err = { 0 };
    const double start = bench_now();

    check(verify_step(&io_posix, step_path, VERIFY_CHECKSUMS, NULL, &err), &err);
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

/*
 * fio writes or reads the same bytes. Returns the seconds that it says it took for them: its start and its
 * end do not count.
 */
static double fio(const char *how)
{
    char command[4096], line[4096];
    double kib_per_s = 0;
    FILE *out;

    snprintf(
        command, sizeof command,
        "fio --name=bench --directory='%s' --filename_format='fio-$jobnum' --numjobs=%d --size=%zu --bs=1M "
        "--direct=1 --ioengine=io_uring --iodepth=4 --fallocate=posix --group_reporting --thread "
        "--output-format=terse --terse-version=3 %s 2> /dev/null",
        directory, W, own_bytes, how);
    out = popen(command, "r");
    while (out != NULL && fgets(line, sizeof line, out) != NULL) {
        char *at = line, *field = NULL;

        for (int i = 0; i < (strstr(how, "rw=read") != NULL ? 7 : 48) && at != NULL; i++)
            field = strsep(&at, ";");
        if (field != NULL && at != NULL)
            kib_per_s = atof(field);
    }
    errno = 0;
    if (out == NULL || pclose(out) != 0 || kib_per_s <= 0)
        bench_die("fio failed");
    return (double)all_bytes() / (kib_per_s * 1024);
}

/* The peer */

static bool start_peers(void)
{
    const char *python = peer_python();
    char numbers[4][16], rendezvous[2300];
    bool ready = true;

    if (python == NULL)
        return false;
    snprintf(numbers[0], sizeof numbers[0], "%d", n_tensors);
    snprintf(numbers[1], sizeof numbers[1], "%d", ELEMENTS / W);
    snprintf(numbers[2], sizeof numbers[2], "%d", W);
    snprintf(rendezvous, sizeof rendezvous, "%s/rendezvous", directory);
    for (int r = 0; r < W; r++) {
        snprintf(numbers[3], sizeof numbers[3], "%d", r);
        peer_start(&peers[r], (const char *const[]){ python, "tests/bench/dcp_rank.py", numbers[0],
                                                     numbers[1], numbers[2], numbers[3], rendezvous, NULL });
    }
    for (int r = 0; r < W; r++)
        ready = peer_is_ready(&peers[r]) && ready;
    if (!ready)
        fprintf(stderr, "bench_checkpoint: %s has no PyTorch for us\n", python);
    return ready;
}

/* Seconds of "save", "load" or "async" of the slowest rank; 1 where there is no peer. */
static double ask_peers(const char *verb)
{
    double most = 0;
    char line[64];

    if (!with_peer)
        return 1;
    for (int r = 0; r < W; r++)
        dprintf(peers[r].orders, "%s %s\n", verb, dcp_path);
    for (int r = 0; r < W; r++) {
        if (!peer_read(&peers[r], line, sizeof line))
            bench_die("a peer ended");
        most = atof(line) > most ? atof(line) : most;
    }
    return most;
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
    struct turn turn = { .ours = save() };

    turn.limit = all_do(WRITE_PLAIN); /* other rows read these files */
    if (with_fio)
        turn.limit = fio("--rw=write --end_fsync=1 --overwrite=0 --create_on_open=1 --unlink=0");
    turn.peer = ask_peers("save");
    return turn;
}

static void each_shard(void (*visit)(const char *path))
{
    for (int r = 0; r < W; r++)
        visit(shard_path(r));
}

static struct turn turn_of_cold_load(void)
{
    struct turn turn;

    each_shard(drop_cache);
    turn.ours = all_do(LOAD);
    for (int r = 0; r < W; r++)
        drop_cache(plain_path(r));
    turn.limit = with_fio ? fio("--rw=read") : all_do(READ_PLAIN);
    if (with_peer)
        each_peer_file(drop_cache);
    turn.peer = ask_peers("load");
    return turn;
}

static struct turn turn_of_warm_load(void)
{
    struct turn turn;

    each_shard(warm_cache);
    turn.ours = all_do(LOAD);
    for (int r = 0; r < W; r++)
        warm_cache(plain_path(r));
    turn.limit = all_do(READ_CACHED);
    if (with_peer)
        each_peer_file(warm_cache);
    turn.peer = ask_peers("load");
    return turn;
}

static struct turn turn_of_verify(void)
{
    struct turn turn = { .peer = 1 };

    each_shard(warm_cache);
    turn.ours = verify();
    for (int r = 0; r < W; r++)
        warm_cache(plain_path(r));
    turn.limit = all_do(READ_CACHED);
    return turn;
}

static struct turn turn_of_snapshot(void)
{
    struct turn turn;

    turn.ours = all_do(FILL);
    turn.limit = all_do(COPY);
    turn.peer = ask_peers("async");
    return turn;
}

static struct turn turn_of_snapshot_load(void)
{
    struct turn turn = { .peer = 1 };

    turn.ours = all_do(LOAD_SLOT);
    turn.limit = all_do(COPY_BACK);
    return turn;
}

static const struct measure {
    const char *what, *limit_name, *without_fio;
    struct turn (*turn)(void);
    const char *peer_name; /* NULL: the peer has no such thing */
    bool per_core;
} measures[] = {
    { "save, durable", "fio", "O_DIRECT writes + fsync", turn_of_save, "PyTorch DCP", false },
    { "load, page cache dropped", "fio", "O_DIRECT reads", turn_of_cold_load, "PyTorch DCP", false },
    { "load from the page cache, a core", "plain reads", NULL, turn_of_warm_load, "PyTorch DCP", true },
    { "verify, from the page cache", "plain reads", NULL, turn_of_verify, NULL, false },
    { "snapshot into memory", "memcpy", NULL, turn_of_snapshot, "PyTorch DCP, async_save until it returns",
      false },
    { "load from memory", "memcpy", NULL, turn_of_snapshot_load, NULL, false },
};

static int runs_of(size_t bytes)
{
    const int usual = bytes <= 512u * MIB ? RUNS : bytes <= 2048u * MIB ? 5 : 3;

    return bench_setting("BENCH_RUNS", usual, usual);
}

static void add_row(struct report *report, const struct measure *m)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const double cores = m->per_core ? (double)(W < cpus ? W : cpus) : 1;
    const double gb = (double)all_bytes() * 1e-9 / cores;
    const int n = runs_of(all_bytes());
    double ours[RUNS], limit[RUNS], theirs[RUNS];
    char what[80];

    for (int i = -WARM; i < n; i++) {
        const struct turn turn = m->turn();
        const int at = i < 0 ? 0 : i;

        ours[at] = gb / turn.ours, limit[at] = gb / turn.limit, theirs[at] = gb / turn.peer;
    }
    snprintf(what, sizeof what, "%.2f GB, W %d: %s", (double)all_bytes() / 1024 / MIB, W, m->what);
    report_add(report,
               &(struct report_row){
                   what, "GB/s", true, ours, limit, with_peer && m->peer_name != NULL ? theirs : NULL, n,
                   with_fio || m->without_fio == NULL ? m->limit_name : m->without_fio, m->peer_name });
}

static void run(const char *parent, size_t mib, int n_ranks, struct report *report)
{
    const struct commit_fence fence = { .step = 1, .generation = 0, .world_size = (uint32_t)n_ranks };
    char command[2200], template[2048], path[PATH_MAX];

    W = n_ranks;
    n_tensors = (int)(mib / (ELEMENTS * sizeof(float) / MIB));
    own_bytes = all_bytes() / (size_t)W;
    /* tensors, two slots, the memory of the limit; the peer's tensors, and its copy of them */
    if (all_bytes() * (peer_python() != NULL ? 6 : 4) > memory_room("")) {
        fprintf(stderr, "bench_checkpoint: %zu MiB by %d ranks do not fit into memory: left out\n", mib, W);
        return;
    }
    snprintf(template, sizeof template, "%s/bench-checkpoint.XXXXXX", parent);
    if (mkdtemp(template) == NULL || realpath(template, path) == NULL || /* PyTorch needs it absolute */
        (size_t)snprintf(directory, sizeof directory, "%s", path) >= sizeof directory)
        bench_die(template);
    snprintf(step_path, sizeof step_path, "%s/step-00000001", directory);
    snprintf(dcp_path, sizeof dcp_path, "%s/dcp", directory);
    commit_temporary_name(&fence, "bench", 5, temporary);
    begin_ranks();
    prepare_names();
    with_peer = start_peers();
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++)
        add_row(report, &measures[i]);
    end_ranks();
    if (peer_python() != NULL)
        peers_stop(peers, W);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (system(command) != 0)
        bench_die(command);
}

int main(int argc, char **argv)
{
    const char *parent = argc > 2 ? argv[2] : "build";
    const char *const usual[] = { "256" };
    const char *const *sizes = argc > 3 ? (const char *const *)(argv + 3) : usual;
    const int n_sizes = argc > 3 ? argc - 3 : 1;
    struct report report;

    if (argc < 2) {
        fprintf(stderr, "usage: bench_checkpoint JSON_FILE [DIRECTORY [MIB...]]\n");
        return 2;
    }
    for (int i = 0; i < n_sizes; i++)
        if (atoi(sizes[i]) < 8 || atoi(sizes[i]) > 8 * MOST_TENSORS) {
            fprintf(stderr, "bench_checkpoint: %s MiB: 8 to %d\n", sizes[i], 8 * MOST_TENSORS);
            return 2;
        }
    with_fio = system("fio --version > /dev/null 2>&1") == 0;
    alloc_buffer();
    if (!report_begin(&report, argv[1]))
        return 1;
    for (int i = 0; i < n_sizes; i++)
        for (int n_ranks = 1; n_ranks <= MOST_RANKS; n_ranks *= 4)
            run(parent, (size_t)atoi(sizes[i]), n_ranks, &report);
    return report_end(&report) ? 0 : 1;
}
