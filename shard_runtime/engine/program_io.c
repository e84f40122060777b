/*
 * Batches and logits of a run. On the cpu operations read a batch in place. Other devices get a copy first,
 * in the order of the compute stream.
 */
#include <string.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/engine/model.h"

enum { ALIGN_BYTES = 256 };

size_t program_io_measure(struct program *program)
{
    const struct fsdp_value *input = program->graph.input;
    struct program_io *io = &program->io;

    if (!device_is_separate(&program->context->device))
        return 0;
    io->input_bytes = graph_value_elems(input) * fsdp_dtype_size(input->dtype);
    io->targets_at = round_up(io->input_bytes, ALIGN_BYTES);
    io->inputs_bytes = io->targets_at + nn_rows(program->graph.result) * sizeof(int32_t);
    io->inputs_bytes = round_up(io->inputs_bytes, ALIGN_BYTES);
    return io->inputs_bytes * program->graph.n_forwards;
}

enum fsdp_status program_io_create(struct program *program, struct fsdp_err *err)
{
    struct device *device = &program->context->device;
    struct program_io *io = &program->io;
    const size_t size_bytes = program_io_measure(program);
    enum fsdp_status status;

    if (size_bytes == 0)
        return FSDP_OK;
    status = device->ops->alloc(device, size_bytes, &io->inputs, err);
    if (status != FSDP_OK)
        fsdp_wrap(err, "the batch on the device");
    return status;
}

void program_io_destroy(struct program *program)
{
    struct device *device = &program->context->device;
    struct program_io *io = &program->io;

    if (io->inputs != NULL)
        device->ops->free(device, io->inputs, io->inputs_bytes * program->graph.n_forwards);
    if (io->logits != NULL)
        device->ops->free_host(device, io->logits, io->logits_bytes);
    *io = (struct program_io){ 0 };
}

void program_io_send(struct program *program, int forward, struct fsdp_batch *batch)
{
    struct fsdp_context *context = program->context;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];
    const struct program_io *io = &program->io;
    char *on_device;

    if (io->inputs == NULL)
        return;
    on_device = (char *)io->inputs + (size_t)forward * io->inputs_bytes;
    context->device.ops->copy(stream, on_device, batch->input, io->input_bytes, DEVICE_COPY_TO);
    batch->input = on_device;
    if (batch->targets == NULL)
        return;
    context->device.ops->copy(stream, on_device + io->targets_at, batch->targets,
                              nn_rows(program->graph.result) * sizeof(int32_t), DEVICE_COPY_TO);
    batch->targets = (const int32_t *)(const void *)(on_device + io->targets_at);
}

/* Copy rows that are padded on the device to adjacent rows on the host. */
static void copy_rows(struct device *device, struct device_stream *stream, float *to, const float *from,
                      const struct fsdp_value *value)
{
    const bool adjacent = value->row_stride == value->features;
    const size_t n_copies = adjacent ? 1 : nn_rows(value), elems = graph_value_elems(value) / n_copies;

    for (size_t i = 0; i < n_copies; i++)
        device->ops->copy(stream, to + i * elems, from + i * value->row_stride, elems * sizeof *to,
                          DEVICE_COPY_FROM);
}

enum fsdp_status program_io_logits(struct program *program, const float *on_device, const float **logits,
                                   struct fsdp_err *err)
{
    struct fsdp_context *context = program->context;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];
    struct program_io *io = &program->io;
    enum fsdp_status status = FSDP_OK;
    void *memory = NULL;

    *logits = on_device;
    if (!device_is_separate(&context->device))
        return FSDP_OK;
    if (io->logits == NULL) {
        io->logits_bytes = graph_value_elems(program->graph.result) * sizeof(float);
        status = context->device.ops->alloc_host(&context->device, io->logits_bytes, &memory, err);
        io->logits = memory;
    }
    if (status != FSDP_OK)
        return status;
    copy_rows(&context->device, stream, io->logits, on_device, program->graph.result);
    *logits = io->logits;
    return context->device.ops->synchronize(stream, err);
}
