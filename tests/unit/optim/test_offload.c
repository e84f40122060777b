/*
 * State in a file. What a run updates is there in the next one and is what a checkpoint reads, through
 * windows of any size. Each file operation that fails is reported once and leaks nothing.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/optim/offload.h"
#include "shard_runtime/optim/state_file.h"
#include "shard_runtime/optim/state_window.h"
#include "tests/unit/engine/must.h"
#include "tests/unit/shardfile/memory_io.h"

enum { TENSORS = 5, MAX_ELEMS = 9001 };

static const size_t sizes[TENSORS] = { 3000, 0, 1, MAX_ELEMS, 17 };

/* What the state is to be: an update adds element number + tensor to state 0, twice that to state 1. */
struct expected {
    float state[TENSORS][2][MAX_ELEMS];
    int n_states;
    unsigned wanted; /* tensors that are updated, a bit each */
    size_t n_updated;
};

static bool wants(void *user, int tensor)
{
    const struct expected *expected = user;

    return (expected->wanted >> tensor & 1u) != 0;
}

static enum fsdp_status update(void *user, int tensor, size_t first, size_t n_elems, float *const *state,
                               struct fsdp_err *err)
{
    struct expected *expected = user;

    (void)err;
    for (int s = 0; s < expected->n_states; s++)
        for (size_t e = 0; e < n_elems; e++) {
            float *want = &expected->state[tensor][s][first + e];

            cr_assert(state[s][e] == *want, "tensor %d, state %d, element %zu: %g, not %g", tensor, s,
                      first + e, (double)state[s][e], (double)*want);
            *want += (float)((first + e + (size_t)tensor) * ((size_t)s + 1));
            state[s][e] = *want;
        }
    expected->n_updated += n_elems;
    return FSDP_OK;
}

static struct device open_device(void)
{
    struct device device;

    cr_assert(device_open(&device, &(struct device_config){ .name = "cpu", .local_rank = 0 }, NULL) ==
              FSDP_OK);
    return device;
}

static enum fsdp_status open_offload(struct offload **out, struct device *device, struct fsdp_io *io,
                                     int n_states, size_t window_bytes, struct fsdp_err *err)
{
    const struct offload_options options = {
        .io = io, .directory = "run/offload", .rank = 1, .window_bytes = window_bytes
    };

    return offload_create(out, device, sizes, TENSORS, n_states, &options, err);
}

static void check_store(const struct offload *offload, const struct expected *expected)
{
    static float got[MAX_ELEMS];
    const struct rows_store *store = offload_store(offload);

    for (int i = 0; i < TENSORS; i++)
        for (int s = 0; s < expected->n_states; s++) {
            const size_t index = (size_t)(i * expected->n_states + s), bytes = sizes[i] * sizeof(float);
            const size_t cut = bytes / 3; /* in the middle of an element, too */

            cr_assert(store->read(store->user, index, 0, got, cut, NULL) == FSDP_OK);
            cr_assert(store->read(store->user, index, cut, (char *)got + cut, bytes - cut, NULL) == FSDP_OK);
            cr_assert(memcmp(got, expected->state[i][s], bytes) == 0);
        }
}

static void walk(struct fsdp_io *io, int n_states, size_t window_bytes)
{
    struct expected *expected = calloc(1, sizeof *expected);
    const struct offload_visitor visitor = { .user = expected, .wants = wants, .update = update };
    struct device device = open_device();
    struct fsdp_err err = { 0 };
    struct offload *offload;

    expected->n_states = n_states;
    must(open_offload(&offload, &device, io, n_states, window_bytes, &err), &err);
    for (int run = 0; run < 6; run++) {
        expected->wanted = run < 3 ? ~0u : run == 3 ? 1u << 0 | 1u << 4 : run == 4 ? 0 : 1u << 3;
        must(offload_run(offload, &visitor, &err), &err);
        check_store(offload, expected);
    }
    cr_assert_eq(expected->n_updated, 3 * (3000 + 1 + MAX_ELEMS + 17) + 3000 + 17 + MAX_ELEMS);
    offload_destroy(offload);
    device_close(&device);
    free(expected);
}

Test(offload, what_is_updated_is_there_next_time_through_any_window, .timeout = 600)
{
    static const size_t windows[] = { 1, 5 * 4096, 50000, 0 };

    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int n_states = 1; n_states <= 2; n_states++)
            for (int way = 0; way < 4; way++) { /* around the page cache or not, whole calls or halves */
                struct memory_io io;

                memory_io_init(&io);
                io.takes_direct = way % 2 == 0;
                io.short_calls = way == 3; /* halves of blocks do not go around the page cache */
                walk(&io.base, n_states, windows[w]);
                cr_assert_eq(io.n_open, 0);
                memory_io_fini(&io);
            }
}

Test(offload, a_checkpoint_writes_into_it_from_anywhere_to_anywhere, .timeout = 600)
{
    static float want[2][MAX_ELEMS], got[MAX_ELEMS];
    struct device device = open_device();
    const struct rows_store *store;
    struct offload *offload;
    struct memory_io io;

    memory_io_init(&io);
    cr_assert(open_offload(&offload, &device, &io.base, 2, 1, NULL) == FSDP_OK);
    store = offload_store(offload);
    for (int s = 0; s < 2; s++) {
        size_t done = 0;

        for (size_t e = 0; e < MAX_ELEMS; e++)
            want[s][e] = (float)(e * 3 + (size_t)s);
        for (size_t n = 1; done < sizeof want[s]; done += n, n = n * 3 + 1) {
            if (n > sizeof want[s] - done)
                n = sizeof want[s] - done;
            cr_assert(store->write(store->user, 6 + (size_t)s, done, (char *)want[s] + done, n, NULL) ==
                      FSDP_OK);
        }
    }
    for (size_t index = 0; index < TENSORS * 2; index++) {
        const size_t n = sizes[index / 2];

        cr_assert(store->read(store->user, index, 0, got, n * sizeof(float), NULL) == FSDP_OK);
        for (size_t e = 0; e < n; e++)
            cr_assert(got[e] == (index / 2 == 3 ? want[index % 2][e] : 0.0f), "neighbours are left alone");
    }
    offload_destroy(offload);
    device_close(&device);
    memory_io_fini(&io);
}

/* Create, run twice; the nth call fails. Returns whether it was reached. */
static bool fail_call(int n, int error)
{
    struct expected *expected = calloc(1, sizeof *expected);
    const struct offload_visitor visitor = { .user = expected, .wants = wants, .update = update };
    struct device device = open_device();
    struct offload *offload = NULL;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    struct memory_io io;
    bool reached;

    memory_io_init(&io);
    io.fail_at = n;
    io.fail_errno = error;
    expected->n_states = 2;
    expected->wanted = ~0u;
    status = open_offload(&offload, &device, &io.base, 2, 5 * 4096, &err);
    for (int run = 0; run < 2 && status == FSDP_OK; run++)
        status = offload_run(offload, &visitor, &err);
    reached = io.calls >= n;
    if (status == FSDP_OK) {
        io.fail_at = 0;
        check_store(offload, expected);
    } else {
        cr_assert(status == FSDP_ERR_IO, "call %d: status %d", n, (int)status);
        cr_assert(strstr(err.message, "run") != NULL && strchr(err.message, '\n') == NULL, "%s", err.message);
    }
    offload_destroy(offload);
    cr_assert_eq(io.n_open, 0, "call %d (%s): a descriptor is left open", n, io.last);
    memory_io_fini(&io);
    device_close(&device);
    free(expected);
    return reached;
}

Test(offload, each_call_that_fails_is_said_once_and_leaks_nothing, .timeout = 1200)
{
    static const int errors[] = { EIO, ENOSPC, EINTR };
    int n;

    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        for (n = 1; fail_call(n, errors[e]); n++)
            ;
        cr_assert(n > 20, "only %d calls", n);
    }
}

Test(offload, a_full_disk_is_known_before_training)
{
    struct device device = open_device();
    struct fsdp_err err = { 0 };
    struct offload *offload;
    struct memory_io io;
    bool said = false;

    for (int n = 1; n < 20 && !said; n++) {
        memory_io_init(&io);
        io.fail_at = n;
        io.fail_errno = ENOSPC;
        if (open_offload(&offload, &device, &io.base, 2, 0, &err) == FSDP_OK)
            offload_destroy(offload);
        else if (strcmp(io.last, "close") == 0)
            said = strncmp(err.message, "reserve ", 8) == 0;
        memory_io_fini(&io);
    }
    cr_assert(said);
    cr_assert_str_eq(err.message,
                     "reserve 98304 bytes in run/offload (optimizer state): No space left on device");
    device_close(&device);
}

Test(offload, a_name_left_behind_is_in_nobodys_way)
{
    struct state_file file;
    struct memory_io io;
    char path[64];
    int fd;

    memory_io_init(&io);
    cr_assert(io_make_directories(&io.base, "d", NULL) == FSDP_OK);
    snprintf(path, sizeof path, "d/rank-3.%ld", (long)getpid());
    cr_assert(io_write_file(&io.base, path, "old", 3, NULL) == FSDP_OK);
    cr_assert(state_file_open(&file, &io.base, "d", 3, 4096, NULL) == FSDP_OK);
    fd = io.base.open(&io.base, path, 0, 0);
    cr_assert(fd < 0 && errno == ENOENT);
    state_file_close(&file);
    memory_io_fini(&io);
}

Test(offload, memory_is_no_disk)
{
    struct fsdp_err err = { 0 };
    struct state_file file;
    char path[64];
    enum fsdp_status status;

    if (access("/dev/shm", W_OK) != 0)
        return;
    snprintf(path, sizeof path, "/dev/shm/fsdp-test-%ld", (long)getpid());
    status = state_file_open(&file, &io_posix, path, 0, 4096, &err);
    (void)rmdir(path);
    if (status == FSDP_OK) { /* this one is on a disk */
        state_file_close(&file);
        return;
    }
    cr_assert(status == FSDP_ERR_CONFIG && strstr(err.message, "parallel.offload_dir: ") == err.message, "%s",
              err.message);
}
