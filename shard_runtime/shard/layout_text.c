#include "shard_runtime/shard/layout_text.h"

#include <stdio.h>

#include <fsdp/dtype.h>

#include "shard_runtime/core/text.h"
#include "shard_runtime/shard/layout.h"

static void put_shape(FILE *out, const struct fsdp_parameter *p)
{
    for (int d = 0; d < p->n_dims; d++)
        fprintf(out, "%s%zu", d == 0 ? " shape=(" : ",", p->shape[d]);
    fputc(')', out);
    if (p->split.n_parts > 1)
        fprintf(out, " part=%d/%d", p->split.part, p->split.n_parts);
}

/* Writes the rows of every rank; equal neighbours become rows*ranks. There are three lengths at most. */
static void put_rows(FILE *out, size_t D, int W)
{
    int first = 0;

    fputs(" rows=", out);
    for (int rank = 1; rank <= W; rank++) {
        const size_t n = layout_shard(D, W, first).n_rows;

        if (rank < W && layout_shard(D, W, rank).n_rows == n)
            continue;
        fprintf(out, "%s%zu", first == 0 ? "" : ",", n);
        if (rank - first > 1)
            fprintf(out, "*%d", rank - first);
        first = rank;
    }
}

static void put_cut(FILE *out, const struct plan_group *group, const struct fsdp_parameter *p)
{
    const size_t D = p->shape[p->shard_dim];
    const struct layout_rows own = layout_shard(D, group->W, 0);

    fprintf(out, " dim=%d ranks=%d copies=%d own=%zu+%zu", p->shard_dim, group->W, group->R, own.first,
            own.n_rows);
    put_rows(out, D, group->W);
    fprintf(out, " padding=%zu", layout_chunk(D, group->W) * (size_t)group->W - D);
}

static void put_param(FILE *out, const struct plan *plan, const struct plan_group *group,
                      const struct plan_param *param)
{
    const struct fsdp_parameter *p = param->parameter;

    fputs(plan_unit_name(plan, param->group), out);
    if (group->n_units > 1)
        fprintf(out, "+%d", group->n_units - 1);
    fprintf(out, " %s", p->name);
    put_shape(out, p);
    if (group->local)
        fputs(" ignored", out);
    else
        put_cut(out, group, p);
    fprintf(out, " %s", fsdp_dtype_name(FSDP_F32));
    if (group->gathers)
        fprintf(out, " gathered=%s", param->coded >= 0 ? "float8" : fsdp_dtype_name(group->param_dtype));
    if (!param->trains)
        fputs(" no-gradient", out);
    fputc('\n', out);
}

static void put_layout(FILE *out, const void *subject)
{
    const struct plan *plan = subject;

    fprintf(out,
            "# layout: %d parameters in %d groups, by their unit. own: first+count of rank 0; rows: of each "
            "rank, "
            "rows*ranks\n",
            plan->n_params, plan->n_groups);
    for (int g = 0; g < plan->n_groups; g++)
        for (int i = 0; i < plan->groups[g].n_params; i++)
            put_param(out, plan, &plan->groups[g], &plan->params[plan->groups[g].params[i]]);
}

char *layout_text(const struct plan *plan)
{
    return text_of(put_layout, plan);
}
