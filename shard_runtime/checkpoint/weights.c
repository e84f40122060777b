#include "shard_runtime/checkpoint/weights.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/checkpoint/reshard.h"
#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/f16.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/weights.h"

static const char optimizer_prefix[] = "optimizer.";

/* State while the wanted tensors are searched and the report is written. */
struct matching {
    const struct contents *contents;
    const struct checkpoint_tensor *tensors;
    size_t n_tensors;
    int64_t *found; /* (n_tensors) index of each in the contents; -1: not loaded */
    bool *wanted;   /* (one per tensor in the contents) true if wanted */
    const struct weights_names *names;
    bool out_of_memory;
    struct weights_report *report;
    FILE *lines;
};

static void put_shape(FILE *out, const uint64_t *shape, size_t n_dims)
{
    fputc('(', out);
    for (size_t d = 0; d < n_dims; d++)
        fprintf(out, "%s%llu", d == 0 ? "" : ", ", (unsigned long long)shape[d]);
    fputc(')', out);
}

static bool can_convert(enum fsdp_dtype from, enum fsdp_dtype to)
{
    return from == to || (to == FSDP_F32 && (from == FSDP_BF16 || from == FSDP_F16 || from == FSDP_F64));
}

static bool fits(const struct checkpoint_tensor *wanted, const struct manifest_tensor *there)
{
    return wanted->n_dims == there->n_dims && can_convert(there->dtype, wanted->dtype) &&
           memcmp(wanted->shape, there->shape, wanted->n_dims * sizeof *wanted->shape) == 0;
}

static const char *type_name(enum fsdp_dtype dtype)
{
    return dtype == WEIGHTS_UNKNOWN_DTYPE ? "a type that is not read" : fsdp_dtype_name(dtype);
}

/* Looks for a tensor under its own name, then with names->prefix before it. Returns -1 if it is not found. */
static int64_t find(struct matching *m, const char *name)
{
    int64_t found = contents_find(m->contents, name);
    char *longer;

    if (found >= 0 || m->names->prefix == NULL)
        return found;
    longer = alloc_printf("%s%s", m->names->prefix, name);
    if (longer == NULL) {
        m->out_of_memory = true;
        return -1;
    }
    found = contents_find(m->contents, longer);
    free(longer);
    return found;
}

static bool is_passed_over(const struct weights_names *names, const char *name)
{
    const size_t length = names->prefix != NULL ? strlen(names->prefix) : 0;

    if (length > 0 && strncmp(name, names->prefix, length) == 0)
        name += length;
    for (size_t i = 0; i < names->n_passed_over; i++)
        if (fnmatch(names->passed_over[i], name, 0) == 0)
            return true;
    return false;
}

static void match_one(struct matching *m, size_t i)
{
    const struct checkpoint_tensor *tensor = &m->tensors[i];
    const int64_t found = find(m, tensor->name);
    const struct manifest_tensor *there = found < 0 ? NULL : &m->contents->manifest.tensors[found];

    m->found[i] = -1;
    if (there == NULL) {
        m->report->n_missing++;
        fprintf(m->lines, "missing %s\n", tensor->name);
        return;
    }
    m->wanted[found] = true;
    if (!fits(tensor, there)) {
        m->report->n_mismatched++;
        fprintf(m->lines, "mismatched %s: ", tensor->name);
        put_shape(m->lines, tensor->shape, tensor->n_dims);
        fprintf(m->lines, " %s here, ", type_name(tensor->dtype));
        put_shape(m->lines, there->shape, there->n_dims);
        fprintf(m->lines, " %s there\n", type_name(there->dtype));
        return;
    }
    m->found[i] = found;
    m->report->n_loaded++;
}

static void match_all(struct matching *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        match_one(m, i);
    for (size_t t = 0; t < m->contents->manifest.n_tensors; t++) {
        const char *name = m->contents->manifest.tensors[t].name;

        if (m->wanted[t] || strncmp(name, optimizer_prefix, sizeof optimizer_prefix - 1) == 0 ||
            is_passed_over(m->names, name))
            continue;
        m->report->n_unexpected++;
        fprintf(m->lines, "unexpected %s\n", name);
    }
}

/*
 * Returns an error if the report does not allow loading. The message gives the counts and the report's first
 * line.
 */
static enum fsdp_status judge(const struct weights_report *report, bool strict, struct fsdp_err *err)
{
    const bool refused = report->n_mismatched > 0 || (strict && report->n_missing + report->n_unexpected > 0);

    if (!refused)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_MISMATCH, "%zu missing, %zu unexpected, %zu mismatched: %.*s",
                     report->n_missing, report->n_unexpected, report->n_mismatched,
                     (int)strcspn(report->lines, "\n"), report->lines);
}

static void convert(float *to, const unsigned char *from, enum fsdp_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        double wide;

        if (dtype == FSDP_F64) {
            memcpy(&wide, from + 8 * i, sizeof wide);
            to[i] = (float)wide;
        } else {
            memcpy(&half, from + 2 * i, sizeof half);
            to[i] = dtype == FSDP_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
        }
    }
}

static enum fsdp_status read_pieces(struct fsdp_io *io, const char *directory,
                                    const struct contents *contents, const struct reshard_want *want,
                                    struct fsdp_err *err)
{
    struct reshard_read *reads;
    enum fsdp_status status;
    size_t n_reads;

    status = reshard_plan(contents, want, 1, &reads, &n_reads, err);
    for (size_t i = 0; i < n_reads && status == FSDP_OK; i++) {
        char path[IO_PATH_BYTES];
        int fd;

        status = contents_open_file(io, contents, reads[i].file, directory, path, &fd, err);
        if (status != FSDP_OK)
            break;
        status = io_read_all(io, fd, reads[i].to, (size_t)reads[i].size_bytes, reads[i].offset, path, err);
        io->close(io, fd);
    }
    free(reads);
    return status;
}

/*
 * Reads this rank's part of one tensor. The data goes through a buffer if its type changes or if a store
 * keeps the tensor. If both are true, it goes through two buffers.
 */
static enum fsdp_status read_tensor(struct fsdp_io *io, const char *directory,
                                    const struct contents *contents, const struct checkpoint_tensor *tensor,
                                    int64_t found, int W, int rank, struct fsdp_err *err)
{
    const struct manifest_tensor *there = &contents->manifest.tensors[found];
    struct reshard_want want = { .tensor = (uint32_t)found };
    enum fsdp_status status = checkpoint_tensor_box(tensor, W, rank, &want.box, err);
    const bool converts = there->dtype != tensor->dtype, elsewhere = tensor->store != NULL;
    unsigned char *staged = NULL;
    float *converted = NULL;
    size_t n_elems, n_bytes;

    if (status != FSDP_OK || box_elems(&want.box) == 0)
        return status;
    n_elems = (size_t)box_elems(&want.box);
    n_bytes = n_elems * fsdp_dtype_size(there->dtype);
    want.to = tensor->rows;
    if (converts || elsewhere)
        want.to = staged = malloc(n_bytes);
    if (converts && elsewhere)
        converted = malloc(n_elems * sizeof *converted);
    if (want.to == NULL || (converts && elsewhere && converted == NULL))
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "%zu bytes of %.200s", n_bytes, tensor->name);
    if (status == FSDP_OK)
        status = read_pieces(io, directory, contents, &want, err);
    if (status == FSDP_OK && converts)
        convert(elsewhere ? converted : tensor->rows, staged, there->dtype, n_elems);
    if (status == FSDP_OK && elsewhere)
        status = tensor->store->write(tensor->store->user, tensor->in_store, 0,
                                      converts ? (const void *)converted : staged,
                                      n_elems * fsdp_dtype_size(tensor->dtype), err);
    free(converted);
    free(staged);
    return status;
}

enum fsdp_status weights_load(struct fsdp_io *io, const char *path, int W, int rank,
                              const struct checkpoint_tensor *tensors, size_t n_tensors, bool strict,
                              const struct weights_names *names, struct weights_report *report, bool *filled,
                              struct fsdp_err *err)
{
    char directory[IO_PATH_BYTES];
    struct contents contents;
    static const struct weights_names as_ours = { 0 };
    struct matching m = { .contents = &contents,
                          .tensors = tensors,
                          .n_tensors = n_tensors,
                          .names = names != NULL ? names : &as_ours,
                          .report = report };
    enum fsdp_status status = FSDP_OK;
    size_t n_lines;

    *report = (struct weights_report){ 0 };
    io = io == NULL ? &io_anywhere : io;
    OK_OR_RETURN(weights_list(io, path, &contents, directory, err));
    m.found = calloc(n_tensors + 1, sizeof *m.found);
    m.wanted = calloc(contents.manifest.n_tensors + 1, sizeof *m.wanted);
    m.lines = open_memstream(&report->lines, &n_lines);
    if (m.found == NULL || m.wanted == NULL || m.lines == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_tensors);
        if (m.lines != NULL)
            fclose(m.lines);
        goto done;
    }
    match_all(&m);
    if (fclose(m.lines) != 0 || m.out_of_memory)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for the names of tensors");
    if (status == FSDP_OK)
        status = judge(report, strict, err);
    for (size_t i = 0; i < n_tensors && status == FSDP_OK; i++)
        if (m.found[i] >= 0)
            status = read_tensor(io, directory, &contents, &tensors[i], m.found[i], W, rank, err);
    for (size_t i = 0; i < n_tensors && filled != NULL; i++)
        filled[i] = m.found[i] >= 0;
done:
    if (status != FSDP_OK)
        fsdp_wrap(err, "weights from %s", path);
    free(m.found);
    free(m.wanted);
    contents_free(&contents);
    return status;
}
