#include "agent/snapshot/copy_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/snapshot_wait.h"

enum { OFFER_MAGIC = 0x43495346 /* "FSIC" */, PIECE_BYTES = 1 << 20 };

static const char words[] = "a copy of a snapshot";

/* What follows the bytes. */
struct trailer {
    uint32_t counts; /* 0: the bytes do not count, because the slot was filled again while they were read */
    uint32_t reserved;
    uint64_t checksum[2];
};

enum fsdp_status copy_segment_map(struct copy_segment *segment, int fd, struct fsdp_err *err)
{
    struct stat stat;
    void *head;

    if (fstat(fd, &stat) < 0 ||
        (stat.st_size < FSDP_SNAPSHOT_HEAD_BYTES && ftruncate(fd, FSDP_SNAPSHOT_HEAD_BYTES) < 0))
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", words, strerror(errno));
    head = mmap(NULL, FSDP_SNAPSHOT_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "%s: mmap: %s", words, strerror(errno));
    *segment = (struct copy_segment){ fd, head };
    return FSDP_OK;
}

static uint64_t size_of(const struct copy_segment *segment)
{
    struct stat stat;

    return fstat(segment->fd, &stat) < 0 ? 0 : (uint64_t)stat.st_size;
}

static uint64_t bytes_of(const struct copy_offer *offer)
{
    const struct snapshot_parts *parts = &offer->filling.parts;

    return parts->size_bytes + parts->elsewhere_bytes + parts->manifest_bytes;
}

bool copy_offer_of(struct copy_offer *offer, const struct copy_segment *segment, int slot)
{
    const struct fsdp_snapshot_head *head = segment->head;

    *offer = (struct copy_offer){ .magic = OFFER_MAGIC,
                                  .slot = (uint32_t)slot,
                                  .owner = { head->rank, head->world_size, head->layout_hash },
                                  .capacity = head->slots[slot].capacity,
                                  .filling = snapshot_filling_of(head, slot) };
    return snapshot_is(head, slot, offer->filling.number, size_of(segment)) && copy_offer_is_sound(offer);
}

bool copy_offer_is_sound(const struct copy_offer *offer)
{
    const struct snapshot_parts *parts = &offer->filling.parts;
    uint64_t bytes;

    return offer->magic == OFFER_MAGIC && offer->slot < FSDP_SNAPSHOT_SLOTS && offer->filling.step >= 0 &&
           offer->filling.number > 0 && offer->owner.rank < offer->owner.world_size &&
           snapshot_segment_bytes(offer->capacity) > 0 &&
           !__builtin_add_overflow(parts->size_bytes, parts->elsewhere_bytes, &bytes) &&
           !__builtin_add_overflow(bytes, parts->manifest_bytes, &bytes) && bytes <= offer->capacity;
}

/* Is the segment laid out for the snapshot that is offered? */
static bool fits(const struct copy_segment *segment, const struct copy_offer *offer)
{
    return snapshot_fits(segment->head, &offer->owner, offer->capacity, size_of(segment)) &&
           segment->head->slots[offer->slot].capacity == offer->capacity;
}

bool copy_has(const struct copy_segment *segment, const struct copy_offer *offer)
{
    const struct snapshot_filling has = snapshot_filling_of(segment->head, (int)offer->slot);

    return fits(segment, offer) &&
           snapshot_is(segment->head, (int)offer->slot, has.number, size_of(segment)) &&
           has.step == offer->filling.step && has.generation == offer->filling.generation;
}

uint64_t copy_missing_bytes(const struct copy_segment *segment, const struct copy_offer *offer)
{
    const uint64_t wanted = snapshot_segment_bytes(offer->capacity);
    struct stat stat;
    uint64_t has;

    if (fstat(segment->fd, &stat) < 0)
        return wanted;
    has = (uint64_t)stat.st_blocks * 512;
    return has < wanted ? wanted - has : 0;
}

/* Moves the bytes of a slot, `piece` by piece, and computes their checksum. */
static enum fsdp_status move(struct copy_stream *stream, const struct copy_segment *segment, bool sends,
                             uint64_t offset, uint64_t n_bytes, void *piece, uint64_t checksum[2],
                             struct fsdp_err *err)
{
    XXH3_state_t *hash = XXH3_createState();
    enum fsdp_status status = FSDP_OK;
    XXH128_hash_t sum;

    if (hash == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    XXH3_128bits_reset(hash);
    for (uint64_t done = 0; status == FSDP_OK && done < n_bytes;) {
        const size_t n = n_bytes - done < PIECE_BYTES ? (size_t)(n_bytes - done) : PIECE_BYTES;

        if (sends)
            status = io_read_all(&io_posix, segment->fd, piece, n, offset + done, words, err);
        else
            status = copy_stream_receive(stream, piece, n, err);
        if (status == FSDP_OK)
            XXH3_128bits_update(hash, piece, n);
        if (status == FSDP_OK)
            status = sends ? copy_stream_send(stream, piece, n, err)
                           : io_write_all(&io_posix, segment->fd, piece, n, offset + done, words, err);
        done += n;
    }
    sum = XXH3_128bits_digest(hash);
    checksum[0] = sum.low64;
    checksum[1] = sum.high64;
    XXH3_freeState(hash);
    return status;
}

static enum fsdp_status send_bytes(struct copy_stream *stream, const struct copy_segment *segment,
                                   const struct copy_offer *offer, void *piece, bool *sent,
                                   struct fsdp_err *err)
{
    const int slot = (int)offer->slot;
    const uint64_t *known = offer->filling.checksum;
    struct trailer trailer = { 0 };

    OK_OR_RETURN(move(stream, segment, true, segment->head->slots[slot].offset, bytes_of(offer), piece,
                      trailer.checksum, err));
    /*
     * Bytes that were themselves copied from another node already have a checksum. It is compared, so that
     * damage since then is noticed.
     */
    if (known[0] != 0 || known[1] != 0)
        memcpy(trailer.checksum, known, sizeof trailer.checksum);
    trailer.counts = snapshot_is(segment->head, slot, offer->filling.number, size_of(segment));
    *sent = trailer.counts != 0;
    return copy_stream_send(stream, &trailer, sizeof trailer, err);
}

enum fsdp_status copy_image_send(struct copy_stream *stream, const struct copy_segment *segment,
                                 const struct copy_offer *offer, bool *sent, struct fsdp_err *err)
{
    void *piece = malloc(PIECE_BYTES);
    enum fsdp_status status;

    *sent = false;
    if (piece == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    status = send_bytes(stream, segment, offer, piece, sent, err);
    free(piece);
    return status;
}

static enum fsdp_status receive_bytes(struct copy_stream *stream, const struct copy_segment *segment,
                                      const struct copy_offer *offer, void *piece, struct fsdp_err *err)
{
    struct snapshot_filling filling = offer->filling;
    struct trailer trailer;

    OK_OR_RETURN(move(stream, segment, false, segment->head->slots[offer->slot].offset, bytes_of(offer),
                      piece, filling.checksum, err));
    OK_OR_RETURN(copy_stream_receive(stream, &trailer, sizeof trailer, err));
    if (trailer.counts == 0)
        return fsdp_fail(err, FSDP_ERR_MISMATCH, "the snapshot was replaced while it was copied");
    if (memcmp(trailer.checksum, filling.checksum, sizeof trailer.checksum) != 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s has another checksum than what was sent", words);
    snapshot_settle(segment->head, (int)offer->slot, &filling);
    snapshot_wake(segment->head); /* it may have to be copied on */
    return FSDP_OK;
}

enum fsdp_status copy_image_receive(struct copy_stream *stream, const struct copy_segment *segment,
                                    const struct copy_offer *offer, struct fsdp_err *err)
{
    const uint64_t wanted = snapshot_segment_bytes(offer->capacity);
    void *piece = malloc(PIECE_BYTES);
    enum fsdp_status status;

    if (piece == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    if (size_of(segment) < wanted && ftruncate(segment->fd, (off_t)wanted) < 0) {
        free(piece);
        return fsdp_fail(err, FSDP_ERR_IO, "%s: %s", words, strerror(errno));
    }
    if (!fits(segment, offer))
        snapshot_lay_out(segment->head, &offer->owner, offer->capacity);
    snapshot_begin(segment->head, (int)offer->slot);
    status = receive_bytes(stream, segment, offer, piece, err);
    free(piece);
    return status;
}
