/*
 * What each rank brings to a collective and what must come out, computed plainly and alone, in the order that the
 * runtime promises: inside each node in rank order, then the nodes in order.
 */
#ifndef TESTS_COMM_ORACLE_H
#define TESTS_COMM_ORACLE_H

#include <math.h>

#include "tests/support/comm_rank.h"

/* Element i of what `of_rank` brings to round `round`: odd fractions, so that another order gives other bits. */
static inline double value_of(int round, int of_rank, size_t i)
{
    return (double)(int64_t)(mix(want.seed * 1000003 + (uint64_t)round * 64 + (uint64_t)of_rank +
                                 (i << 20)) >>
                             20) /
           (double)(1 << 21);
}

static inline uint16_t to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float of_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;

    memcpy(&value, &bits, 4);
    return value;
}

static inline void store(void *at, size_t i, enum fsdp_dtype dtype, double x)
{
    switch (dtype) {
    case FSDP_F32:
        ((float *)at)[i] = (float)x;
        break;
    case FSDP_BF16:
        ((uint16_t *)at)[i] = to_bf16((float)x);
        break;
    case FSDP_F64:
        ((double *)at)[i] = x;
        break;
    case FSDP_I64:
        ((int64_t *)at)[i] = (int64_t)(x * 4096);
        break;
    case FSDP_I32:
        ((int32_t *)at)[i] = (int32_t)x;
        break;
    default:
        ((uint8_t *)at)[i] = (uint8_t)(int64_t)x;
        break;
    }
}

static inline void fill(void *at, size_t n, enum fsdp_dtype dtype, int round, int of_rank, size_t first)
{
    for (size_t i = 0; i < n; i++)
        store(at, i, dtype, value_of(round, of_rank, first + i));
}

/* Element i of the reduction: inside each node in rank order, then the nodes in order; a mean divides at the end. */
static inline void expect(void *at, size_t at_i, size_t i, enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                          int round)
{
    const int per_node = want.W / want.n_nodes;
    double total = 0;
    int64_t total_i = 0;
    float total_f = 0;

    for (int node = 0; node < want.n_nodes; node++) {
        double part = 0;
        int64_t part_i = 0;
        float part_f = 0;

        for (int l = 0; l < per_node; l++) {
            double x = value_of(round, node * per_node + l, i);
            union {
                uint16_t b;
                int64_t i;
                double d;
            } raw = { .i = 0 };
            float f;

            store(&raw, 0, dtype, x);
            f = dtype == FSDP_BF16 ? of_bf16(raw.b) : (float)x;
            raw.i = dtype == FSDP_I64 ? raw.i : 0;
            if (l == 0)
                part = x, part_f = f, part_i = raw.i;
            else if (op == FSDP_MAX)
                part = fmax(part, x), part_f = fmaxf(part_f, f), part_i = part_i > raw.i ? part_i : raw.i;
            else
                part += x, part_f += f, part_i += raw.i;
        }
        if (node == 0)
            total = part, total_f = part_f, total_i = part_i;
        else if (op == FSDP_MAX)
            total = fmax(total, part), total_f = fmaxf(total_f, part_f),
            total_i = total_i > part_i ? total_i : part_i;
        else
            total += part, total_f += part_f, total_i += part_i;
    }
    if (op == FSDP_MEAN)
        total /= want.W, total_f /= (float)want.W;
    if (dtype == FSDP_I64)
        ((int64_t *)at)[at_i] = total_i;
    else
        store(at, at_i, dtype, dtype == FSDP_F64 ? total : (double)total_f);
}

#endif
