#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/world/flight.h"
#include "shard_runtime/comm/flight.h"

static struct fsdp_progress *new_page(void)
{
    struct fsdp_progress *page = aligned_alloc(4096, FSDP_PROGRESS_BYTES);

    memset(page, 0, FSDP_PROGRESS_BYTES);
    return page;
}

static struct fsdp_flight_entry *note(struct fsdp_progress *page, uint64_t sequence)
{
    const struct flight_note call = { .group = "world",
                                      .kind = "reduce_scatter",
                                      .dtype = "float32",
                                      .op = "mean",
                                      .sequence = sequence,
                                      .size_bytes = 4 * sequence,
                                      .root = -1 };

    return flight_begin(page, &call, 1000000000 * sequence);
}

static cJSON *read_page(struct fsdp_progress *page, uint64_t now_ns)
{
    const struct flight_source source = {
        .generation = 2, .rank = 7, .pid = 42, .page = page, .now_ns = now_ns
    };
    size_t length;
    char *text = flight_json(&source, &length);
    cJSON *object = cJSON_Parse(text);

    cr_assert_not_null(object, "%s", text);
    cr_assert(length == strlen(text) && text[length - 1] == '\n');
    cr_assert_null(memchr(text, '\n', length - 1), "one line");
    free(text);
    return object;
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);

    cr_assert(cJSON_IsNumber(item), "%s", key);
    return item->valuedouble;
}

Test(flight, what_began_and_ended_is_read_as_it_was_noted)
{
    struct fsdp_progress *page = new_page();
    const struct flight_note barrier = { .group = "a", .kind = "barrier", .sequence = 1, .root = -1 };
    cJSON *object, *list, *one;

    flight_end(note(page, 5), 5500000000);
    flight_begin(page, &barrier, 6000000000);
    object = read_page(page, 9000000000);
    list = cJSON_GetObjectItem(object, "collectives");

    cr_assert(number(object, "n") == 2 && number(object, "rank") == 7 && number(object, "generation") == 2);
    cr_assert_eq(cJSON_GetArraySize(list), 2);
    one = cJSON_GetArrayItem(list, 0);
    cr_assert_str_eq(cJSON_GetObjectItem(one, "kind")->valuestring, "reduce_scatter");
    cr_assert_str_eq(cJSON_GetObjectItem(one, "op")->valuestring, "mean");
    cr_assert(number(one, "sequence") == 5 && number(one, "bytes") == 20 && number(one, "began") == 4);
    cr_assert_float_eq(number(one, "seconds"), 0.5, 1e-9);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(one, "root")));
    one = cJSON_GetArrayItem(list, 1);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(one, "seconds")), "it never ended");
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(one, "dtype")));
    cr_assert(number(one, "began") == 3);
    cJSON_Delete(object);
    free(page);
}

Test(flight, the_last_ones_are_kept_in_order_however_many_there_were)
{
    for (uint64_t n = 1; n <= 3 * FSDP_FLIGHT_ENTRIES; n += n < 4 ? 1 : 63) {
        struct fsdp_progress *page = new_page();
        const int listed = n < FSDP_FLIGHT_ENTRIES ? (int)n : FSDP_FLIGHT_ENTRIES;
        cJSON *object, *list;

        for (uint64_t i = 1; i <= n; i++)
            flight_end(note(page, i), 1000000000 * i + 1);
        object = read_page(page, 1000000000 * n);
        list = cJSON_GetObjectItem(object, "collectives");
        cr_assert_eq(cJSON_GetArraySize(list), listed);
        for (int i = 0; i < listed; i++)
            cr_assert(number(cJSON_GetArrayItem(list, i), "number") ==
                      (double)(n - (uint64_t)listed) + i + 1);
        cJSON_Delete(object);
        free(page);
    }
}

Test(flight, one_that_was_being_written_is_left_out)
{
    struct fsdp_progress *page = new_page();
    cJSON *object;

    for (uint64_t i = 1; i <= FSDP_FLIGHT_ENTRIES + 1; i++)
        note(page, i);
    atomic_store(&fsdp_flight(page)[1].number, 0); /* of the newest, as if its writer had died */
    object = read_page(page, 1);
    cr_assert_eq(cJSON_GetArraySize(cJSON_GetObjectItem(object, "collectives")), FSDP_FLIGHT_ENTRIES - 1);
    cJSON_Delete(object);
    free(page);
}

Test(flight, whatever_the_page_holds_becomes_one_object)
{
    struct fsdp_progress *page = new_page();
    uint64_t state = 88172645463325252;

    for (int round = 0; round < 50; round++) {
        unsigned char *bytes = (unsigned char *)page;

        for (size_t i = 0; i < FSDP_PROGRESS_BYTES; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            bytes[i] = (unsigned char)state;
        }
        for (uint64_t i = 0; i < FSDP_FLIGHT_ENTRIES; i++)
            atomic_store(&fsdp_flight(page)[i].number, 512 + i);
        atomic_store(&page->n_collectives, 512 + (uint64_t)round % 256);
        cJSON_Delete(read_page(page, state));
    }
    free(page);
}

Test(flight, lines_are_added_and_a_worker_without_collectives_leaves_no_file, .timeout = 100)
{
    char folder[] = "/tmp/fsdp-flight-XXXXXX", path[64];
    struct fsdp_progress *page = new_page();
    const struct flight_source source = { .page = page };
    struct fsdp_err err = { 0 };
    struct stat stat;
    off_t first;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/collectives.jsonl", folder);
    cr_assert(flight_write(&source, &io_posix, folder, &err) == FSDP_OK);
    cr_assert(lstat(path, &stat) < 0, "nothing was noted");
    note(page, 1);
    cr_assert(flight_write(&source, &io_posix, folder, &err) == FSDP_OK && lstat(path, &stat) == 0);
    first = stat.st_size;
    cr_assert(flight_write(&source, &io_posix, folder, &err) == FSDP_OK && lstat(path, &stat) == 0);
    cr_assert(stat.st_size == 2 * first);
    unlink(path);
    cr_assert(mkfifo(path, 0600) == 0 && flight_write(&source, &io_posix, folder, &err) == FSDP_ERR_IO,
              "a FIFO that nobody reads is not waited for");
    unlink(path);
    rmdir(folder);
    cr_assert(flight_write(&source, &io_posix, folder, &err) == FSDP_ERR_IO, "the folder is gone");
    cr_assert_not_null(strstr(err.message, "collectives.jsonl"));
    free(page);
}
