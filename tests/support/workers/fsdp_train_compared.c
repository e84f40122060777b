/*
 * fsdp-train that shows how ranks compare the collectives of a device, and whose ranks may differ:
 *   FSDP_TEST_COMPARED=FILE  rank 0 writes a line for every all-gather by which ranks compare a call before
 *                            they queue it
 *   FSDP_TEST_LONE=replan    in its second step alone, rank 1 has a plan of its own (with the same
 *                            collectives)
 *   FSDP_TEST_LONE=function  rank 1 gathers the root's parameters by a function of its own, which does the
 *                            same.
 *                            Every group has made LATE calls before, so that calls outside of a plan are no
 *                              longer compared
 * The Makefile links libfsdp and the trainer with --wrap, so that nothing of this is in the product.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/comm.h>
#include <fsdp/fully_shard.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/device_comm.h"
#include "shard_runtime/engine/model.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { LATE = 1 << 20 };

enum fsdp_status __real_comm_call_compare(const struct comm_call *mine, int rank,
                                          const struct comm_call *theirs, int their_rank,
                                          struct fsdp_err *err);
enum fsdp_status __real_device_comm_wrap(struct fsdp_comm **out, struct fsdp_comm *host,
                                         struct device_comms *comms, struct fsdp_err *err);
enum fsdp_status __real_fsdp_model_forward_backward(struct fsdp_model *model, const struct fsdp_batch *micro,
                                                    size_t n_micro, struct fsdp_loss *loss,
                                                    struct fsdp_err *err);

static bool is_set_to(const char *name, const char *value)
{
    return getenv(name) != NULL && strcmp(getenv(name), value) == 0;
}

/*
 * A rank compares its call with that of each rank, and what it compares with an all-gather of calls is of a
 * device.
 */
enum fsdp_status __wrap_comm_call_compare(const struct comm_call *mine, int rank,
                                          const struct comm_call *theirs, int their_rank,
                                          struct fsdp_err *err)
{
    const char *path = getenv("FSDP_TEST_COMPARED");
    const bool of_calls =
        mine->kind == COMM_ALL_GATHER && mine->dtype == FSDP_U8 && mine->size_bytes == sizeof *mine;

    if (path != NULL && rank == 0 && their_rank == 0 && of_calls) {
        FILE *file = fopen(path, "a");

        if (file == NULL)
            abort();
        fprintf(file, "all-gather of a call\n");
        fclose(file);
    }
    return __real_comm_call_compare(mine, rank, theirs, their_rank, err);
}

enum fsdp_status __wrap_device_comm_wrap(struct fsdp_comm **out, struct fsdp_comm *host,
                                         struct device_comms *comms, struct fsdp_err *err)
{
    enum fsdp_status status = __real_device_comm_wrap(out, host, comms, err);

    if (status == FSDP_OK && is_set_to("FSDP_TEST_LONE", "function"))
        (*out)->sequence = LATE;
    return status;
}

static enum fsdp_status gather_as_ever(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                       struct fsdp_err *err)
{
    (void)user;
    return fsdp_all_gather(group, send, recv, n_elems, dtype, stream, err);
}

enum fsdp_status __wrap_fsdp_model_forward_backward(struct fsdp_model *model, const struct fsdp_batch *micro,
                                                    size_t n_micro, struct fsdp_loss *loss,
                                                    struct fsdp_err *err)
{
    static int step;
    enum fsdp_status status = FSDP_OK;

    step++;
    if (is_set_to("RANK", "1") && is_set_to("FSDP_TEST_LONE", "replan"))
        status = fsdp_module_set_reduce_scatter_max_input_buffers(model->root, step == 2 ? 2 : 1, true, err);
    if (is_set_to("RANK", "1") && is_set_to("FSDP_TEST_LONE", "function"))
        fsdp_module_set_custom_all_gather(model->root, gather_as_ever, NULL);
    return status != FSDP_OK ? status : __real_fsdp_model_forward_backward(model, micro, n_micro, loss, err);
}
