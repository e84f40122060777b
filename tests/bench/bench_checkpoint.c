/*
 * bench_checkpoint JSON_FILE [DIRECTORY]: save and load 256 MiB in 32 tensors, one rank, GB/s of tensor
 * bytes.
 *
 * A save is all of it: write around the page cache, sync, publish. Its limit: the same bytes, plain O_DIRECT
 * writes of 4 MiB from one buffer into a reserved file, then fsync. A load reads with the page cache dropped
 * (limit: plain O_DIRECT reads of 4 MiB) and from the page cache, as a restart on the same machine does
 * (limit: plain reads into the same memory). Verifying reads from the page cache and hashes. Peer: PyTorch's
 * distributed checkpoint of the same tensors, with sync_files, through the Python that FSDP_BENCH_PYTHON
 * names. All take turns.
 */
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "shard_runtime/checkpoint/load.h"
#include "shard_runtime/checkpoint/save.h"
#include "tests/bench/report.h"
#include "tests/bench/runs.h"

enum { N_TENSORS = 32, ELEMENTS = 2 << 20, RUNS = 11, WARM = 1, CHUNK = 4 << 20 };
#define BYTES ((size_t)N_TENSORS * ELEMENTS * sizeof(float))

static struct checkpoint_tensor tensors[N_TENSORS];
static unsigned char *buffer; /* CHUNK, aligned */
static char directory[2048], plain_path[2200], shard_path[2400], manifest_path[2400], step_path[2200],
    dcp_path[2200];

static struct {
    pid_t pid;
    int orders;
    FILE *answers;
} peer;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status != FSDP_OK) {
        fprintf(stderr, "bench_checkpoint: %s\n", err->message);
        exit(1);
    }
}

/* --- ours --- */

static double save(int64_t step)
{
    const struct checkpoint_state state = { .step = step };
    const struct commit_fence fence = { .step = step, .generation = 0, .world_size = 1 };
    char temporary[COMMIT_NAME_BYTES], *head;
    struct checkpoint_part part;
    struct manifest_file file;
    struct fsdp_err err = { 0 };
    const double start = report_now();
    size_t length;

    commit_temporary_name(step, 0, "bench", 5, temporary);
    check(checkpoint_write_part(&io_posix, directory, temporary, &state, 0, 1, 0, tensors, N_TENSORS, &part,
                                &err),
          &err);
    check(checkpoint_head(&state, 0, 1, tensors, N_TENSORS, &head, &length, &err), &err);
    file = (struct manifest_file){ .name = part.file,
                                   .size_bytes = part.size_bytes,
                                   .checksum = { part.checksum[0], part.checksum[1] } };
    check(commit_publish(&io_posix, directory, temporary, &fence, head, length, &file, 1, &err), &err);
    free(head);
    return report_now() - start;
}

static double load(void)
{
    struct fsdp_err err = { 0 };
    const double start = report_now();

    check(checkpoint_load(&io_posix, step_path, 1, 0, tensors, N_TENSORS, 0, NULL, NULL, &err), &err);
    return report_now() - start;
}

static double verify(void)
{
    struct fsdp_err err = { 0 };
    const double start = report_now();

    check(verify_step(&io_posix, step_path, VERIFY_CHECKSUMS, NULL, &err), &err);
    return report_now() - start;
}

/* --- the limits: the same bytes, nothing else --- */

static double plain_write(void)
{
    const double start = report_now();
    const int fd = open(plain_path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);

    if (fd < 0 || fallocate(fd, 0, 0, BYTES) < 0)
        die(plain_path);
    for (size_t at = 0; at < BYTES; at += CHUNK)
        if (pwrite(fd, buffer, CHUNK, (off_t)at) != CHUNK)
            die("write");
    if (fsync(fd) < 0)
        die("fsync");
    close(fd);
    return report_now() - start;
}

static double plain_read(bool direct)
{
    const double start = report_now();
    const int fd = open(plain_path, O_RDONLY | (direct ? O_DIRECT : 0));

    if (fd < 0)
        die(plain_path);
    for (size_t at = 0; at < BYTES; at += CHUNK) {
        unsigned char *to = direct ? buffer
                                   : (unsigned char *)tensors[at / (ELEMENTS * sizeof(float))].rows +
                                         at % (ELEMENTS * sizeof(float));

        if (pread(fd, to, CHUNK, (off_t)at) != CHUNK)
            die("read");
    }
    close(fd);
    return report_now() - start;
}

static void drop_cache(const char *path)
{
    const int fd = open(path, O_RDONLY);

    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        die(path);
    close(fd);
}

static void warm_cache(const char *path)
{
    const int fd = open(path, O_RDONLY);

    if (fd < 0)
        die(path);
    for (off_t at = 0; pread(fd, buffer, CHUNK, at) > 0; at += CHUNK)
        continue;
    close(fd);
}

/* --- the peer --- */

static bool start_peer(void)
{
    const char *python = getenv("FSDP_BENCH_PYTHON");
    char n_tensors[16], elements[16], line[64];
    int down[2], up[2];

    if (python == NULL || python[0] == '\0')
        return false;
    if (pipe2(down, O_CLOEXEC) < 0 || pipe2(up, O_CLOEXEC) < 0)
        die("pipe");
    snprintf(n_tensors, sizeof n_tensors, "%d", N_TENSORS);
    snprintf(elements, sizeof elements, "%d", ELEMENTS);
    peer.pid = fork();
    if (peer.pid < 0)
        die("fork");
    if (peer.pid == 0) {
        dup2(down[0], 0), dup2(up[1], 1);
        execlp(python, python, "tests/bench/dcp_rank.py", n_tensors, elements, (char *)NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    peer.orders = down[1];
    peer.answers = fdopen(up[0], "r");
    if (peer.answers == NULL)
        die("fdopen");
    if (fgets(line, sizeof line, peer.answers) != NULL && strcmp(line, "ready\n") == 0)
        return true;
    fprintf(stderr, "bench_checkpoint: %s has no PyTorch for us\n", python);
    return false;
}

static double ask_peer(const char *verb)
{
    char line[64];

    dprintf(peer.orders, "%s %s\n", verb, dcp_path);
    if (fgets(line, sizeof line, peer.answers) == NULL)
        die("the peer ended");
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

static void remove_file(const char *path)
{
    unlink(path);
}

static void stop_peer(void)
{
    if (peer.pid <= 0)
        return;
    close(peer.orders);
    waitpid(peer.pid, NULL, 0);
    fclose(peer.answers);
    each_peer_file(remove_file);
    rmdir(dcp_path);
}

/* --- the table --- */

static double rate(double seconds)
{
    return (double)BYTES / seconds * 1e-9;
}

static void measure_saves(struct report *report, bool with_peer)
{
    double ours[RUNS], limit[RUNS], theirs[RUNS];

    for (int i = -WARM; i < bench_runs(RUNS); i++) {
        const double a = save(1), b = plain_write(), c = with_peer ? ask_peer("save") : 1;

        if (i >= 0)
            ours[i] = rate(a), limit[i] = rate(b), theirs[i] = rate(c);
    }
    report_add(report, &(struct report_row){ .what = "save, durable",
                                             .unit = "GB/s",
                                             .higher_is_better = true,
                                             .ours = ours,
                                             .limit = limit,
                                             .peer = with_peer ? theirs : NULL,
                                             .n = bench_runs(RUNS),
                                             .limit_name = "O_DIRECT writes + fsync",
                                             .peer_name = "PyTorch DCP" });
}

static void measure_loads(struct report *report, bool with_peer, bool cold)
{
    void (*const prepare)(const char *) = cold ? drop_cache : warm_cache;
    double ours[RUNS], limit[RUNS], theirs[RUNS];

    for (int i = -WARM; i < bench_runs(RUNS); i++) {
        double a, b, c = 1;

        prepare(shard_path);
        a = load();
        prepare(plain_path);
        b = plain_read(cold);
        if (with_peer) {
            each_peer_file(prepare);
            c = ask_peer("load");
        }
        if (i >= 0)
            ours[i] = rate(a), limit[i] = rate(b), theirs[i] = rate(c);
    }
    report_add(report,
               &(struct report_row){ .what = cold ? "load, page cache dropped" : "load from the page cache",
                                     .unit = "GB/s",
                                     .higher_is_better = true,
                                     .ours = ours,
                                     .limit = limit,
                                     .peer = with_peer ? theirs : NULL,
                                     .n = bench_runs(RUNS),
                                     .limit_name = cold ? "O_DIRECT reads" : "plain reads",
                                     .peer_name = "PyTorch DCP" });
}

static void measure_verify(struct report *report)
{
    double ours[RUNS], limit[RUNS];

    for (int i = -WARM; i < bench_runs(RUNS); i++) {
        double a, b;

        warm_cache(shard_path);
        a = verify();
        warm_cache(plain_path);
        b = plain_read(false);
        if (i >= 0)
            ours[i] = rate(a), limit[i] = rate(b);
    }
    report_add(report, &(struct report_row){ .what = "verify every byte, from the page cache",
                                             .unit = "GB/s",
                                             .higher_is_better = true,
                                             .ours = ours,
                                             .limit = limit,
                                             .n = bench_runs(RUNS),
                                             .limit_name = "plain reads" });
}

static void prepare_tensors(void)
{
    static char names[N_TENSORS][32];

    for (int t = 0; t < N_TENSORS; t++) {
        float *rows = aligned_alloc(4096, ELEMENTS * sizeof *rows);

        if (rows == NULL)
            die("memory");
        for (int i = 0; i < ELEMENTS; i++)
            rows[i] = (float)(i ^ t);
        snprintf(names[t], sizeof names[t], "layers.%d.weight", t);
        tensors[t] = (struct checkpoint_tensor){
            .name = names[t], .dtype = FSDP_F32, .n_dims = 2, .shape = { ELEMENTS / 512, 512 }, .rows = rows
        };
    }
    buffer = aligned_alloc(4096, CHUNK);
    if (buffer == NULL)
        die("memory");
    memset(buffer, 7, CHUNK);
}

int main(int argc, char **argv)
{
    struct report report;
    bool with_peer;

    if (argc < 2) {
        fprintf(stderr, "usage: bench_checkpoint JSON_FILE [DIRECTORY]\n");
        return 2;
    }
    snprintf(directory, sizeof directory, "%s/bench-checkpoint.XXXXXX", argc > 2 ? argv[2] : "build");
    if (mkdtemp(directory) == NULL)
        die(directory);
    snprintf(plain_path, sizeof plain_path, "%s/plain", directory);
    snprintf(step_path, sizeof step_path, "%s/step-00000001", directory);
    snprintf(shard_path, sizeof shard_path, "%s/shard-00001-model-00001-of-00001.safetensors", step_path);
    snprintf(manifest_path, sizeof manifest_path, "%s/manifest.json", step_path);
    snprintf(dcp_path, sizeof dcp_path, "%s/dcp", directory);
    prepare_tensors();
    with_peer = start_peer();
    if (!report_begin(&report, argv[1]))
        return 1;
    measure_saves(&report, with_peer);
    measure_loads(&report, with_peer, true);
    measure_loads(&report, with_peer, false);
    measure_verify(&report);
    stop_peer();
    remove_file(plain_path);
    remove_file(shard_path);
    remove_file(manifest_path);
    rmdir(step_path);
    if (rmdir(directory) < 0)
        perror(directory);
    return report_end(&report) ? 0 : 1;
}
