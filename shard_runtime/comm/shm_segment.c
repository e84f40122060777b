/* Making the segment: the host's first rank makes it, the others get its descriptor through the agent. */
#include "shard_runtime/comm/shm_segment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/require.h"

/*
 * Bytes of a slot. It is so large that the copying takes far longer than a meeting. A meeting takes 0.3 us
 * spinning, 35 us asleep, and more when ranks outnumber CPUs. Sizes from 64 KiB to 4 MiB were tried; below 1
 * MiB, sums between two clusters of cores are slower.
 */
enum { CHUNK_BYTES = 1 << 20 };

/*
 * If every rank has a CPU: how often a wait checks the counter before it sleeps. Some tens of microseconds.
 */
enum { SPINS = 2000 };

/* If ranks outnumber CPUs: how often a wait gives its CPU to others (sched_yield()) before it sleeps. */
enum { YIELDS = 16 };

enum { PAGE = 4096 };

/* Adds the CPUs that this rank may use to those of the others. Each rank may be bound to a few of its own. */
static void tell_cpus(struct shm_head *head)
{
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0)
        return;
    for (int cpu = 0; cpu < SHM_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus))
            atomic_fetch_or(&head->cpus[cpu / 64], (uint64_t)1 << (cpu % 64));
}

/*
 * Returns whether all ranks of this host, not only the group's, have a CPU each. Only then may a wait spin.
 */
static bool ranks_fit_cpus(const struct shm_head *head, const struct link *link)
{
    int n = 0;

    for (int i = 0; i < SHM_CPUS / 64; i++)
        n += __builtin_popcountll(atomic_load(&head->cpus[i]));
    return n >= (int)link_hello(link)->local_world_size;
}

static size_t marks_bytes(int n)
{
    return round_up((size_t)n * sizeof(struct shm_mark), PAGE);
}

static size_t segment_bytes(int n, size_t chunk_bytes)
{
    return round_up(SHM_HEAD_BYTES + marks_bytes(n) + (size_t)n * 2 * chunk_bytes, PAGE);
}

size_t shm_segment_bytes(int n)
{
    return segment_bytes(n, CHUNK_BYTES);
}

static enum fsdp_status make_segment(int *fd, size_t bytes, struct fsdp_err *err)
{
    int error;

    *fd = memfd_create("fsdp-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0 || ftruncate(*fd, (off_t)bytes) < 0)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a shared segment of %zu bytes: %s", bytes, strerror(errno));
    /*
     * Allocates the pages now: a host without enough memory is an error here, and not a SIGBUS in a later
     * copy.
     */
    error = posix_fallocate(*fd, 0, (off_t)bytes);
    if (error != 0)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a shared segment of %zu bytes: %s", bytes, strerror(error));
    if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "sealing a shared segment: %s", strerror(errno));
    return FSDP_OK;
}

/*
 * Makes the segment (first rank) or gets its descriptor, and checks that it has its size and cannot shrink.
 */
static enum fsdp_status share_segment(const struct shm_config *config, size_t bytes, int *fd,
                                      struct fsdp_err *err)
{
    char key[FSDP_LINK_KEY_BYTES];
    enum fsdp_status status;
    size_t nothing = 0;
    struct stat st;

    snprintf(key, sizeof key, "comm/%s/segment/%u", config->name, link_hello(config->link)->node_rank);
    if (config->self == 0) {
        status = make_segment(fd, bytes, err);
        return status == FSDP_OK ? link_put(config->link, key, NULL, 0, *fd, err) : status;
    }
    OK_OR_RETURN(link_get(config->link, key, NULL, &nothing, fd, err));
    if (*fd < 0 || fstat(*fd, &st) < 0 || (fcntl(*fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is no sealed segment", key);
    if ((size_t)st.st_size != bytes)
        return fsdp_fail(err, FSDP_ERR_MISMATCH,
                         "%s has %lld bytes and not %zu: not the same chunk on all ranks", key,
                         (long long)st.st_size, bytes);
    return FSDP_OK;
}

static enum fsdp_status map_segment(struct shm *shm, int fd, struct fsdp_err *err)
{
    /* MAP_POPULATE: the first collective has no page faults. */
    char *base = mmap(NULL, shm->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);

    if (base == MAP_FAILED)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "mapping a shared segment of %zu bytes: %s", shm->mapped_bytes,
                         strerror(errno));
    shm->head = (struct shm_head *)base;
    shm->marks = (struct shm_mark *)(base + SHM_HEAD_BYTES);
    shm->slots = base + SHM_HEAD_BYTES + marks_bytes(shm->n);
    return FSDP_OK;
}

enum fsdp_status shm_create(struct shm **out, const struct shm_config *config, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct shm *shm = NULL;
    int fd = -1;

    *out = NULL;
    shm = calloc(1, sizeof *shm);
    if (shm != NULL)
        shm->sources = calloc((size_t)config->n, sizeof *shm->sources);
    if (shm == NULL || shm->sources == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "a group of %d ranks", config->n);
        goto done;
    }
    shm->watch = config->watch;
    shm->first = config->first;
    shm->n = config->n;
    shm->self = config->self;
    shm->chunk_bytes = config->chunk_bytes != 0 ? config->chunk_bytes : CHUNK_BYTES;
    /* A slot has room for at least one cache line per rank, even if a smaller chunk was asked for. */
    if (shm->chunk_bytes < 64 * (size_t)config->n)
        shm->chunk_bytes = 64 * (size_t)config->n;
    shm->chunk_bytes = round_up(shm->chunk_bytes, 64);
    shm->mapped_bytes = segment_bytes(config->n, shm->chunk_bytes);
    status = share_segment(config, shm->mapped_bytes, &fd, err);
    if (status == FSDP_OK)
        status = map_segment(shm, fd, err);
    if (status != FSDP_OK)
        goto done;
    assert(shm->head != NULL);
    if (config->self == 0) {
        shm->head->n = (uint32_t)config->n;
        shm->head->chunk_bytes = shm->chunk_bytes;
        shm->head->magic = SHM_MAGIC;
    }
    tell_cpus(shm->head);
    status = shm_meet(shm, err); /* after this meeting all ranks have the segment, and the head is written */
    if (ranks_fit_cpus(shm->head, config->link))
        shm->n_spins = SPINS;
    else
        shm->n_yields = YIELDS;
    if (status == FSDP_OK && (shm->head->magic != SHM_MAGIC || shm->head->n != (uint32_t)config->n))
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "the shared segment is not this group's");
    if (status != FSDP_OK)
        goto done;
    *out = shm;
    shm = NULL;
done:
    if (fd >= 0)
        close(fd);
    shm_destroy(shm);
    return status;
}

void shm_destroy(struct shm *shm)
{
    if (shm == NULL)
        return;
    if (shm->head != NULL) {
        shm_fail(shm, FSDP_ERR_PEER, "it closed the group");
        munmap(shm->head, shm->mapped_bytes);
    }
    free(shm->sources);
    free(shm);
}
