/*
 * Ten thousand mutations of sound job files, the same ones every time. Whatever comes in, the reader ends,
 * leaks nothing, and either takes the file or says what is wrong with it.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/unit/job/resolve_text.h"

enum { MAX_BYTES = 4096 };

static const char *const seeds[] = {
    "run: {name: a, dir: runs, seed: 1234}\ndata: {path: /d, tokenizer: byte}\n"
    "model: {layers: 2, dim: 64, heads: 4, vocab: 256}\noptimizer: {betas: [0.9, 0.95], lr: 1.0e-3}\n",
    "# comment\n---\ndata:\n  path: \"/a b\"\n  order: sequential\ntrain:\n  steps: 10\n  global_batch: "
    "null\n"
    "parallel:\n  reshard_after_forward: true\n  output_dtype: ~\n...\n",
    "data: {path: '/d''x'}\nrun:\n  name: >-\n    folded\n    text\n  dir: |\n    literal\nlaunch: {threads: "
    "auto}\n",
};

/* What breaks parsers: structure characters, marks of every feature, bytes that are no UTF-8. */
static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    ",",
    "\n",
    "  ",
    "\t",
    "#",
    "&a ",
    "*a",
    "!!int ",
    "<<: ",
    "? ",
    "- ",
    "\"",
    "'",
    "|\n",
    ">\n",
    "%YAML 1.1\n",
    "---\n",
    "...\n",
    "\xff",
    "\xef\xbb\xbf",
    "\xc3\xa9",
    "\xed\xa0\x80",
    "\x01",
    "\xe2\x80\xa8",
    "\\u0000",
    "\\x",
    "null",
    "true",
    "1e999",
    "-0",
    "99999999999999999999",
    "[[[[[[[[[[[[[[[[[[",
    "model:\n  dim: 4\n",
};

static uint64_t next(uint64_t *state)
{
    /* splitmix64: Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t splice(char *text, size_t length, size_t at, size_t n_removed, const char *piece)
{
    size_t n = strlen(piece);

    if (length - n_removed + n > MAX_BYTES)
        return length;
    memmove(text + at + n, text + at + n_removed, length - at - n_removed);
    memcpy(text + at, piece, n);
    return length - n_removed + n;
}

static size_t mutate(char *text, size_t length, uint64_t *state)
{
    size_t at = next(state) % (length + 1), left = length - at;
    size_t n = left == 0 ? 0 : next(state) % (left < 12 ? left : 12);

    switch (next(state) % 5) {
    case 0:
        return splice(text, length, at, 0, pieces[next(state) % (sizeof pieces / sizeof *pieces)]);
    case 1:
        return splice(text, length, at, n, "");
    case 2:
        return splice(text, length, at, n, pieces[next(state) % (sizeof pieces / sizeof *pieces)]);
    case 3:
        if (left > 0)
            text[at] = (char)(text[at] ^ (1 << next(state) % 8));
        return length;
    default:
        return at; /* cut short */
    }
}

Test(job_mutations, each_is_taken_or_refused_with_a_reason, .timeout = 3000)
{
    char text[MAX_BYTES + 1], lines[8192];
    uint64_t state = 20261121;
    int n_taken = 0, n_refused = 0;

    for (int i = 0; i < 10000; i++) {
        struct job_origins origins;
        struct job job;
        const char *seed = seeds[i % 3];
        size_t length = strlen(seed);

        memcpy(text, seed, length);
        for (uint64_t n = 1 + next(&state) % 4; n > 0 && length > 0; n--)
            length = mutate(text, length, &state);
        text[length] = '\0';

        enum fsdp_status status = resolve_text(&job, &origins, text, length, NULL, 0, lines, sizeof lines);

        if (status == FSDP_OK) {
            cr_assert(eq(str, lines, ""));
            job_free(&job);
            n_taken++;
        } else {
            cr_assert(eq(int, status, FSDP_ERR_CONFIG));
            cr_assert(eq(int, strncmp(lines, "t.yaml:", 7), 0), "mutation %d: %s", i, lines);
            n_refused++;
        }
    }

    cr_assert(n_taken > 100 && n_refused > 1000, "%d taken, %d refused: the mutations test one side only",
              n_taken, n_refused);
}
