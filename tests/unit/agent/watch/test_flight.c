#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/watch/flight.h"
#include "shard_runtime/comm/flight.h"
#include "tests/unit/agent/watch/wild_page.h"

static struct fsdp_progress *page;
static cJSON *object; /* the last that was read of it */
static uint32_t world_group;

static void new_page(void)
{
    page = aligned_alloc(4096, FSDP_PROGRESS_BYTES);
    memset(page, 0, FSDP_PROGRESS_BYTES);
    world_group = flight_add_group(page, &(struct flight_group){ "world", 2, 0, 1 });
}

static void free_page(void)
{
    cJSON_Delete(object);
    object = NULL;
    free(page);
}

TestSuite(flight, .init = new_page, .fini = free_page, .timeout = 100);

static struct fsdp_flight_entry *note(uint64_t sequence)
{
    const struct flight_note call = { .group = world_group,
                                      .kind = "reduce_scatter",
                                      .dtype = "float32",
                                      .op = "mean",
                                      .sequence = sequence,
                                      .size_bytes = 4 * sequence,
                                      .root = -1 };

    return flight_begin(page, &call, 1000000000 * sequence);
}

/* Returns the list of collectives. */
static cJSON *read_page(uint64_t now_ns)
{
    const struct flight_source source = {
        .generation = 2, .rank = 7, .pid = 42, .page = page, .now_ns = now_ns
    };
    size_t length;
    char *text = flight_json(&source, &length);

    cJSON_Delete(object);
    object = cJSON_Parse(text);
    cr_assert_not_null(object, "%s", text);
    cr_assert(length == strlen(text) && text[length - 1] == '\n');
    cr_assert_null(memchr(text, '\n', length - 1), "one line");
    free(text);
    return cJSON_GetObjectItem(object, "collectives");
}

static double number(const cJSON *of, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(of, key);

    cr_assert(cJSON_IsNumber(item), "%s", key);
    return item->valuedouble;
}

Test(flight, what_began_and_ended_is_read_as_it_was_noted)
{
    const struct flight_note barrier = { .kind = "barrier", .sequence = 1, .root = -1 };
    cJSON *list, *one;

    flight_end(page, note(5), 5500000000);
    flight_begin(page, &barrier, 6000000000);
    list = read_page(9000000000);

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
}

Test(flight, the_last_ones_are_kept_in_order_however_many_there_were)
{
    for (uint64_t n = 1; n <= 3 * FSDP_FLIGHT_ENTRIES; n += n < 4 ? 1 : 63) {
        const int listed = n < FSDP_FLIGHT_ENTRIES ? (int)n : FSDP_FLIGHT_ENTRIES;
        cJSON *list;

        free_page();
        new_page();
        for (uint64_t i = 1; i <= n; i++)
            flight_end(page, note(i), 1000000000 * i + 1);
        list = read_page(1000000000 * n);
        cr_assert_eq(cJSON_GetArraySize(list), listed);
        for (int i = 0; i < listed; i++)
            cr_assert(number(cJSON_GetArrayItem(list, i), "number") ==
                      (double)(n - (uint64_t)listed) + i + 1);
    }
}

Test(flight, a_group_is_named_in_full_and_a_layer_by_the_end_of_its_name)
{
    static const char name[] = "tensor_parallel_of_a_mesh.with_a_long_name.12.7";
    static const char layer[] = "model.decoder.layers.117.feed_forward.experts.31.down_projection.weight";
    struct flight_note call = { .kind = "all_reduce", .sequence = 9, .root = -1 };
    const cJSON *one;

    call.group = flight_add_group(page, &(struct flight_group){ name, 4, 3, 2 });
    call.place = flight_add_place(page, layer);
    flight_end(page, flight_begin(page, &call, 1), 2);
    call.sequence = 10;
    flight_begin(page, &call, 3);
    one = cJSON_GetArrayItem(read_page(9), 1);

    cr_assert_str_eq(cJSON_GetObjectItem(one, "group")->valuestring, name);
    cr_assert_str_eq(cJSON_GetObjectItem(one, "layer")->valuestring,
                     layer + strlen(layer) - (FSDP_PLACE_BYTES - 1));
    cr_assert(page->groups[call.group - 1].begun == 10 && page->groups[call.group - 1].ended == 9);
    cr_assert_eq(flight_add_place(page, layer), call.place, "a name is there once");
}

/* A job of many groups or layers loses names, and nothing else. */
Test(flight, what_has_no_room_on_the_page_has_no_name)
{
    struct flight_note call = { .kind = "barrier", .root = -1 };
    char name[16];
    const cJSON *one;

    for (int i = 0; i <= FSDP_PLACES; i++) {
        snprintf(name, sizeof name, "%d", i);
        call.place = flight_add_place(page, name);
        call.group = flight_add_group(page, &(struct flight_group){ name, 2, 0, 1 });
    }
    flight_end(page, flight_begin(page, &call, 1), 2);
    one = cJSON_GetArrayItem(read_page(9), 0);

    cr_assert(call.place == 0 && call.group == FSDP_GROUPS);
    cr_assert(cJSON_IsNull(cJSON_GetObjectItem(one, "layer")) &&
              cJSON_IsNull(cJSON_GetObjectItem(one, "group")));
}

Test(flight, one_that_was_being_written_is_left_out)
{
    for (uint64_t i = 1; i <= FSDP_FLIGHT_ENTRIES + 1; i++)
        note(i);
    atomic_store(&fsdp_flight(page)[1].number, 0); /* of the newest, as if its writer had died */
    cr_assert_eq(cJSON_GetArraySize(read_page(1)), FSDP_FLIGHT_ENTRIES - 1);
}

Test(flight, whatever_the_page_holds_becomes_one_object)
{
    uint64_t state = 88172645463325252;

    for (int round = 0; round < 50; round++) {
        wild_page_fill(page, &state);
        for (uint64_t i = 0; i < FSDP_FLIGHT_ENTRIES; i++)
            atomic_store(&fsdp_flight(page)[i].number, 512 + i);
        atomic_store(&page->n_collectives, 512 + (uint64_t)round % 256);
        read_page(state);
    }
}

Test(flight, lines_are_added_and_no_file_is_waited_for)
{
    char folder[] = "/tmp/fsdp-flight-XXXXXX", path[64];
    const struct flight_source source = { .page = page };
    struct fsdp_err err = { 0 };
    struct stat stat;
    size_t length;
    char *line;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/collectives.jsonl", folder);
    note(1);
    line = flight_json(&source, &length);
    for (int i = 1; i <= 2; i++) {
        cr_assert(flight_write(line, length, &io_posix, folder, &err) == FSDP_OK && lstat(path, &stat) == 0);
        cr_assert(stat.st_size == i * (off_t)length);
    }
    unlink(path);
    cr_assert(mkfifo(path, 0600) == 0 && flight_write(line, length, &io_posix, folder, &err) == FSDP_ERR_IO,
              "a FIFO that nobody reads is not waited for");
    unlink(path);
    rmdir(folder);
    cr_assert(flight_write(line, length, &io_posix, folder, &err) == FSDP_ERR_IO, "the folder is gone");
    cr_assert_not_null(strstr(err.message, "collectives.jsonl"));
    free(line);
}
