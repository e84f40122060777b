#include "shard_runtime/checkpoint/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/snapshot_wait.h"

enum {
    PIECE_BYTES = 4 << 20,
    PAGE_BYTES = 4096,
    /* The header and the head of the manifest have numbers in them, which grow by digits. */
    SLACK_BYTES = 64 << 10,
    LOOK_MS = 100,
};

struct snapshot {
    int fd;
    struct fsdp_snapshot_head *head;
    unsigned char *piece; /* (PIECE_BYTES) buffer for shards in a store; NULL: none was needed yet */
};

/* The shards of a rank: those in its file, then those that other ranks save. */
struct image {
    struct safetensors_tensor *shards;
    size_t n_own, n_elsewhere;
    struct json_text header; /* empty if the rank has no shards of its own */
    uint64_t size_bytes, elsewhere_bytes;
};

static void free_image(struct image *image)
{
    json_text_free(&image->header);
    free(image->shards);
}

static enum fsdp_status make_image(struct image *image, const struct shards_save *save,
                                   const struct checkpoint_tensor *tensors, size_t n_tensors,
                                   struct fsdp_err *err)
{
    struct shards_marks marks;

    *image = (struct image){ .shards = calloc(n_tensors + 1, sizeof *image->shards) };
    if (image->shards == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_tensors);
    shards_mark(&marks, save);
    OK_OR_RETURN(
        shards_describe(tensors, n_tensors, save->W, save->rank, false, image->shards, &image->n_own, err));
    OK_OR_RETURN(shards_describe(tensors, n_tensors, save->W, save->rank, true, image->shards + image->n_own,
                                 &image->n_elsewhere, err));
    if (image->n_own > 0)
        OK_OR_RETURN(safetensors_build_header(image->shards, image->n_own, marks.list, SHARDS_MARKS,
                                              SAFETENSORS_ALIGNMENT, &image->header, &image->size_bytes,
                                              err));
    if (image->n_elsewhere > 0) {
        struct json_text unused = { 0 };
        uint64_t with_header = 0;
        const enum fsdp_status status =
            safetensors_build_header(image->shards + image->n_own, image->n_elsewhere, marks.list,
                                     SHARDS_MARKS, 8, &unused, &with_header, err);

        image->elsewhere_bytes = with_header - unused.length;
        json_text_free(&unused);
        return status;
    }
    return FSDP_OK;
}

enum fsdp_status snapshot_measure(struct snapshot_need *need, const struct checkpoint_tensor *tensors,
                                  size_t n_tensors, int W, int rank, uint64_t manifest_bytes,
                                  struct fsdp_err *err)
{
    const struct shards_save save = { 0, 0, W, rank };
    struct image image;
    enum fsdp_status status = make_image(&image, &save, tensors, n_tensors, err);
    uint64_t bytes = 0;

    if (status == FSDP_OK &&
        (__builtin_add_overflow(image.size_bytes, image.elsewhere_bytes, &bytes) ||
         __builtin_add_overflow(bytes, manifest_bytes + SLACK_BYTES + PAGE_BYTES, &bytes) ||
         snapshot_segment_bytes(bytes) == 0))
        status = fsdp_fail(err, FSDP_ERR_ARG, "a snapshot that does not fit 64 bits");
    if (status == FSDP_OK) {
        /*
         * the header has the shards that this rank saves; the offsets of the others follow from this rank's
         * mesh
         */
        *need = (struct snapshot_need){
            .owner = { (uint32_t)rank, (uint32_t)W,
                       XXH3_64bits_withSeed(image.header.bytes, image.header.length, image.elsewhere_bytes) },
            .slot_bytes = bytes / PAGE_BYTES * PAGE_BYTES,
        };
    }
    free_image(&image);
    return status;
}

uint64_t snapshot_missing_bytes(int fd, const struct snapshot_need *need)
{
    const uint64_t wanted = snapshot_segment_bytes(need->slot_bytes);
    struct stat stat;
    uint64_t has;

    if (fstat(fd, &stat) < 0)
        return wanted;
    has = (uint64_t)stat.st_blocks * 512;
    return has < wanted ? wanted - has : 0;
}

enum fsdp_status snapshot_open(struct snapshot **out, int fd, const struct snapshot_need *need,
                               struct fsdp_err *err)
{
    const uint64_t wanted = snapshot_segment_bytes(need->slot_bytes);
    struct snapshot *snapshot = calloc(1, sizeof *snapshot);
    struct stat stat;

    *out = NULL;
    if (snapshot == NULL) {
        close(fd);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory for snapshots");
    }
    snapshot->fd = fd;
    if (fstat(fd, &stat) < 0 || ((uint64_t)stat.st_size < wanted && ftruncate(fd, (off_t)wanted) < 0)) {
        fsdp_fail(err, FSDP_ERR_IO, "%llu bytes for snapshots: %s", (unsigned long long)wanted,
                  strerror(errno));
        snapshot_close(snapshot);
        return FSDP_ERR_IO;
    }
    snapshot->head = mmap(NULL, FSDP_SNAPSHOT_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (snapshot->head == MAP_FAILED) {
        snapshot->head = NULL;
        fsdp_fail(err, FSDP_ERR_NOMEM, "mapping a snapshot's head: %s", strerror(errno));
        snapshot_close(snapshot);
        return FSDP_ERR_NOMEM;
    }
    /*
     * half of the slack is kept: numbers in this manifest may have more digits than when the segment was laid
     * out
     */
    if (!snapshot_fits(snapshot->head, &need->owner, need->slot_bytes - SLACK_BYTES / 2,
                       (uint64_t)stat.st_size < wanted ? wanted : (uint64_t)stat.st_size))
        snapshot_lay_out(snapshot->head, &need->owner, need->slot_bytes);
    *out = snapshot;
    return FSDP_OK;
}

void snapshot_close(struct snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    if (snapshot->head != NULL)
        munmap(snapshot->head, FSDP_SNAPSHOT_HEAD_BYTES);
    close(snapshot->fd);
    free(snapshot->piece);
    free(snapshot);
}

void snapshot_go_back(struct snapshot *snapshot, int64_t step)
{
    const int slot = snapshot_find(snapshot->head, step);

    snapshot_keep_only(snapshot->head,
                       slot < 0 ? (struct snapshot_held){ .step = -1 }
                                : (struct snapshot_held){ step, snapshot->head->slots[slot].generation });
}

bool snapshot_has(const struct snapshot *snapshot, int64_t step)
{
    return snapshot_find(snapshot->head, step) >= 0;
}

bool snapshot_copied(const struct snapshot *snapshot)
{
    return snapshot_is_copied(snapshot->head);
}

bool snapshot_wait_copied(struct snapshot *snapshot)
{
    const uint32_t changes = snapshot_changes(snapshot->head);

    /*
     * The wait has a limit: if the process that copies is killed, its agent ends the copying but wakes no
     * waiting rank.
     */
    if (!snapshot_is_copied(snapshot->head))
        snapshot_wait(snapshot->head, changes, LOOK_MS);
    return snapshot_is_copied(snapshot->head);
}

static enum fsdp_status make_piece(struct snapshot *snapshot, struct fsdp_err *err)
{
    if (snapshot->piece == NULL)
        snapshot->piece = malloc(PIECE_BYTES);
    return snapshot->piece != NULL ? FSDP_OK
                                   : fsdp_fail(err, FSDP_ERR_NOMEM, "%d bytes for a snapshot", PIECE_BYTES);
}

static enum fsdp_status put(const struct snapshot *snapshot, const void *bytes, uint64_t size_bytes,
                            uint64_t offset, struct fsdp_err *err)
{
    return io_write_all(&io_posix, snapshot->fd, bytes, (size_t)size_bytes, offset, "a snapshot", err);
}

static enum fsdp_status get(const struct snapshot *snapshot, void *bytes, uint64_t size_bytes,
                            uint64_t offset, struct fsdp_err *err)
{
    return io_read_all(&io_posix, snapshot->fd, bytes, (size_t)size_bytes, offset, "a snapshot", err);
}

/* Copies one shard to `offset` of the segment; if `loads`, from there into the shard's rows. */
static enum fsdp_status copy_shard(struct snapshot *snapshot, const struct safetensors_tensor *shard,
                                   bool loads, uint64_t offset, struct fsdp_err *err)
{
    const struct rows_store *store = shard->store;
    const uint64_t size_bytes = shard->end - shard->begin;

    /* not const: these are the rows that a caller gave to be loaded into (struct checkpoint_tensor) */
    if (store == NULL && loads)
        return get(snapshot, (void *)(uintptr_t)shard->data, size_bytes, offset, err);
    if (store == NULL)
        return put(snapshot, shard->data, size_bytes, offset, err);
    OK_OR_RETURN(make_piece(snapshot, err));
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t left = size_bytes - done;
        const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;

        if (loads) {
            OK_OR_RETURN(get(snapshot, snapshot->piece, n, offset + done, err));
            OK_OR_RETURN(store->write(store->user, shard->in_store, done, snapshot->piece, n, err));
        } else {
            OK_OR_RETURN(store->read(store->user, shard->in_store, done, snapshot->piece, n, err));
            OK_OR_RETURN(put(snapshot, snapshot->piece, n, offset + done, err));
        }
        done += n;
    }
    return FSDP_OK;
}

/* Copies all shards. `header_bytes` is the length of the header before those of the file at `offset`. */
static enum fsdp_status copy_shards(struct snapshot *snapshot, const struct image *image, bool loads,
                                    uint64_t offset, uint64_t header_bytes, struct fsdp_err *err)
{
    const uint64_t elsewhere = offset + image->size_bytes;

    for (size_t i = 0; i < image->n_own + image->n_elsewhere; i++) {
        const struct safetensors_tensor *shard = &image->shards[i];

        OK_OR_RETURN(copy_shard(snapshot, shard, loads,
                                (i < image->n_own ? offset + header_bytes : elsewhere) + shard->begin, err));
    }
    return FSDP_OK;
}

static enum fsdp_status fill(struct snapshot *snapshot, const struct image *image, const char *manifest,
                             const struct snapshot_parts *parts, const struct fsdp_snapshot_slot *slot,
                             struct fsdp_err *err)
{
    if (parts->size_bytes + parts->elsewhere_bytes + parts->manifest_bytes > slot->capacity)
        return fsdp_fail(err, FSDP_ERR_IO, "the snapshot has grown, and does not fit its slot");
    OK_OR_RETURN(put(snapshot, image->header.bytes, image->header.length, slot->offset, err));
    OK_OR_RETURN(copy_shards(snapshot, image, false, slot->offset, image->header.length, err));
    return put(snapshot, manifest, parts->manifest_bytes,
               slot->offset + parts->size_bytes + parts->elsewhere_bytes, err);
}

enum fsdp_status snapshot_fill(struct snapshot *snapshot, const struct shards_save *save,
                               const struct checkpoint_tensor *tensors, size_t n_tensors,
                               const char *manifest, size_t manifest_bytes, int busy,
                               struct snapshot_filled *filled, struct fsdp_err *err)
{
    const int slot = snapshot_choose(snapshot->head, busy);
    struct image image;
    enum fsdp_status status = make_image(&image, save, tensors, n_tensors, err);
    const struct snapshot_parts parts = { image.size_bytes, image.elsewhere_bytes, manifest_bytes };

    if (status == FSDP_OK) {
        snapshot_begin(snapshot->head, slot);
        status = fill(snapshot, &image, manifest, &parts, &snapshot->head->slots[slot], err);
    }
    if (status == FSDP_OK) {
        *filled = (struct snapshot_filled){ slot, snapshot_complete(snapshot->head, slot, save->step,
                                                                    save->generation, &parts) };
        snapshot_wake(snapshot->head); /* it is copied to another node */
    }
    free_image(&image);
    return status;
}

static enum fsdp_status read_manifest(const struct snapshot *snapshot, const struct fsdp_snapshot_slot *slot,
                                      struct manifest *manifest, struct fsdp_err *err)
{
    char *text = malloc((size_t)slot->manifest_bytes + 1);
    enum fsdp_status status;

    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%llu bytes of a manifest",
                         (unsigned long long)slot->manifest_bytes);
    status = get(snapshot, text, slot->manifest_bytes,
                 slot->offset + slot->size_bytes + slot->elsewhere_bytes, err);
    if (status == FSDP_OK)
        status = manifest_parse_head(manifest, text, (size_t)slot->manifest_bytes, err);
    free(text);
    return status;
}

static enum fsdp_status load(struct snapshot *snapshot, const struct image *image,
                             const struct fsdp_snapshot_slot *slot, struct manifest *manifest,
                             struct fsdp_err *err)
{
    const uint64_t header_bytes = image->header.length;

    if (slot->size_bytes != image->size_bytes || slot->elsewhere_bytes != image->elsewhere_bytes)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the snapshot is of another state");
    OK_OR_RETURN(read_manifest(snapshot, slot, manifest, err));
    if (manifest->step != (uint64_t)slot->step)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the snapshot of step %lld has the manifest of step %llu",
                         (long long)slot->step, (unsigned long long)manifest->step);
    return copy_shards(snapshot, image, true, slot->offset, header_bytes, err);
}

enum fsdp_status snapshot_load(struct snapshot *snapshot, const struct shards_save *save,
                               const struct checkpoint_tensor *tensors, size_t n_tensors,
                               struct manifest *manifest, struct fsdp_err *err)
{
    const int slot = snapshot_find(snapshot->head, save->step);
    struct shards_save saved = *save;
    enum fsdp_status status;
    struct image image;

    *manifest = (struct manifest){ 0 };
    if (slot < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no snapshot of step %lld", (long long)save->step);
    /* the header that is made must equal the slot's, byte for byte */
    saved.generation = snapshot->head->slots[slot].generation;
    status = make_image(&image, &saved, tensors, n_tensors, err);
    if (status == FSDP_OK)
        status = load(snapshot, &image, &snapshot->head->slots[slot], manifest, err);
    free_image(&image);
    if (status != FSDP_OK)
        manifest_free(manifest);
    return status;
}
