#include "shard_runtime/numerics/numerics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/numerics/parallel.h"

/* The first is what "auto" takes. */
static const struct numerics_ops *const rows[] = {
#ifndef FSDP_WITHOUT_ONEDNN
    &numerics_onednn_ops,
#endif
    &numerics_plain_ops,
    &numerics_ref_ops,
};

static const struct numerics_ops *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i]->name, name) == 0)
            return rows[i];
    return NULL;
}

enum fsdp_status numerics_open(struct numerics *numerics, const struct numerics_config *config,
                               struct fsdp_err *err)
{
    enum fsdp_status status;
    const char *name = config->name, *from = "";

    *numerics = (struct numerics){ 0 };
    if (config->threads < 1)
        return fsdp_fail(err, FSDP_ERR_ARG, "numerics: %d threads", config->threads);
    if (config->row == NULL && strcmp(name, "auto") == 0) {
        const char *wanted = getenv("FSDP_NUMERICS");

        if (wanted != NULL && wanted[0] != '\0' && strcmp(wanted, "auto") != 0) {
            name = wanted;
            from = " (from FSDP_NUMERICS)";
        } else {
            name = rows[0]->name;
        }
    }
    numerics->ops = config->row != NULL ? config->row : find_row(name);
    if (numerics->ops == NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "numerics %s%s: not one of auto, onednn, plain, ref in this build", name, from);
    numerics->threads = config->threads;
    numerics->device = config->device;
    numerics->precision = config->precision;
    numerics->splits_products = config->splits_anyway && config->precision == FSDP_MATMUL_HIGH;
    parallel_set_threads(config->threads);
    status = numerics->ops->open(numerics, err);
    if (status != FSDP_OK)
        *numerics = (struct numerics){ 0 };
    return status;
}

void numerics_close(struct numerics *numerics)
{
    if (numerics->ops == NULL)
        return;
    numerics->ops->close(numerics);
    *numerics = (struct numerics){ 0 };
}

const char *numerics_describe(const struct numerics *numerics, char *buffer, size_t size)
{
    char more[192] = "";

    if (numerics->ops->describe != NULL)
        numerics->ops->describe(numerics, more, sizeof more);
    (void)snprintf(buffer, size, "%s%s%s, %d thread%s", numerics->ops->name, more[0] == '\0' ? "" : " ", more,
                   numerics->threads, numerics->threads == 1 ? "" : "s");
    return buffer;
}
