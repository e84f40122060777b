/*
 * Holds a run against a PyTorch reference (tests/parity/). Linked with libfsdp for its libraries alone: what
 * is compared is read here anew, as any other reader of the formats would.
 *
 *   parity_compare steps REFERENCE metrics.jsonl              losses and gradient norms of every step
 *   parity_compare gradients REFERENCE STEP_DIRECTORY PREFIX  tensors PREFIX + name of a checkpoint's shards
 *   parity_compare bounded-losses REFERENCE metrics.jsonl ERRORS KEY
 *       losses alone, each to 1e-3; where PyTorch's own that ERRORS gives for KEY are farther off, to 1e-3 of
 *       those
 *   parity_compare bounded REFERENCE STEP_DIRECTORY PREFIX ERRORS KEY
 *       gradients, each to 1.25 times the error of PyTorch's own that ERRORS gives for KEY, plus 1e-3
 *
 * Prints the largest deviations; ends with 0 when all are within bounds, 1 when one is not, 2 when input is
 * missing.
 */
#include <cjson/cJSON.h>
#include <glob.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many roundings that is: tests/gpu/reference.sh. */
static const double exact_loss = 2e-6, exact_norm = 5e-6, gradient_limit = 5e-6;

/* Of bfloat16: how much worse than PyTorch's own error a gradient may be. */
static const double error_factor = 1.25, error_slack = 1e-3;

static const double bf16_loss = 1e-3;

enum { MAX_STEPS = 1000, MAX_SHARDS = 64, NAME_BYTES = 256, PATH_LIMIT = 4096 };

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(2);
}

static FILE *open_or_die(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (file == NULL)
        die("%s cannot be read", path);
    return file;
}

/* steps */

struct steps {
    double loss[MAX_STEPS + 1], norm[MAX_STEPS + 1]; /* by step, from 1; NaN where there is none */
    int last;
};

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* The steps of a reference, or of metrics.jsonl. */
static void read_steps(const char *path, struct steps *steps)
{
    FILE *file = open_or_die(path);
    char line[4096];

    *steps = (struct steps){ 0 };
    for (int i = 0; i <= MAX_STEPS; i++)
        steps->loss[i] = steps->norm[i] = NAN;
    while (fgets(line, sizeof line, file) != NULL) {
        cJSON *object = cJSON_Parse(line);
        double loss = number(object, "loss"), norm = number(object, "grad_norm"),
               step = number(object, "step");

        cJSON_Delete(object);
        if (object == NULL && sscanf(line, "step %lf %lf %lf", &step, &loss, &norm) != 3)
            continue;
        if (!(step >= 1 && step <= MAX_STEPS))
            die("%s: step %g is out of range", path, step);
        steps->loss[(int)step] = loss;
        steps->norm[(int)step] = norm;
        steps->last = (int)step > steps->last ? (int)step : steps->last;
    }
    fclose(file);
}

/* NaN is a deviation too: of the wrong kind for <. */
static void widen(double *worst, double deviation)
{
    if (!(deviation <= *worst))
        *worst = isnan(deviation) ? INFINITY : deviation;
}

static double off(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

/* How PyTorch's own losses of KEY, in any of its worlds, stand to a step's exact one and to ours. */
struct theirs {
    double farthest; /* from the exact one */
    double nearest;  /* to ours */
};

static void read_theirs(const char *path, const char *key, const struct steps *want, const struct steps *got,
                        struct theirs *theirs)
{
    char line[1024], of_key[NAME_BYTES];
    FILE *file = open_or_die(path);
    int step, n = 0;
    double loss;

    for (step = 0; step <= MAX_STEPS; step++)
        theirs[step] = (struct theirs){ .farthest = 0, .nearest = INFINITY };
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "loss %255s %*d %d %lf", of_key, &step, &loss) != 3 || strcmp(of_key, key) != 0)
            continue;
        if (step < 1 || step > want->last)
            die("%s: step %d is not the reference's", path, step);
        widen(&theirs[step].farthest, off(loss, want->loss[step]));
        theirs[step].nearest = fmin(theirs[step].nearest, off(got->loss[step], loss));
        n++;
    }
    fclose(file);
    if (n < want->last)
        die("%s: no losses of %s", path, key);
}

/* Without `errors` norms too, and losses to exact_loss. */
static int compare_steps(const char *reference_path, const char *metrics_path, const char *errors_path,
                         const char *key)
{
    static struct theirs theirs[MAX_STEPS + 1];
    static struct steps want, got;
    const double limit = errors_path == NULL ? exact_loss : bf16_loss;
    double loss = 0, norm = 0;
    int n_drifted = 0;

    read_steps(reference_path, &want);
    read_steps(metrics_path, &got);
    if (want.last < 2)
        die("%s has no steps", reference_path);
    if (errors_path != NULL)
        read_theirs(errors_path, key, &want, &got, theirs);
    for (int step = 1; step <= want.last; step++) {
        const double ours = off(got.loss[step], want.loss[step]);
        const bool drifted = theirs[step].farthest > bf16_loss;

        n_drifted += drifted;
        widen(&loss, drifted ? fmin(ours, theirs[step].nearest) : ours);
        if (errors_path == NULL)
            widen(&norm, off(got.norm[step], want.norm[step]));
    }
    printf("%d steps, in %d of them PyTorch's own loss is farther than %.0e off: losses %.1e of %.0e, "
           "gradient norms %.1e of %.0e\n",
           want.last, n_drifted, bf16_loss, loss, limit, norm, exact_norm);
    return loss <= limit && norm <= exact_norm && want.loss[want.last] < want.loss[1] ? 0 : 1;
}

/* gradients */

struct shard {
    char *bytes;
    cJSON *header;
    const char *data;
};

static void read_shard(const char *path, struct shard *shard)
{
    FILE *file = open_or_die(path);
    uint64_t header_bytes;
    long size;

    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    shard->bytes = malloc((size_t)size + 1);
    if (shard->bytes == NULL || fread(shard->bytes, 1, (size_t)size, file) != (size_t)size || size < 8)
        die("%s cannot be read", path);
    fclose(file);
    memcpy(&header_bytes, shard->bytes, sizeof header_bytes);
    if (header_bytes > (uint64_t)size - 8)
        die("%s: not safetensors", path);
    shard->header = cJSON_ParseWithLength(shard->bytes + 8, header_bytes);
    if (shard->header == NULL)
        die("%s: header is not JSON", path);
    shard->data = shard->bytes + 8 + header_bytes;
}

static size_t number_at(const cJSON *array, int i)
{
    return (size_t)cJSON_GetArrayItem(array, i)->valuedouble;
}

/*
 * The elements of `name` in one shard, rows or a box of a matrix, are copied to their place; returns how
 * many.
 */
static size_t take_box(const struct shard *shard, const char *name, float *out, size_t n_elems)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(shard->header, "__metadata__");
    const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(shard->header, name);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(metadata, "DCP_SHARDING_INFO");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(tensor, "shape");
    const cJSON *range = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
    const int n_dims = cJSON_GetArraySize(shape);
    const cJSON *place, *offsets, *global;
    size_t rows, cols, row, col, width;
    const char *data;
    cJSON *info;

    if (tensor == NULL)
        return 0;
    info = cJSON_IsString(text) ? cJSON_Parse(text->valuestring) : NULL;
    place = cJSON_GetObjectItemCaseSensitive(info, name);
    offsets = cJSON_GetObjectItemCaseSensitive(place, "saved_offsets");
    global = cJSON_GetObjectItemCaseSensitive(place, "global_shape");
    if (n_dims < 1 || n_dims > 2 || cJSON_GetArraySize(offsets) != n_dims ||
        cJSON_GetArraySize(global) != n_dims || cJSON_GetArraySize(range) != 2)
        die("%s: incomplete header, or no matrix", name);
    rows = number_at(shape, 0);
    cols = n_dims > 1 ? number_at(shape, 1) : 1;
    row = number_at(offsets, 0);
    col = n_dims > 1 ? number_at(offsets, 1) : 0;
    width = n_dims > 1 ? number_at(global, 1) : 1;
    data = shard->data + number_at(range, 0);
    if (col + cols > width || (row + rows) * width > n_elems)
        die("%s: what the checkpoint holds does not fit the reference", name);
    for (size_t r = 0; r < rows; r++)
        memcpy(out + (row + r) * width + col, data + r * cols * sizeof *out, cols * sizeof *out);
    cJSON_Delete(info);
    return rows * cols;
}

/* The next element: four letters of base64, 24 bits, biased; a multiple of the tensor's unit. */
static double next_element(FILE *reference, const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    long bits = 0;

    for (int i = 0; i < 4; i++) {
        const int c = getc(reference);
        const char *letter = c != EOF && c != 0 ? strchr(letters, c) : NULL;

        if (c == '\n') {
            i--;
            continue;
        }
        if (letter == NULL)
            die("%s: the reference ends early", name);
        bits = bits << 6 | (letter - letters);
    }
    return (double)(bits - (1l << 23));
}

/* |got - want| / |want| in L2, over the whole tensor. */
static double deviation_of(FILE *reference, const char *name, size_t n_elems, double unit,
                           const struct shard *shards, size_t n_shards, const char *prefix)
{
    float *got = calloc(n_elems, sizeof *got);
    char full[2 * NAME_BYTES];
    double square = 0, norm = 0;
    size_t n = 0;

    if (got == NULL)
        die("no memory");
    snprintf(full, sizeof full, "%s%s", prefix, name);
    for (size_t s = 0; s < n_shards; s++)
        n += take_box(&shards[s], full, got, n_elems);
    if (n != n_elems)
        die("%s: %zu elements in the checkpoint, %zu in the reference", full, n, n_elems);
    for (size_t i = 0; i < n_elems; i++) {
        const double want = unit * next_element(reference, name);

        square += ((double)got[i] - want) * ((double)got[i] - want);
        norm += want * want;
    }
    free(got);
    return sqrt(square) / sqrt(norm);
}

/*
 * By how much a figure may be off: by `exact`, or by what `errors` says of it. That is the largest of "error
 * KEY world NAME value" over the worlds. The world counts because it changes every rounding, although it is
 * no part of a case how samples go to ranks.
 */
static double limit_of(const char *errors_path, const char *key, const char *name, double exact)
{
    char line[1024], of_key[NAME_BYTES], of_name[NAME_BYTES];
    double error = -1, value;
    FILE *errors;

    if (errors_path == NULL)
        return exact;
    errors = open_or_die(errors_path);
    while (fgets(line, sizeof line, errors) != NULL)
        if (sscanf(line, "error %255s %*d %255s %lf", of_key, of_name, &value) == 3 &&
            strcmp(of_key, key) == 0 && strcmp(of_name, name) == 0 && value > error)
            error = value;
    fclose(errors);
    if (error < 0)
        die("%s: no error of %s %s", errors_path, key, name);
    return error_factor * error + error_slack;
}

static int compare_gradients(const char *reference_path, const char *directory, const char *prefix,
                             const char *errors_path, const char *key)
{
    static struct shard shards[MAX_SHARDS];
    FILE *reference = open_or_die(reference_path);
    char pattern[PATH_LIMIT], line[1024], name[NAME_BYTES], worst_name[NAME_BYTES] = "";
    size_t n_elems, n_tensors = 0;
    double worst = 0;
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/shard-*.safetensors", directory);
    if (glob(pattern, 0, NULL, &found) != 0 || found.gl_pathc > MAX_SHARDS)
        die("no shards in %s", directory);
    for (size_t s = 0; s < found.gl_pathc; s++)
        read_shard(found.gl_pathv[s], &shards[s]);
    while (fgets(line, sizeof line, reference) != NULL) {
        double deviation, unit;

        if (sscanf(line, "gradient %255s %zu %lf", name, &n_elems, &unit) != 3)
            continue;
        deviation = deviation_of(reference, name, n_elems, unit, shards, found.gl_pathc, prefix) /
                    limit_of(errors_path, key, name, gradient_limit);
        n_tensors++;
        if (!(deviation <= worst)) {
            worst = isnan(deviation) ? INFINITY : deviation;
            snprintf(worst_name, sizeof worst_name, "%s", name);
        }
    }
    fclose(reference);
    for (size_t s = 0; s < found.gl_pathc; s++) {
        cJSON_Delete(shards[s].header);
        free(shards[s].bytes);
    }
    globfree(&found);
    if (n_tensors == 0)
        die("%s has no gradients", reference_path);
    printf("%zu gradients: worst %.2f of its limit (%s)\n", n_tensors, worst, worst_name);
    return worst <= 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "steps") == 0)
        return compare_steps(argv[2], argv[3], NULL, NULL);
    if (argc == 6 && strcmp(argv[1], "bounded-losses") == 0)
        return compare_steps(argv[2], argv[3], argv[4], argv[5]);
    if (argc == 5 && strcmp(argv[1], "gradients") == 0)
        return compare_gradients(argv[2], argv[3], argv[4], NULL, NULL);
    if (argc == 7 && strcmp(argv[1], "bounded") == 0)
        return compare_gradients(argv[2], argv[3], argv[4], argv[5], argv[6]);
    die("usage: parity_compare steps REFERENCE METRICS | gradients REFERENCE STEP_DIRECTORY PREFIX | "
        "bounded-losses REFERENCE METRICS ERRORS KEY | bounded REFERENCE STEP_DIRECTORY PREFIX ERRORS KEY");
}
