/* Communicators, the log of calls, and the words of errors. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/emulation/cuda/nccl/standin.h"

enum { LAZY_POLLS = 3 };

static const char *when(char text[40])
{
    struct timespec now;

    text[0] = '\0';
    if (getenv("NCCL_STANDIN_CLOCK") != NULL && clock_gettime(CLOCK_REALTIME, &now) == 0)
        snprintf(text, 40, " at %lld.%06ld", (long long)now.tv_sec, now.tv_nsec / 1000);
    return text;
}

void standin_record(const struct nccl_communicator *comm, const char *call, const char *rest)
{
    const char *log = getenv("NCCL_STANDIN_LOG");
    char path[PATH_BYTES], line[512], clock[40];
    int fd, n;

    if (log == NULL)
        return;
    snprintf(path, sizeof path, "%s.%d", log, comm->rank);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    n = snprintf(line, sizeof line, "%s%s%s%s\n", call, rest[0] != '\0' ? " " : "", rest, when(clock));
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    (void)close(fd);
}

void standin_let_go(struct nccl_communicator *comm)
{
    if (--comm->n_users == 0)
        free(comm);
}

enum nccl_result standin_told(const char *call)
{
    return emulated_call(call) == cudaSuccess ? NCCL_SUCCESS : NCCL_UNHANDLED_CUDA_ERROR;
}

/*
 * How often this thread has waited for something. A thread that yields is switched too, but not counted here:
 * getrusage(2).
 */
static long switches_so_far(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

/* The caller asks after a call that was in progress. */
static void count_question(struct nccl_communicator *comm)
{
    if (comm->switches < 0)
        return;
    comm->n_asked++;
    comm->n_waited += switches_so_far() > comm->switches;
    comm->switches = -1;
}

static void record_questions(const struct nccl_communicator *comm)
{
    char words[64];

    snprintf(words, sizeof words, "%lu, waited %lu", comm->n_asked, comm->n_waited);
    if (comm->n_asked > 0)
        standin_record(comm, "asked", words);
}

static bool is_lazy(void)
{
    return getenv("NCCL_STANDIN_LAZY") != NULL;
}

enum nccl_result standin_answer(struct nccl_communicator *comm)
{
    if (!is_lazy())
        return NCCL_SUCCESS;
    comm->in_progress = LAZY_POLLS;
    comm->switches = switches_so_far();
    return NCCL_IN_PROGRESS;
}

EXPORT enum nccl_result ncclGetVersion(int *version)
{
    if (emulated_host_call(__func__) != cudaSuccess)
        return NCCL_UNHANDLED_CUDA_ERROR;
#ifdef NCCL_STANDIN_OLD
    *version = 21800;
#else
    *version = 23000;
#endif
    return NCCL_SUCCESS;
}

EXPORT enum nccl_result ncclGetUniqueId(nccl_id *id)
{
    static unsigned n_made;

    if (emulated_host_call(__func__) != cudaSuccess)
        return NCCL_UNHANDLED_CUDA_ERROR;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "nccl-%d-%u", (int)getpid(), n_made++);
    return NCCL_SUCCESS;
}

/* What of its environment is NCCL's own: whoever opens it is to leave that alone. */
static void record_environment(const struct nccl_communicator *comm)
{
    for (char **variable = environ; *variable != NULL; variable++)
        if (strncmp(*variable, "NCCL_", 5) == 0 && strncmp(*variable, "NCCL_STANDIN_", 13) != 0)
            standin_record(comm, "environment", *variable);
}

EXPORT enum nccl_result ncclCommInitRankConfig(struct nccl_communicator **out, int n_ranks, nccl_id id,
                                               int rank, struct nccl_config *config)
{
    static int n_opened;
    const char *folder = getenv("NCCL_STANDIN_DIR");
    const struct head joined = { .root = emulated_device() };
    struct nccl_communicator *comm;
    char words[64];

    *out = NULL;
    TOLD();
    if (folder == NULL || config->blocking != 0 || config->magic != 0xcafebeef || n_ranks > MAX_RANKS)
        return NCCL_INVALID_ARGUMENT;
    comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return NCCL_SYSTEM_ERROR;
    comm->rank = rank;
    comm->size = n_ranks;
    comm->own = n_opened++;
    comm->n_users = 1;
    comm->switches = -1;
    snprintf(comm->prefix, sizeof comm->prefix, "%s/%.100s", folder, id.internal);
    snprintf(words, sizeof words, "%d of %d", rank, n_ranks);
    standin_record(comm, "CommInitRankConfig", words);
    record_environment(comm);
    standin_publish(comm, 0, &joined, NULL, 0);
    *out = comm;
    return NCCL_IN_PROGRESS;
}

static bool all_joined(const struct nccl_communicator *comm)
{
    for (int r = 0; r < comm->size; r++)
        if (!standin_is_there(comm, 0, r))
            return false;
    return true;
}

/*
 * As NCCL, which takes two ranks on one GPU for a mistake: from 2.30 on unless it is told that they are
 * wanted.
 */
static bool may_share(const struct nccl_communicator *comm)
{
    const struct head mine = { .root = emulated_device() };
    const char *wanted = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    bool shared = false;

    for (int r = 0; r < comm->size; r++)
        shared = shared || (r != comm->rank && standin_fetch(comm, 0, r, &mine, 0, NULL, 0));
    return !shared || (wanted != NULL && strcmp(wanted, "1") == 0);
}

EXPORT enum nccl_result ncclCommGetAsyncError(struct nccl_communicator *comm, enum nccl_result *result)
{
    TOLD();
    if (is_lazy() || getenv("NCCL_STANDIN_NEVER") != NULL)
        count_question(comm);
    if (!comm->ready && getenv("NCCL_STANDIN_NEVER") == NULL && all_joined(comm)) {
        comm->ready = true;
        if (!may_share(comm))
            comm->failed = NCCL_INVALID_USAGE;
    }
    *result = !comm->ready ? NCCL_IN_PROGRESS : comm->failed;
    if (comm->ready && comm->in_progress > 0) {
        comm->in_progress--;
        *result = NCCL_IN_PROGRESS;
    }
    /* While others have not joined, waiting is right: only what never ends is counted then. */
    if (*result == NCCL_IN_PROGRESS && (comm->ready || getenv("NCCL_STANDIN_NEVER") != NULL))
        comm->switches = switches_so_far();
    return NCCL_SUCCESS;
}

EXPORT enum nccl_result ncclCommFinalize(struct nccl_communicator *comm)
{
    TOLD();
    standin_record(comm, "CommFinalize", "");
    return standin_answer(comm);
}

/* What was made of a communicator that ends in good order, and never given back. */
static void record_left(const struct nccl_communicator *comm)
{
    char words[64];
    int n_ops = 0;

    for (int i = 0; i < MAX_OWN_OPS; i++)
        n_ops += comm->op_used[i];
    snprintf(words, sizeof words, "%d operations %d registrations", n_ops, comm->n_registered);
    if (n_ops + comm->n_registered > 0)
        standin_record(comm, "left", words);
}

EXPORT enum nccl_result ncclCommDestroy(struct nccl_communicator *comm)
{
    const enum nccl_result told = standin_told(__func__);

    record_questions(comm);
    standin_record(comm, "CommDestroy", "");
    record_left(comm);
    standin_let_go(comm);
    return told;
}

EXPORT enum nccl_result ncclCommAbort(struct nccl_communicator *comm)
{
    const enum nccl_result told = standin_told(__func__);

    record_questions(comm);
    standin_record(comm, "CommAbort", "");
    comm->aborted = true;
    standin_let_go(comm);
    return told;
}

EXPORT const char *ncclGetErrorString(enum nccl_result result)
{
    return result == NCCL_REMOTE_ERROR    ? "remote process exited or there was a network error"
           : result == NCCL_INVALID_USAGE ? "invalid usage"
                                          : "unhandled error";
}

EXPORT const char *ncclGetLastError(struct nccl_communicator *comm)
{
    return comm->failed != NCCL_SUCCESS ? "as it was told to" : "";
}
