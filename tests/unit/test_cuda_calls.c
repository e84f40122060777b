/*
 * Every call of CUDA, cuBLASLt, cuDNN and NCCL in the plug-in, and every launch of a kernel, has its result looked at: it stands in a
 * check, a condition, an assignment or a return. What is ignored says so by IGNORED(name, call), with a name of shard_runtime/cuda/ignored.h.
 * This reads the sources as text; gcc holds the calls of the runtime and of cuBLASLt to it too, where the plug-in is built over
 * tests/emulation/cuda/include (warn_unused_result, which a cast to void does not silence).
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/cuda/ignored.h"

enum kind { RUNTIME, CUBLAS, CUDNN, NCCL, KERNEL, LAUNCHES, N_KINDS };

/* How a call of a kind begins; what follows is a name whose first letter is large, but of kernels. */
static const char *const prefixes[N_KINDS] = {
    [RUNTIME] = "cuda", [CUBLAS] = "cublas",  [CUDNN] = "api->",
    [NCCL] = "nccl.",   [KERNEL] = "kernel_", [LAUNCHES] = "LAUNCH"
};

struct found {
    size_t n[N_KINDS], n_ignored, n_unchecked;
    char first[256]; /* the first without a check */
};

/* Comments, strings and characters become blanks. */
static void blank(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if (c[0] == '/' && c[1] == '*') {
            for (; *c != '\0' && !(c[0] == '*' && c[1] == '/'); c++)
                *c = *c == '\n' ? '\n' : ' ';
            if (*c != '\0')
                c[0] = c[1] = ' ';
        } else if (c[0] == '/' && c[1] == '/') {
            for (; *c != '\0' && *c != '\n'; c++)
                *c = ' ';
        } else if (*c == '"' || *c == '\'') {
            const char quote = *c;

            for (*c++ = ' '; *c != '\0' && *c != quote; c++) {
                if (*c == '\\' && c[1] != '\0')
                    *c++ = ' ';
                *c = ' ';
            }
            if (*c != '\0')
                *c = ' ';
        }
        if (*c == '\0')
            return;
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *before(const char *text, const char *at)
{
    while (at > text && isspace((unsigned char)at[-1]))
        at--;
    return at; /* one behind what stands there */
}

static bool ends_with(const char *text, const char *end, const char *word)
{
    const size_t n = strlen(word);

    return (size_t)(end - text) >= n && strncmp(end - n, word, n) == 0 &&
           ((size_t)(end - text) == n || !is_word(end[-(ptrdiff_t)n - 1]));
}

/* The name in IGNORED(name, ...), which ends at the comma; NULL: that is no such. */
static const char *ignored_name(const char *text, const char *comma)
{
    const char *begin = comma;

    while (begin > text && is_word(begin[-1]))
        begin--;
    return begin > text && begin[-1] == '(' && ends_with(text, begin - 1, "IGNORED") ? begin : NULL;
}

/* Is it what is called, and listed? */
static bool is_ignored_by_name(const char *name, const char *comma, const char *call)
{
    static const char *const listed[] = {
#define NAME(name, reason) #name,
        CUDA_NEVER_TOLD(NAME) CUDA_UNTOLD_AT_THE_END(NAME)
#undef NAME
    };
    char said[64], called[64];

    snprintf(said, sizeof said, "%.*s", (int)(comma - name), name);
    snprintf(called, sizeof called, "%.*s", (int)strcspn(call, " (\n"), call);
    if (strncmp(called, "nccl.", 5) == 0)
        memmove(called + 4, called + 5, strlen(called + 5) + 1);
    else if (strncmp(called, "api->", 5) == 0)
        memcpy(called, "cudnn", 5);
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        if (strcmp(said, called) == 0 && strcmp(said, listed[i]) == 0)
            return true;
    return false;
}

static const char *opening_of(const char *text, const char *close)
{
    int depth = 0;

    for (const char *c = close; c >= text; c--) {
        depth += *c == ')' ? 1 : *c == '(' ? -1 : 0;
        if (depth == 0)
            return c;
    }
    return text;
}

/* Does anybody look at what the call at `at` returns? */
static bool is_used(const char *text, const char *at)
{
    const char *end = before(text, at);

    if (end == text || strchr(";{}", end[-1]) != NULL || ends_with(text, end, "else") ||
        ends_with(text, end, "do"))
        return false;
    if (end[-1] == ')') { /* a cast, or the head of a statement */
        const char *open = opening_of(text, end - 1);
        const bool is_void = (size_t)(end - open) == strlen("(void)") && strncmp(open, "(void)", 6) == 0;
        bool cast = end - open > 2;

        for (const char *c = open + 1; c < end - 1; c++)
            cast = cast && (is_word(*c) || *c == ' ' || *c == '*');
        end = before(text, open);
        if (is_void || !cast || (end > text && is_word(end[-1]) && !ends_with(text, end, "return")))
            return false;
        return is_used(text, open);
    }
    if (end[-1] == ':') { /* of a conditional, or a label */
        for (const char *c = end - 1; c >= text && strchr(";{}", *c) == NULL; c--)
            if (*c == '?')
                return true;
        return false;
    }
    return true;
}

static void look_at(const char *text, const char *path, const char *at, enum kind kind, struct found *found)
{
    const char *begin = at, *end;
    const char *name;
    int line = 1;

    while (begin > text && (is_word(begin[-1]) || strchr(".->", begin[-1]) != NULL)) /* of row->api->Create */
        begin--;
    end = before(text, begin);
    name = end > text && end[-1] == ',' ? ignored_name(text, end - 1) : NULL;

    found->n[kind]++;
    if (name != NULL && is_ignored_by_name(name, end - 1, at)) {
        found->n_ignored++;
        return;
    }
    if (name == NULL && is_used(text, begin))
        return;
    for (const char *c = text; c < at; c++)
        line += *c == '\n';
    if (found->n_unchecked++ == 0)
        snprintf(found->first, sizeof found->first, "%s:%d: %.60s", path, line, at);
}

/* Calls in `text`, which is changed. */
static void scan(char *text, const char *path, struct found *found)
{
    blank(text);
    for (char *c = text; *c != '\0'; c++) {
        if (c > text && is_word(c[-1]))
            continue;
        for (int kind = 0; kind < N_KINDS; kind++) {
            const size_t n = strlen(prefixes[kind]);
            const char *name = c + n, *end = name;

            if (strncmp(c, prefixes[kind], n) != 0 || (kind < KERNEL && !isupper((unsigned char)*name)))
                continue;
            while (is_word(*end))
                end++;
            while (*end == ' ')
                end++;
            if (*end != '(' || (kind == LAUNCHES && end != name) ||
                (kind == KERNEL && strstr(name, "scratch(") != NULL && strstr(name, "scratch(") < end))
                continue;
            if (strncmp(c, "cudaGetErrorString", 18) == 0 || strncmp(c, "cudaGetErrorName", 16) == 0 ||
                strncmp(c, "cublasLtGetStatusString", 23) == 0 || strncmp(c, "nccl.Get", 8) == 0 ||
                strncmp(c, "api->Get", 8) == 0)
                continue; /* words */
            look_at(text, path, c, (enum kind)kind, found);
        }
    }
}

static void scan_file(const char *path, struct found *found)
{
    static char text[1 << 17];
    FILE *file = fopen(path, "r");
    size_t n;

    cr_assert(file != NULL, "%s", path);
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    cr_assert(n < sizeof text - 1, "%s is too long to read", path);
    text[n] = '\0';
    scan(text, path, found);
}

static void scan_folder(const char *folder, struct found *found)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[512];

    cr_assert(dir != NULL, "%s", folder);
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');

        if (dot == NULL || (strcmp(dot, ".c") != 0 && strcmp(dot, ".cu") != 0 && strcmp(dot, ".h") != 0))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        scan_file(path, found);
    }
    closedir(dir);
}

Test(cuda_calls, every_result_is_looked_at)
{
    struct found found = { 0 };

    scan_folder("shard_runtime/cuda", &found);
    scan_folder("shard_runtime/cuda/kernels", &found);

    cr_expect_eq(found.n_unchecked, 0, "%zu calls without a check, the first is %s", found.n_unchecked,
                 found.first);
    cr_expect_geq(found.n[RUNTIME], 30, "%zu", found.n[RUNTIME]);
    cr_expect_geq(found.n[CUBLAS], 15, "%zu", found.n[CUBLAS]);
    cr_expect_geq(found.n[NCCL], 10, "%zu", found.n[NCCL]);
    cr_expect_geq(found.n[CUDNN], 6, "%zu", found.n[CUDNN]);
    cr_expect_geq(found.n[KERNEL], 30, "%zu", found.n[KERNEL]);
    cr_expect_geq(found.n[LAUNCHES], 20, "%zu", found.n[LAUNCHES]);
    cr_expect_geq(found.n_ignored, 8, "%zu", found.n_ignored);
}

static size_t unchecked(const char *text)
{
    struct found found = { 0 };
    char own[256];

    snprintf(own, sizeof own, "%s", text);
    scan(own, "planted", &found);
    return found.n_unchecked;
}

Test(cuda_calls, what_ignores_a_result_is_seen)
{
    static const char *const bad[] = {
        "{ cudaFree(p); }",
        "{ a(); cudaFree(p); }",
        "{ (void)cudaFree(p); }",
        "{ (void) cudaFree(p); }",
        "{ if (p) cudaFree(p); }",
        "{ if (f(p)) cudaFree(p); }",
        "{ if (p) a(); else cudaFree(p); }",
        "{ for (;;) kernel_cast(s); }",
        "{ case 1: cudaFree(p); }",
        "{ /* CUDA_TRY( */ cublasLtMatmul(h); }",
        "{ nccl.CommAbort(c); }",
        "{ (void)nccl.CommAbort(c); }",
        "{ IGNORED(cudaFree, cudaEventDestroy(p)); }",
        "{ IGNORED(cudaMalloc, cudaMalloc(p)); }",
        "{ LAUNCH(k, 1, 1, 0, s); }",
        "{ row->api->Create(&h); }",
        "{ (void)plan->target.api->BackendExecute(h); }",
        "{ \"(\"; cudaFree(p); }",
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_eq(unchecked(bad[i]), 1, "%s", bad[i]);
}

Test(cuda_calls, what_looks_at_a_result_is_let_be)
{
    static const char *const good[] = {
        "{ CUDA_TRY(d, cudaFree(p), err); }",
        "{ CUDA_NOTE(d, (cudaError_t)kernel_cast(s)); }",
        "{ e = cudaFree(p); }",
        "{ return cudaFree(p); }",
        "{ return (int)cudaFree(p); }",
        "{ if (cudaFree(p) != cudaSuccess) a(); }",
        "{ e = p ? cudaFree(p) : cudaFreeHost(p); }",
        "{ ok = a && cublasLtDestroy(h) == 0; }",
        "{ IGNORED(ncclCommAbort, nccl.CommAbort(c)); }",
        "{ IGNORED(cublasLtDestroy, cublasLtDestroy(h)); }",
        "{ s = check(api, row->api->Create(&h)); }",
        "{ IGNORED(cudnnDestroy, row->api->Destroy(h)); }",
        "/* cudaFree(p); */",
        "{ a(\"cudaFree(p);\"); }",
        "int kernel_cast(struct s *s);",
        "{ n = kernel_sum_scratch(3); }",
    };

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect_eq(unchecked(good[i]), 0, "%s", good[i]);
}
