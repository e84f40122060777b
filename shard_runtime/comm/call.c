#include "shard_runtime/comm/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = { [COMM_BARRIER] = "barrier",
                                          [COMM_ALL_GATHER] = "all_gather",
                                          [COMM_REDUCE_SCATTER] = "reduce_scatter",
                                          [COMM_ALL_REDUCE] = "all_reduce",
                                          [COMM_BROADCAST] = "broadcast" };
static const char *const op_names[] = {
    [FSDP_SUM] = "sum", [FSDP_MEAN] = "mean", [FSDP_MAX] = "max", [COMM_SCALED_SUM] = "premul"
};

/*
 * Returns the name of a number, or `unknown`. The other rank's call comes from a socket or from shared
 * memory, so its numbers may be anything.
 */
static const char *name_of(const char *const *names, size_t n, uint32_t value, const char *unknown)
{
    return value < n && names[value] != NULL ? names[value] : unknown;
}

static const char *kind_name(uint32_t kind)
{
    return name_of(kind_names, sizeof kind_names / sizeof *kind_names, kind, "nothing known");
}

static const char *op_name(uint32_t op)
{
    return name_of(op_names, sizeof op_names / sizeof *op_names, op, "unknown op");
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_name((enum fsdp_dtype)dtype) : "?";
}

size_t comm_call_elems(const struct comm_call *call)
{
    return (size_t)call->size_bytes / fsdp_dtype_size((enum fsdp_dtype)call->dtype);
}

struct flight_note comm_call_note(const struct comm_call *call)
{
    const bool reduces = call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_REDUCE;

    return (struct flight_note){ .kind = kind_name(call->kind),
                                 .dtype = reduces || call->kind == COMM_ALL_GATHER ? dtype_name(call->dtype)
                                                                                   : NULL,
                                 .op = reduces ? op_name(call->op) : NULL,
                                 .sequence = call->sequence,
                                 .size_bytes = call->size_bytes,
                                 .root = call->kind == COMM_BROADCAST ? (int)call->root : -1 };
}

static void describe(const struct comm_call *call, char *out, size_t out_bytes)
{
    int n = snprintf(out, out_bytes, "%s #%" PRIu64, kind_name(call->kind), call->sequence);

    out += n;
    out_bytes -= (size_t)n;
    switch (call->kind) {
    case COMM_ALL_GATHER:
        snprintf(out, out_bytes, " of %" PRIu64 " bytes of %s", call->size_bytes, dtype_name(call->dtype));
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_REDUCE:
        snprintf(out, out_bytes, " (%s) of %" PRIu64 " bytes of %s", op_name(call->op), call->size_bytes,
                 dtype_name(call->dtype));
        break;
    case COMM_BROADCAST:
        snprintf(out, out_bytes, " of %" PRIu64 " bytes from rank %u", call->size_bytes, call->root);
        break;
    default:
        break;
    }
}

enum fsdp_status comm_call_compare(const struct comm_call *mine, int rank, const struct comm_call *theirs,
                                   int their_rank, struct fsdp_err *err)
{
    char a[128], b[128];

    if (memcmp(mine, theirs, sizeof *mine) == 0)
        return FSDP_OK;
    describe(mine, a, sizeof a);
    describe(theirs, b, sizeof b);
    return fsdp_fail(err, FSDP_ERR_MISMATCH,
                     "ranks do not call the same collective: rank %d is at %s, rank %d at %s", rank, a,
                     their_rank, b);
}
