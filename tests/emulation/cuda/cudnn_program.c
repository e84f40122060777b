#include "tests/emulation/cuda/cudnn_program.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "shard_runtime/core/bf16.h"

static size_t at(const struct tensor *tensor, const int64_t index[PROGRAM_DIMS])
{
    int64_t offset = 0;

    for (int d = 0; d < PROGRAM_DIMS; d++)
        /* a dimension of 1 is for all */
        offset += (tensor->dims[d] == 1 ? 0 : index[d]) * tensor->strides[d];
    return (size_t)offset;
}

/* What a tensor of that type can hold of the number. */
static float held(const struct tensor *tensor, float value)
{
    return tensor->data == CUDNN_BF16 ? bf16_to_f32(bf16_of_f32(value)) : value;
}

static bool next(const struct tensor *tensor, int64_t index[PROGRAM_DIMS])
{
    for (int d = PROGRAM_DIMS - 1; d >= 0; d--) {
        if (++index[d] < tensor->dims[d])
            return true;
        index[d] = 0;
    }
    return false;
}

static float apply(const struct op *op, const int64_t index[PROGRAM_DIMS], float x, float b, float t)
{
    switch (op->mode) {
    case CUDNN_ADD:
        return x + b;
    case CUDNN_MUL:
        return x * b;
    case CUDNN_DIV:
        return x / b;
    case CUDNN_SUB:
        return x - b;
    case CUDNN_EXP:
        return expf(x);
    case CUDNN_LOG:
        return logf(x);
    case CUDNN_IDENTITY:
        return x;
    case CUDNN_GREATER_EQUAL:
        return x >= b;
    case CUDNN_INDEX:
        return (float)index[op->axis];
    case CUDNN_SELECT:
        return t != 0 ? x : b;
    default:
        abort();
    }
}

static float value_at(const struct program *program, int place, const int64_t index[PROGRAM_DIMS])
{
    return place < 0 ? 0 : program->tensors[place].values[at(&program->tensors[place], index)];
}

static float product(const struct program *program, const struct op *op, const int64_t index[PROGRAM_DIMS])
{
    int64_t row[PROGRAM_DIMS] = { index[0], index[1], index[2], 0 },
            column[PROGRAM_DIMS] = { index[0], index[1], 0, index[3] };
    float sum = 0;

    for (int64_t k = 0; k < program->tensors[op->x].dims[3]; k++) {
        row[3] = column[2] = k;
        sum += value_at(program, op->x, row) * value_at(program, op->b, column);
    }
    return sum;
}

static float reduction(const struct program *program, const struct op *op, const int64_t index[PROGRAM_DIMS])
{
    const struct tensor *x = &program->tensors[op->x];
    int64_t along[PROGRAM_DIMS] = { index[0], index[1], index[2], 0 };
    float result = op->mode == CUDNN_LARGEST ? -INFINITY : 0;

    for (along[3] = 0; along[3] < x->dims[3]; along[3]++) {
        const float value = x->values[at(x, along)];

        if (op->mode == CUDNN_SUM)
            result += value;
        else if (op->mode == CUDNN_LARGEST)
            result = fmaxf(result, value);
        else
            abort();
    }
    return result;
}

static void run_op(struct program *program, const struct op *op)
{
    struct tensor *y = &program->tensors[op->y];
    int64_t index[PROGRAM_DIMS] = { 0 };

    do {
        const size_t to = at(y, index);
        float value;

        if (op->what == CUDNN_OP_MATMUL)
            value = product(program, op, index) + (y->adds ? y->values[to] : 0);
        else if (op->what == CUDNN_OP_REDUCTION)
            value = reduction(program, op, index);
        else if (op->what == CUDNN_OP_RESHAPE)
            value = program->tensors[op->x].values[to]; /* the same place, seen by other dimensions */
        else
            value = apply(op, index, value_at(program, op->x, index), value_at(program, op->b, index),
                          value_at(program, op->t, index));
        y->values[to] = held(y, value);
    } while (next(y, index));
}

static void load(struct tensor *tensor)
{
    int64_t index[PROGRAM_DIMS] = { 0 };

    do {
        const size_t i = at(tensor, index);

        tensor->values[i] = tensor->data == CUDNN_BF16 ? bf16_to_f32(((const uint16_t *)tensor->memory)[i])
                                                       : ((const float *)tensor->memory)[i];
    } while (next(tensor, index));
}

static void store(const struct tensor *tensor)
{
    int64_t index[PROGRAM_DIMS] = { 0 };

    do {
        const size_t i = at(tensor, index);

        if (tensor->data == CUDNN_BF16)
            ((uint16_t *)tensor->memory)[i] = bf16_of_f32(tensor->values[i]);
        else
            ((float *)tensor->memory)[i] = tensor->values[i];
    } while (next(tensor, index));
}

static bool is_made(const struct program *program, int place)
{
    for (int i = 0; i < program->n_ops; i++)
        if (program->ops[i].y == place)
            return true;
    return false;
}

void program_compute(struct program *program)
{
    for (int i = 0; i < program->n_tensors; i++) {
        struct tensor *tensor = &program->tensors[i];

        if (tensor->by_value)
            continue; /* it was read when the run was asked for */
        tensor->values = malloc(tensor->n_elems * sizeof(float));
        for (size_t e = 0; e < tensor->n_elems; e++)
            tensor->values[e] = NAN; /* what nobody made is seen */
        if (!tensor->within && (tensor->adds || !is_made(program, i)))
            load(tensor);
    }
    for (int i = 0; i < program->n_ops; i++)
        run_op(program, &program->ops[i]);
    for (int i = 0; i < program->n_tensors; i++) {
        if (!program->tensors[i].within && is_made(program, i))
            store(&program->tensors[i]);
        free(program->tensors[i].values);
    }
}
