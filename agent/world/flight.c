#include "agent/world/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/json_text.h"

/* A field of the page, which need not end with a zero; an empty one is null. */
static void put_words(FILE *out, const char *key, const char *words, size_t size)
{
    char copy[64];

    snprintf(copy, sizeof copy, "%.*s", (int)(size < sizeof copy ? size : sizeof copy - 1), words);
    fprintf(out, ", \"%s\": ", key);
    json_put_text(out, copy[0] == '\0' ? NULL : copy);
}

static void put_entry(FILE *out, const struct fsdp_flight_entry *entry, uint64_t now_ns)
{
    const uint64_t ended_ns = atomic_load_explicit(&entry->ended_ns, memory_order_acquire);

    fprintf(out, "{\"number\": %" PRIu64, atomic_load_explicit(&entry->number, memory_order_relaxed));
    put_words(out, "group", entry->group, sizeof entry->group);
    fprintf(out, ", \"sequence\": %" PRIu64, entry->sequence);
    put_words(out, "kind", entry->kind, sizeof entry->kind);
    put_words(out, "dtype", entry->dtype, sizeof entry->dtype);
    put_words(out, "op", entry->op, sizeof entry->op);
    fprintf(out, ", \"bytes\": %" PRIu64 ", \"root\": ", entry->size_bytes);
    fprintf(out, entry->root < 0 ? "null" : "%" PRId32, entry->root);
    fprintf(out, ", \"began\": %.6f", (double)(int64_t)(now_ns - entry->begun_ns) / 1e9);
    if (ended_ns == 0)
        fputs(", \"seconds\": null}", out);
    else
        fprintf(out, ", \"seconds\": %.6f}", (double)(int64_t)(ended_ns - entry->begun_ns) / 1e9);
}

char *flight_json(const struct flight_source *source, size_t *length)
{
    const uint64_t n = atomic_load_explicit(&source->page->n_collectives, memory_order_acquire);
    const struct fsdp_flight_entry *entries = fsdp_flight(source->page);
    const char *between = "";
    char *text = NULL;
    FILE *out = open_memstream(&text, length);

    if (out == NULL)
        return NULL;
    fprintf(out,
            "{\"time\": %.6f, \"generation\": %d, \"rank\": %d, \"pid\": %d, \"n\": %" PRIu64
            ", \"collectives\": [",
            source->time_s, source->generation, source->rank, source->pid, n);
    /* The place behind the newest holds the oldest. One that was being written has another number, or none. */
    for (uint64_t i = 1; i <= FSDP_FLIGHT_ENTRIES; i++) {
        const uint64_t number = n - FSDP_FLIGHT_ENTRIES + i;
        const struct fsdp_flight_entry *entry = &entries[number % FSDP_FLIGHT_ENTRIES];

        if (number > n || number == 0 || atomic_load_explicit(&entry->number, memory_order_acquire) != number)
            continue;
        fputs(between, out);
        put_entry(out, entry, source->now_ns);
        between = ", ";
    }
    fputs("]}\n", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

enum fsdp_status flight_write(const struct flight_source *source, struct fsdp_io *io, const char *folder,
                              struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    char path[4096];
    size_t length;
    char *line;
    int fd;

    if (atomic_load_explicit(&source->page->n_collectives, memory_order_acquire) == 0)
        return FSDP_OK;
    if ((size_t)snprintf(path, sizeof path, "%s/collectives.jsonl", folder) >= sizeof path)
        return fsdp_fail(err, FSDP_ERR_IO, "the path of %s is too long", folder);
    line = flight_json(source, &length);
    if (line == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the last collectives of rank %d", source->rank);
    fd = io->open(io, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0 || write(fd, line, length) != (ssize_t)length)
        status = fsdp_fail(err, FSDP_ERR_IO, "write %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(line);
    return status;
}
