#include "shard_runtime/ckpt/damage_find.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/ckpt/work.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/chunk_sums.h"
#include "shard_runtime/shardfile/contents.h"
#include "shard_runtime/shardfile/file_sum.h"
#include "shard_runtime/shardfile/safetensors.h"

/* What one thread finds in one file. */
struct finding {
    struct damage *list;
    size_t n, room;
    uint64_t bytes;
};

struct search {
    struct fsdp_io *io;
    const char *directory;
    const struct manifest *manifest;
    struct finding *findings; /* one for each file */
};

static enum fsdp_status add(struct finding *finding, const struct damage *damage, struct fsdp_err *err)
{
    if (!alloc_room(&finding->list, &finding->room, finding->n, sizeof *finding->list))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a list of damage");
    finding->list[finding->n++] = *damage;
    return FSDP_OK;
}

/*
 * Adds damage for which no byte range is known: of the whole file, or of the whole checkpoint if `file` is
 * NULL.
 */
static enum fsdp_status add_reason(struct finding *finding, const char *file, const char *reason,
                                   struct fsdp_err *err)
{
    struct damage damage = { .has_range = false };

    snprintf(damage.file, sizeof damage.file, "%s", file == NULL ? "" : file);
    snprintf(damage.reason, sizeof damage.reason, "%s", reason);
    return add(finding, &damage, err);
}

/* Adds the bytes begin .. end - 1 of the file, divided by the parts that they belong to. */
static enum fsdp_status add_range(struct finding *finding, const char *file,
                                  const struct safetensors_header *header, uint64_t begin, uint64_t end,
                                  struct fsdp_err *err)
{
    struct damage damage = { .has_range = true, .begin = begin, .end = end };

    snprintf(damage.file, sizeof damage.file, "%s", file);
    snprintf(damage.reason, sizeof damage.reason, "a checksum does not hold");
    if (header->tensors == NULL && header->data_start == 0) /* unreadable: the parts are not known */
        return add(finding, &damage, err);
    if (begin < header->data_start) {
        damage.end = end < header->data_start ? end : header->data_start;
        snprintf(damage.reason, sizeof damage.reason, "the header: a checksum does not hold");
        OK_OR_RETURN(add(finding, &damage, err));
        snprintf(damage.reason, sizeof damage.reason, "a checksum does not hold");
    }
    for (size_t i = 0; i < header->n_tensors; i++) {
        const uint64_t first = header->data_start + header->tensors[i].begin,
                       last = header->data_start + header->tensors[i].end;

        damage.begin = begin > first ? begin : first;
        damage.end = end < last ? end : last;
        if (damage.begin >= damage.end)
            continue;
        damage.in_tensor = damage.begin - first;
        snprintf(damage.tensor, sizeof damage.tensor, "%s", header->tensors[i].name);
        OK_OR_RETURN(add(finding, &damage, err));
    }
    return FSDP_OK;
}

/*
 * Reads the file chunk by chunk. `bad` gets whether each chunk differs from its sum; *same whether the whole
 * file has the manifest's checksum.
 */
static enum fsdp_status read_chunks(struct fsdp_io *io, int fd, const char *path,
                                    const struct manifest_file *listed, const struct chunk_sum *sums,
                                    size_t n_sums, bool *bad, bool *same, struct fsdp_err *err)
{
    unsigned char *buffer = malloc(CHUNK_SUMS_BYTES);
    XXH3_state_t *state = XXH3_createState(), *chunk = XXH3_createState();
    enum fsdp_status status = FSDP_OK;
    XXH128_hash_t hash;
    uint64_t at = 0;

    if (buffer == NULL || state == NULL || chunk == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory to verify with");
    else
        XXH3_128bits_reset(state);
    for (size_t i = 0; i < n_sums && status == FSDP_OK; i++) {
        const uint64_t end = sums[i].end;

        XXH3_64bits_reset(chunk);
        while (at < end && status == FSDP_OK) { /* a header may be longer than the buffer */
            const size_t n = end - at < CHUNK_SUMS_BYTES ? (size_t)(end - at) : CHUNK_SUMS_BYTES;

            status = io_read_all(io, fd, buffer, n, at, path, err);
            if (status != FSDP_OK)
                break;
            XXH3_64bits_update(chunk, buffer, n);
            XXH3_128bits_update(state, buffer, n);
            at += n;
        }
        bad[i] = status == FSDP_OK && XXH3_64bits_digest(chunk) != sums[i].sum;
    }
    if (status == FSDP_OK) {
        hash = XXH3_128bits_digest(state);
        *same = hash.low64 == listed->checksum[0] && hash.high64 == listed->checksum[1];
    }
    XXH3_freeState(state);
    XXH3_freeState(chunk);
    free(buffer);
    return status;
}

/* Adds what is bad in a file whose sums are known: each run of bad chunks. */
static enum fsdp_status find_in_chunks(struct search *search, struct finding *finding, int fd,
                                       const char *path, const struct manifest_file *listed,
                                       const struct chunk_sum *sums, size_t n_sums, struct fsdp_err *err)
{
    bool *bad = calloc(n_sums + 1, sizeof *bad), same = false;
    struct safetensors_header header = { 0 };
    enum fsdp_status status = bad == NULL
                                  ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu chunks", n_sums)
                                  : read_chunks(search->io, fd, path, listed, sums, n_sums, bad, &same, err);

    if (status == FSDP_OK && !same) {
        (void)safetensors_read(search->io, fd, path, listed->size_bytes, &header, NULL);
        for (size_t i = 0, next; i < n_sums && status == FSDP_OK; i = next) {
            next = i + 1;
            if (!bad[i])
                continue;
            while (next < n_sums && bad[next])
                next++;
            status = add_range(finding, listed->name, &header, i == 0 ? 0 : sums[i - 1].end,
                               sums[next - 1].end, err);
        }
        if (status == FSDP_OK && finding->n == 0)
            status = add_reason(finding, listed->name,
                                "it has not the checksum of the manifest: a file of another save", err);
        safetensors_free(&header);
    }
    free(bad);
    return status;
}

static enum fsdp_status find_in_whole(struct search *search, struct finding *finding, int fd,
                                      const char *path, const struct manifest_file *listed,
                                      struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };
    struct file_sum *sum;
    enum fsdp_status status;

    OK_OR_RETURN(file_sum_create(&sum, err));
    status = file_sum_read(sum, search->io, fd, listed->size_bytes, path, err);
    if (status == FSDP_OK && file_sum_check(sum, listed, path, &why) != FSDP_OK) {
        struct damage damage = { .has_range = true, .end = listed->size_bytes };

        snprintf(damage.file, sizeof damage.file, "%s", listed->name);
        snprintf(damage.reason, sizeof damage.reason,
                 "the checksum does not hold; without sums of its chunks, no tensor can be named");
        status = add(finding, &damage, err);
    }
    file_sum_destroy(sum);
    return status;
}

static enum fsdp_status find_in_file(void *arg, size_t i, struct fsdp_err *err)
{
    struct search *search = arg;
    struct finding *finding = &search->findings[i];
    const struct manifest_file *listed = &search->manifest->files[i];
    struct fsdp_err why = { 0 };
    struct chunk_sum *sums = NULL;
    char path[IO_PATH_BYTES];
    uint64_t size_bytes;
    size_t n_sums;
    enum fsdp_status status;
    int fd;

    OK_OR_RETURN(io_join(path, search->directory, listed->name, err));
    status = io_open_read(search->io, path, &fd, &size_bytes, &why);
    if (status == FSDP_ERR_NOT_FOUND || status == FSDP_ERR_FORMAT)
        return add_reason(finding, listed->name, why.message, err);
    if (status != FSDP_OK)
        return fsdp_fail(err, status, "%s", why.message);
    if (size_bytes != listed->size_bytes) {
        snprintf(why.message, sizeof why.message, "%" PRIu64 " bytes; the manifest says %" PRIu64, size_bytes,
                 listed->size_bytes);
        status = add_reason(finding, listed->name, why.message, err);
        goto done;
    }
    finding->bytes = size_bytes;
    status = chunk_sums_read(search->io, path, size_bytes, &sums, &n_sums, &why);
    if (status == FSDP_OK)
        status = find_in_chunks(search, finding, fd, path, listed, sums, n_sums, err);
    else if (status == FSDP_ERR_NOT_FOUND || status == FSDP_ERR_FORMAT)
        status = find_in_whole(search, finding, fd, path, listed, err);
    else
        fsdp_fail(err, status, "%s", why.message);
done:
    free(sums);
    search->io->close(search->io, fd);
    return status;
}

/* Moves what the threads found into the report. */
static enum fsdp_status collect(const struct search *search, struct damage_report *report,
                                struct fsdp_err *err)
{
    for (size_t i = 0; i < search->manifest->n_files; i++) {
        const struct finding *finding = &search->findings[i];

        report->bytes += finding->bytes;
        for (size_t k = 0; k < finding->n; k++) {
            if (!alloc_room(&report->list, &report->room, report->n, sizeof *report->list))
                return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a list of damage");
            report->list[report->n++] = finding->list[k];
        }
    }
    return FSDP_OK;
}

/*
 * Adds the message of a reader that refused a file as damaged or missing. If `status` is another error,
 * nothing is added and it is returned: the file could not be examined.
 */
static enum fsdp_status add_refusal(struct damage_report *report, const char *file, enum fsdp_status status,
                                    const struct fsdp_err *why, struct fsdp_err *err)
{
    struct finding finding = { .list = report->list, .n = report->n, .room = report->room };
    enum fsdp_status added;

    if (status != FSDP_ERR_FORMAT && status != FSDP_ERR_NOT_FOUND)
        return fsdp_fail(err, status, "%s", why->message);
    added = add_reason(&finding, file, why->message, err);
    report->list = finding.list;
    report->n = finding.n;
    report->room = finding.room;
    return added;
}

static enum fsdp_status find_in_files(struct fsdp_io *io, const char *directory,
                                      const struct manifest *manifest, struct damage_report *report,
                                      struct fsdp_err *err)
{
    struct search search = { .io = io,
                             .directory = directory,
                             .manifest = manifest,
                             .findings = calloc(manifest->n_files + 1, sizeof *search.findings) };
    enum fsdp_status status;

    if (search.findings == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu files", manifest->n_files);
    status = work_run(manifest->n_files, find_in_file, &search, work_threads(), err);
    if (status == FSDP_OK)
        status = collect(&search, report, err);
    for (size_t i = 0; i < manifest->n_files; i++)
        free(search.findings[i].list);
    free(search.findings);
    return status;
}

enum fsdp_status damage_find(struct fsdp_io *io, const char *step_directory, struct damage_report *report,
                             struct fsdp_err *err)
{
    struct contents contents = { 0 };
    struct manifest manifest;
    struct fsdp_err why = { 0 };
    struct io_stat stat;
    enum fsdp_status status;

    *report = (struct damage_report){ 0 };
    if (io->stat(io, step_directory, &stat) < 0 || stat.kind != IO_DIRECTORY)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s is no directory", step_directory);
    status = manifest_read(io, step_directory, &manifest, &why);
    if (status != FSDP_OK)
        return add_refusal(report, MANIFEST_FILE, status, &why, err);
    report->has_manifest = true;
    report->step = manifest.step;
    report->world_size = manifest.world_size;
    status = find_in_files(io, step_directory, &manifest, report, err);
    /* Headers of sound files may still contradict each other, or there may be files that no rank wrote. */
    if (status == FSDP_OK && report->n == 0) {
        status = contents_read(io, step_directory, &contents, &why);
        if (status == FSDP_OK)
            contents_free(&contents);
        else
            status = add_refusal(report, NULL, status, &why, err);
    }
    manifest_free(&manifest);
    return status;
}

void damage_report_free(struct damage_report *report)
{
    free(report->list);
    *report = (struct damage_report){ 0 };
}
