#include "agent/watch/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"

/* Copy a text of the progress page, which need not end with a zero byte, to `out` (size + 1 bytes). */
static const char *copy_words(char *out, const char *words, size_t size)
{
    memcpy(out, words, size);
    out[size] = '\0';
    return out;
}

const char *flight_group_name(const struct fsdp_progress *page, uint32_t number, char *out)
{
    out[0] = '\0';
    return number >= 1 && number <= FSDP_GROUPS
               ? copy_words(out, page->groups[number - 1].name, FSDP_GROUP_NAME_BYTES)
               : out;
}

const char *flight_place_name(struct fsdp_progress *page, uint32_t number, char *out)
{
    out[0] = '\0';
    return number >= 1 && number <= FSDP_PLACES
               ? copy_words(out, fsdp_places(page) + (size_t)(number - 1) * FSDP_PLACE_BYTES,
                            FSDP_PLACE_BYTES)
               : out;
}

/* Add a text; an empty one becomes null. */
static void put_text(struct json_text *out, const char *key, const char *text)
{
    json_field_string(out, key, text[0] == '\0' ? NULL : text);
}

static void put_entry(struct json_text *out, struct fsdp_progress *page,
                      const struct fsdp_flight_entry *entry, uint64_t now_ns)
{
    char words[FLIGHT_NAME_BYTES];
    const uint64_t ended_ns = atomic_load_explicit(&entry->ended_ns, memory_order_acquire);

    json_open(out, NULL, '{');
    json_field(out, "number", "%" PRIu64, atomic_load_explicit(&entry->number, memory_order_relaxed));
    put_text(out, "group",
             flight_group_name(page, atomic_load_explicit(&entry->group, memory_order_relaxed), words));
    json_field(out, "sequence", "%" PRIu64, entry->sequence);
    put_text(out, "kind", copy_words(words, entry->kind, sizeof entry->kind));
    put_text(out, "dtype", copy_words(words, entry->dtype, sizeof entry->dtype));
    put_text(out, "op", copy_words(words, entry->op, sizeof entry->op));
    json_field(out, "bytes", "%" PRIu64, entry->size_bytes);
    put_text(out, "layer",
             flight_place_name(page, atomic_load_explicit(&entry->place, memory_order_relaxed), words));
    json_field(out, "root", entry->root < 0 ? "null" : "%" PRId32, entry->root);
    json_field(out, "began", "%.6f", (double)(int64_t)(now_ns - entry->begun_ns) / 1e9);
    json_field(out, "seconds", ended_ns == 0 ? "null" : "%.6f",
               (double)(int64_t)(ended_ns - entry->begun_ns) / 1e9);
    json_close(out, '}');
}

char *flight_json(const struct flight_source *source, size_t *length)
{
    const uint64_t n = atomic_load_explicit(&source->page->n_collectives, memory_order_acquire);
    const struct fsdp_flight_entry *entries = fsdp_flight(source->page);
    struct json_text out = { 0 };

    json_open(&out, NULL, '{');
    json_field(&out, "time", "%.6f", source->time_s);
    json_field(&out, "generation", "%d", source->generation);
    json_field(&out, "rank", "%d", source->rank);
    json_field(&out, "pid", "%d", source->pid);
    json_field(&out, "n", "%" PRIu64, n);
    json_open(&out, "collectives", '[');
    /*
     * The entries are a ring: the place after the newest entry holds the oldest. An entry that the worker was
     * just writing has another number than expected, and is left out.
     */
    for (uint64_t i = 1; i <= FSDP_FLIGHT_ENTRIES; i++) {
        const uint64_t number = n - FSDP_FLIGHT_ENTRIES + i;
        const struct fsdp_flight_entry *entry = &entries[number % FSDP_FLIGHT_ENTRIES];

        if (number > n || number == 0 || atomic_load_explicit(&entry->number, memory_order_acquire) != number)
            continue;
        put_entry(&out, source->page, entry, source->now_ns);
    }
    json_add(&out, "]}\n");
    if (out.failed)
        json_text_free(&out);
    *length = out.length;
    return out.bytes;
}

enum fsdp_status flight_write(const char *line, size_t length, struct fsdp_io *io, const char *folder,
                              struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    char path[4096];
    int fd;

    if ((size_t)snprintf(path, sizeof path, "%s/collectives.jsonl", folder) >= sizeof path)
        return fsdp_fail(err, FSDP_ERR_IO, "the path of %s is too long", folder);
    fd = io->open(io, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0 || write(fd, line, length) != (ssize_t)length)
        status = file_fail(err, "write", path);
    if (fd >= 0)
        close(fd);
    return status;
}
