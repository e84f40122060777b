#include "tests/unit/parity/reference.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set(struct reference *r, const char *line)
{
    static const struct {
        const char *key;
        size_t offset;
    } sizes[] = { { "layers", offsetof(struct reference, layers) },
                  { "dim", offsetof(struct reference, dim) },
                  { "heads", offsetof(struct reference, heads) },
                  { "vocab", offsetof(struct reference, vocab) },
                  { "seq", offsetof(struct reference, seq) },
                  { "hidden", offsetof(struct reference, hidden) },
                  { "visits", offsetof(struct reference, visits) },
                  { "tied", offsetof(struct reference, tied) },
                  { "rms", offsetof(struct reference, rms) },
                  { "skips", offsetof(struct reference, skips) } },
      reals[] = { { "lr", offsetof(struct reference, lr) },
                  { "eps", offsetof(struct reference, eps) },
                  { "decay", offsetof(struct reference, decay) },
                  { "clip_norm", offsetof(struct reference, clip_norm) },
                  { "clip_order", offsetof(struct reference, clip_order) } };
    char key[32], value[96];

    cr_assert(sscanf(line, "set %31s %95[^\n]", key, value) == 2, "%s", line);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(key, sizes[i].key) == 0) {
            *(size_t *)((char *)r + sizes[i].offset) = strtoul(value, NULL, 10);
            return;
        }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (strcmp(key, reals[i].key) == 0) {
            *(double *)((char *)r + reals[i].offset) = strtod(value, NULL);
            return;
        }
    if (strcmp(key, "widths") == 0)
        cr_assert(sscanf(value, "%zu %zu %zu", &r->widths[0], &r->widths[1], &r->widths[2]) == 3);
    else if (strcmp(key, "group") == 0)
        cr_assert(sscanf(value, "%31s %lf %lf", r->group_pattern, &r->group_lr, &r->group_decay) == 3);
    else if (strcmp(key, "kind") == 0 || strcmp(key, "trains") == 0)
        snprintf(key[0] == 'k' ? r->kind : r->trains, sizeof r->kind, "%.15s", value);
    else
        cr_assert_fail("a key that nobody knows: %s", line);
}

static void read_gradient(struct reference *r, const char *line, FILE *file)
{
    struct reference_tensor *tensor = &r->gradients[r->n_gradients++];

    cr_assert(r->n_gradients <= REFERENCE_MAX);
    cr_assert(sscanf(line, "gradient %63s %zu", tensor->name, &tensor->n_elems) == 2, "%s", line);
    tensor->values = calloc(tensor->n_elems, sizeof *tensor->values);
    for (size_t i = 0; i < tensor->n_elems; i++)
        cr_assert(fscanf(file, "%lf", &tensor->values[i]) == 1, "%s: %zu", tensor->name, i);
}

static void read_line(struct reference *r, const char *line, FILE *file)
{
    struct reference_error *error = &r->errors[r->n_errors];
    int step;

    if (strncmp(line, "set ", 4) == 0)
        set(r, line);
    else if (strncmp(line, "step ", 5) == 0) {
        cr_assert(r->n_steps < REFERENCE_STEPS);
        cr_assert(sscanf(line, "step %d %lf %lf", &step, &r->losses[r->n_steps], &r->norms[r->n_steps]) == 3);
        cr_assert(step == ++r->n_steps);
    } else if (strncmp(line, "error ", 6) == 0) {
        cr_assert(r->n_errors < 12 * REFERENCE_MAX);
        cr_assert(sscanf(line, "error %11s %d %63s %lf", error->reduce, &error->W, error->name,
                         &error->error) == 4);
        r->n_errors++;
    } else if (strncmp(line, "gradient ", 9) == 0)
        read_gradient(r, line, file);
    else
        cr_assert(line[0] == '#' || line[0] == '\n', "%s", line);
}

struct reference *reference_read(const char *name)
{
    struct reference *r = calloc(1, sizeof *r);
    char path[512], line[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/tests/parity/reference/fsdp2/%s.txt", SOURCE_DIR, name);
    file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    strcpy(r->trains, "*");
    r->visits = 1;
    while (fgets(line, sizeof line, file) != NULL)
        read_line(r, line, file);
    fclose(file);
    cr_assert_eq(r->n_steps, REFERENCE_STEPS);
    return r;
}

void reference_free(struct reference *r)
{
    for (int i = 0; i < r->n_gradients; i++)
        free(r->gradients[i].values);
    free(r);
}

const struct reference_tensor *reference_gradient(const struct reference *r, const char *name)
{
    for (int i = 0; i < r->n_gradients; i++)
        if (strcmp(r->gradients[i].name, name) == 0)
            return &r->gradients[i];
    return NULL;
}

double reference_error_of(const struct reference *r, const char *reduce, const char *name)
{
    double worst = 0;

    for (int i = 0; i < r->n_errors; i++)
        if (strcmp(r->errors[i].reduce, reduce) == 0 && strcmp(r->errors[i].name, name) == 0 &&
            r->errors[i].error > worst)
            worst = r->errors[i].error;
    return worst;
}
