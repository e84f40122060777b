#include "agent/watch/python_stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MOST = 100 };

/* Parts of paths of code that belongs to libraries, not to the program itself. */
static const char *const foreign[] = { "/site-packages/", "/dist-packages/", "/lib/python", "<frozen " };
/* Parts of paths of code in which a rank waits for other ranks, or for its GPU. */
static const char *const waiting[] = { "/torch/distributed/", "/torch/cuda/", "/torch/autograd/",
                                       "/torch/nn/parallel/" };

/* One line of the text: from `at`, without its newline. */
struct line {
    const char *at;
    size_t n;
};

static bool next_line(struct line *line, const char **rest, const char *end)
{
    const char *newline;

    if (*rest >= end)
        return false;
    newline = memchr(*rest, '\n', (size_t)(end - *rest));
    *line = (struct line){ *rest, (size_t)((newline == NULL ? end : newline) - *rest) };
    *rest = newline == NULL ? end : newline + 1;
    return true;
}

static bool begins(const struct line *line, const char *word)
{
    return line->n >= strlen(word) && memcmp(line->at, word, strlen(word)) == 0;
}

static bool contains(const struct line *text, const char *part)
{
    return memmem(text->at, text->n, part, strlen(part)) != NULL;
}

/* The parts of a line '  File "PATH", line N in FUNCTION'. */
struct frame {
    struct line path, number, function;
};

static bool read_frame(struct frame *frame, const struct line *line)
{
    static const char file[] = "  File \"", number[] = "\", line ", in[] = " in ";
    const char *end = line->at + line->n, *path = line->at + sizeof file - 1, *quote, *word;

    if (!begins(line, file))
        return false;
    quote = memmem(path, (size_t)(end - path), number, sizeof number - 1);
    if (quote == NULL)
        return false;
    frame->path = (struct line){ path, (size_t)(quote - path) };
    frame->number.at = quote + sizeof number - 1;
    word = memmem(frame->number.at, (size_t)(end - frame->number.at), in, sizeof in - 1);
    if (word == NULL)
        return false;
    frame->number.n = (size_t)(word - frame->number.at);
    frame->function = (struct line){ word + sizeof in - 1, (size_t)(end - (word + sizeof in - 1)) };
    return true;
}

static bool is_own(const struct frame *frame)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (contains(&frame->path, foreign[i]))
            return false;
    return true;
}

static bool is_waiting(const struct frame *frame)
{
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        if (contains(&frame->path, waiting[i]))
            return true;
    return false;
}

static void add_frame(struct python_stack *stack, const struct frame *frame, const char *directory)
{
    const size_t length = directory == NULL ? 0 : strlen(directory);
    struct line path = frame->path;
    char *to;

    /*
     * Frames come innermost first. Only library frames before the program's own code show whether it waits.
     */
    if (stack->own < 0 && is_waiting(frame))
        stack->waits = true;
    if (stack->own < 0 && is_own(frame))
        stack->own = stack->n_frames;
    if (length > 0 && path.n > length + 1 && memcmp(path.at, directory, length) == 0 &&
        path.at[length] == '/') {
        path.at += length + 1;
        path.n -= length + 1;
    }
    if (path.n > PATH_MOST) { /* the end of a path says more than its beginning */
        path.at += path.n - PATH_MOST;
        path.n = PATH_MOST;
    }
    to = stack->frames[stack->n_frames++];
    snprintf(to, PYTHON_STACK_FRAME_BYTES, "%.*s:%.*s in %.*s", (int)path.n, path.at,
             frame->number.n > 8 ? 8 : (int)frame->number.n, frame->number.at,
             frame->function.n > 40 ? 40 : (int)frame->function.n, frame->function.at);
    for (; *to != '\0'; to++)
        if ((unsigned char)*to < 0x20 || (unsigned char)*to > 0x7e)
            *to = '?';
}

bool python_stack_take(struct python_stack *stack, const char *text, size_t n, const char *directory)
{
    const char *rest = text, *end = text + n;
    struct frame frame;
    struct line line;
    bool in_thread = false, seen_current = false;
    int n_threads = 0;

    *stack = (struct python_stack){ .own = -1 };
    while (next_line(&line, &rest, end)) {
        const bool is_current = begins(&line, "Current thread ");

        if (is_current || begins(&line, "Thread ")) {
            n_threads++;
            in_thread = is_current || !seen_current;
            seen_current = seen_current || is_current;
            if (in_thread)
                *stack = (struct python_stack){ .own = -1 };
        } else if (in_thread && stack->n_frames < PYTHON_STACK_FRAMES && read_frame(&frame, &line)) {
            add_frame(stack, &frame, directory);
        }
    }
    stack->n_threads = n_threads;
    if (stack->n_frames == 0)
        *stack = (struct python_stack){ .own = -1 };
    return stack->n_frames > 0;
}

const char *python_stack_line(const struct python_stack *stack)
{
    return stack->n_frames == 0 ? "" : stack->frames[stack->own >= 0 ? stack->own : 0];
}
