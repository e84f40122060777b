/*
 * Identifies the data of this run. The data must be the same on every node, and each checkpoint records it.
 *
 *   1. Local rank 0 of each node computes the fingerprint of the data file, once in a launch. It puts the
 *      result at FSDP_LINK_KEPT_KEY; the agent hands it to the workers of the next generation.
 *   2. In a later generation, local rank 0 takes the fingerprint from there if the file is unchanged: same
 *      device, inode, length and time of change. Otherwise it reads the file again.
 *   3. All ranks compare what they found. From then on rank 0 has the fingerprint of the data of every node.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "shard_runtime/comm/link_client.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/job/schema.h"
#include "shard_runtime/shardfile/data_record.h"
#include "shard_runtime/trainer/trainer.h"

/* The value that a node keeps for its next generation. */
struct kept_data {
    struct fingerprint bytes;
    uint64_t device, inode;
    int64_t changed_s, changed_ns; /* st_ctim of the file, which no program can set */
};
_Static_assert(sizeof(struct kept_data) <= FSDP_LINK_KEPT_BYTES, "no room for it in a hello");

static bool is_of_file(const struct kept_data *kept, const struct kept_data *file, uint64_t size_bytes)
{
    return kept->bytes.size_bytes == size_bytes && kept->device == file->device &&
           kept->inode == file->inode && kept->changed_s == file->changed_s &&
           kept->changed_ns == file->changed_ns;
}

/* Steps 1 and 2: finds the fingerprint of the data file on this node. */
static enum fsdp_status find_fingerprint(struct trainer *trainer, struct fsdp_err *err)
{
    struct link *link = context_link(trainer->context);
    const struct fsdp_link_hello *hello = link_hello(link);
    /* one token is one byte, because the byte tokenizer is the only one */
    const uint64_t size_bytes = tokens_count(trainer->tokens);
    const int fd = tokens_fd(trainer->tokens);
    struct kept_data file = { 0 }, kept = { 0 };
    enum fsdp_status status;
    struct stat info;

    if (fstat(fd, &info) != 0)
        return file_fail(err, "data file", trainer->job->data.path);
    file.device = (uint64_t)info.st_dev;
    file.inode = (uint64_t)info.st_ino;
    file.changed_s = (int64_t)info.st_ctim.tv_sec;
    file.changed_ns = (int64_t)info.st_ctim.tv_nsec;
    if (hello->kept_bytes == sizeof kept)
        memcpy(&kept, hello->kept, sizeof kept);
    if (hello->kept_bytes == sizeof kept && is_of_file(&kept, &file, size_bytes)) {
        trainer->data.bytes = kept.bytes;
        return FSDP_OK;
    }
    status = fingerprint_read(context_files(trainer->context), fd, size_bytes, trainer->job->data.path,
                              &trainer->data.bytes, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "data file");
        return status;
    }
    file.bytes = trainer->data.bytes;
    return fsdp_context_alone(trainer->context)
               ? FSDP_OK
               : link_put(link, FSDP_LINK_KEPT_KEY, &file, sizeof file, -1, err);
}

/*
 * Step 3: compares the data of all ranks, and fails if they differ. If nodes had different data, some samples
 * would be used twice and others never.
 */
static enum fsdp_status compare_nodes(struct trainer *trainer, struct fsdp_err *err)
{
    const int64_t n = (int64_t)tokens_count(trainer->tokens);
    /*
     * If all ranks have the same x, the largest x is x, and the largest ~x is ~x. A rank that computed no
     * fingerprint gives the lowest value for both.
     */
    int64_t most[6] = { n, ~n, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN };

    for (int i = 0; i < 2 && fsdp_context_local_rank(trainer->context) == 0; i++) {
        memcpy(&most[2 + 2 * i], &trainer->data.bytes.checksum[i], sizeof *most);
        most[3 + 2 * i] = ~most[2 + 2 * i];
    }
    OK_OR_RETURN(
        fsdp_all_reduce(fsdp_context_comm(trainer->context), most, 6, FSDP_I64, FSDP_MAX, NULL, err));
    if (most[0] != ~most[1])
        return fsdp_fail(err, FSDP_ERR_MISMATCH,
                         "data file %s has %" PRId64 " tokens for one rank and %" PRId64
                         " for another: it must be the same on every node",
                         trainer->job->data.path, ~most[1], most[0]);
    if (most[2] != ~most[3] || most[4] != ~most[5])
        return fsdp_fail(err, FSDP_ERR_MISMATCH,
                         "data file %s has %" PRId64
                         " tokens on every node, but not the same ones: it must be the same on every node",
                         trainer->job->data.path, n);
    return FSDP_OK;
}

enum fsdp_status trainer_identify_data(struct trainer *trainer, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    char word[JOB_KEY_PATH_BYTES];

    trainer->data.seq = trainer->job->model.seq;
    (void)job_list_word(job_key_find("data", "order")->choices, (int)trainer->job->data.order, word);
    snprintf(trainer->data.order, sizeof trainer->data.order, "%.15s", word);
    if (fsdp_context_local_rank(trainer->context) == 0)
        status = find_fingerprint(trainer, err);
    OK_OR_RETURN(trainer_agree(trainer, status, err));
    OK_OR_RETURN(trainer_agree(trainer, compare_nodes(trainer, err), err));
    data_record_text(&trainer->data, trainer->data_json);
    context_set_checkpoint_extra(trainer->context, trainer->data_json);
    return FSDP_OK;
}
