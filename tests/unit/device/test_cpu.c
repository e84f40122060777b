#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "shard_runtime/device/cpu_name.h"
#include "shard_runtime/device/device.h"

static struct device device;

static void open_cpu(void)
{
    cr_assert(eq(int, device_open(&device, &(struct device_config){ .name = "cpu", .local_rank = 3 }, NULL),
                 FSDP_OK));
}

static void close_cpu(void)
{
    device_close(&device);
}

TestSuite(device_cpu, .init = open_cpu, .fini = close_cpu);

static enum fsdp_status open_named(struct device *other, const char *name, int local_rank,
                                   struct fsdp_err *err)
{
    return device_open(other, &(struct device_config){ .name = name, .local_rank = local_rank }, err);
}

Test(device_cpu, opens_by_name_and_by_auto)
{
    struct device other;

    cr_assert(eq(int, open_named(&other, "auto", 0, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)other.ops->name, "cpu"));
    cr_assert(eq(int, device.local_rank, 3));
    device_close(&other);
    device_close(&other); /* a closed device closes again without harm */
}

Test(device_cpu, other_names_are_refused_in_words)
{
    struct device other;
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, open_named(&other, "cuda", 0, &err), FSDP_ERR_UNSUPPORTED));
    cr_assert(eq(int, open_named(&other, "tpu", 0, &err), FSDP_ERR_CONFIG));
    cr_assert_not_null(strstr(err.message, "tpu"), "%s", err.message);
    cr_assert(eq(int, open_named(&other, "cpu", -1, &err), FSDP_ERR_ARG));
    device_close(&other);
}

/* Sizes around a page and around the huge page from which on the mapping is padded and trimmed. */
static const size_t sizes[] = {
    1, 4095, 4096, 4097, 1 << 20, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20
};

Test(device_cpu, memory_is_aligned_zero_writable_and_touched)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char in_core[(5 << 20) / 4096];
        const size_t pages = (sizes[i] + 4095) / 4096;
        unsigned char *memory;
        void *out;

        cr_assert(eq(int, device.ops->alloc(&device, sizes[i], &out, NULL), FSDP_OK));
        memory = out;

        cr_assert(eq(u64, (uintptr_t)memory % 4096, 0), "size %zu", sizes[i]);
        cr_assert(mincore(memory, pages * 4096, in_core) == 0, "size %zu", sizes[i]);
        for (size_t page = 0; page < pages; page++)
            cr_assert(in_core[page] & 1, "size %zu page %zu was never touched", sizes[i], page);
        for (size_t byte = 0; byte < sizes[i]; byte++)
            cr_assert(memory[byte] == 0, "size %zu byte %zu", sizes[i], byte);
        memset(memory, 0xA5, sizes[i]);
        device.ops->free(&device, memory, sizes[i]);
        /* Freed means unmapped: mincore finds nothing there, or this page was mapped anew by someone else. */
        cr_assert(mincore(memory, 4096, in_core) == -1, "size %zu is still mapped", sizes[i]);
    }
}

Test(device_cpu, no_bytes_are_no_memory)
{
    void *out = &device;

    cr_assert(eq(int, device.ops->alloc(&device, 0, &out, NULL), FSDP_OK));

    cr_assert(eq(ptr, out, NULL));
    device.ops->free(&device, NULL, 0);
}

Test(device_cpu, size_beyond_the_address_space_is_nomem)
{
    struct fsdp_err err = { 0 };
    void *out = &device;

    cr_assert(eq(int, device.ops->alloc(&device, SIZE_MAX, &out, &err), FSDP_ERR_NOMEM));
    cr_assert(eq(ptr, out, NULL));
    cr_assert(eq(int, device.ops->alloc(&device, SIZE_MAX / 2, &out, &err), FSDP_ERR_NOMEM));
    cr_assert(eq(ptr, out, NULL));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they reserve terabytes */
Test(device_cpu, address_limit_is_nomem_with_the_size_in_words)
{
    const struct rlimit limit = { .rlim_cur = 1u << 30, .rlim_max = 1u << 30 };
    struct fsdp_err err = { 0 };
    void *out = &device, *small;

    cr_assert(eq(int, setrlimit(RLIMIT_AS, &limit), 0)); /* every test is its own process */

    cr_assert(eq(int, device.ops->alloc(&device, 2u << 30, &out, &err), FSDP_ERR_NOMEM));
    cr_assert(eq(ptr, out, NULL));
    cr_assert_not_null(strstr(err.message, "2147483648"), "%s", err.message);
    cr_assert(eq(int, device.ops->alloc(&device, 1 << 20, &small, NULL), FSDP_OK));
    device.ops->free(&device, small, 1 << 20);
}
#endif

Test(device_cpu, work_is_done_in_program_order_across_streams)
{
    struct device_stream *compute, *copy;
    struct device_event *ready;
    char source[100], middle[100], result[100];

    cr_assert(eq(int, device.ops->stream_create(&device, &compute, false, NULL), FSDP_OK));
    cr_assert(eq(int, device.ops->stream_create(&device, &copy, true, NULL), FSDP_OK));
    cr_assert(eq(int, device.ops->event_create(&device, &ready, NULL), FSDP_OK));
    memset(source, 7, sizeof source);
    memset(result, 1, sizeof result);

    device.ops->wait(copy, ready); /* never recorded: no wait */
    device.ops->copy(copy, middle, source, sizeof middle, DEVICE_COPY_TO);
    device.ops->record(ready, copy);
    device.ops->wait(compute, ready);
    device.ops->copy(compute, result, middle, sizeof result, DEVICE_COPY_WITHIN);
    device.ops->fill_zero(compute, middle, sizeof middle);
    device.ops->copy(compute, NULL, NULL, 0, DEVICE_COPY_FROM);

    cr_assert(eq(int, device.ops->synchronize(compute, NULL), FSDP_OK));
    for (size_t i = 0; i < sizeof result; i++)
        cr_assert(result[i] == 7 && middle[i] == 0, "byte %zu", i);
    device.ops->event_destroy(ready);
    device.ops->stream_destroy(copy);
    device.ops->stream_destroy(compute);
    device.ops->event_destroy(NULL);
    device.ops->stream_destroy(NULL);
}

Test(device_cpu, a_list_of_copies_is_its_copies_one_by_one)
{
    struct device_stream *stream;
    float from[4] = { 1, 2, 3, 4 }, to[6] = { 9, 9, 9, 9, 9, 9 };
    const struct device_cast casts[] = { { to, from + 2, 2, FSDP_F32, FSDP_F32 },
                                         { to + 2, NULL, 2, FSDP_F32, FSDP_F32 },
                                         { to + 4, from, 1, FSDP_F32, FSDP_F32 } };

    cr_assert(eq(int, device.ops->stream_create(&device, &stream, false, NULL), FSDP_OK));
    device_cast_list(&device, stream, casts, 3, 0.5f, false);
    device_cast_list(&device, stream, casts, 1, 2.0f, true);
    device_cast_list(&device, stream, NULL, 0, 1.0f, false);

    cr_assert_arr_eq(to, ((float[]){ 7.5f, 10, 0, 0, 0.5f, 9 }), sizeof to);
    device.ops->stream_destroy(stream);
}

Test(device_cpu, names_its_model_in_one_line)
{
    char name[128], again[128], shortened[8];

    cpu_name(name, sizeof name);
    cpu_name(again, sizeof again);
    cpu_name(shortened, sizeof shortened);
    cr_expect_str_eq(name, again);
    cr_expect(name[0] > ' ' && strchr(name, '\n') == NULL && strlen(name) < 80, "%s", name);
    cr_expect(strncmp(shortened, name, strlen(shortened)) == 0 && strlen(shortened) < sizeof shortened);
}
