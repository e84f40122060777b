#include "agent/daemon/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/spelling.h"

enum { LONGEST_BYTES = 65536, LINE_BYTES = 256, SHOWN_BYTES = 40 };

static bool read_truth(const char *value, bool *truth)
{
    *truth = strcmp(value, "yes") == 0;
    return *truth || strcmp(value, "no") == 0;
}

/* A number of bytes with K, M, G or T after it, or "none", which is 0. */
static bool read_bytes(const char *value, int64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    const char *unit;
    long long number;
    int shift = 0;

    *bytes = 0;
    if (strcmp(value, "none") == 0)
        return true;
    if (*value < '0' || *value > '9')
        return false;
    errno = 0;
    number = strtoll(value, &end, 10);
    if (*end != '\0') {
        unit = strchr(units, *end);
        if (unit == NULL || end[1] != '\0')
            return false;
        shift = 10 * (int)(unit - units + 1);
    }
    if (errno != 0 || number <= 0 || number > INT64_MAX >> shift)
        return false;
    *bytes = (int64_t)number << shift;
    return true;
}

static bool drain(struct settings *settings, const char *value)
{
    return read_truth(value, &settings->drain);
}

static bool job_memory_max(struct settings *settings, const char *value)
{
    return read_bytes(value, &settings->job_memory_max);
}

static const struct {
    const char *name, *form;
    bool (*take)(struct settings *settings, const char *value);
} keys[] = {
    { "drain", "yes or no", drain },
    { "job_memory_max", "a number of bytes such as 4096 or 64G, or none", job_memory_max },
};

enum { N_KEYS = sizeof keys / sizeof *keys };

static enum fsdp_status no_such_key(const char *name, const char *path, int number, struct fsdp_err *err)
{
    char hint[SPELLING_HINT_BYTES];
    const char *near = NULL;
    size_t best = (size_t)-1;

    for (int i = 0; i < N_KEYS; i++)
        if (spelling_is_close(name, keys[i].name, &best))
            near = keys[i].name;
    return fsdp_fail(err, FSDP_ERR_CONFIG, "%s:%d: there is no key \"%.*s\"%s", path, number, SHOWN_BYTES,
                     name, spelling_hint(near, hint));
}

/* Remove blanks at both ends of text[0..length), and end it with a zero byte. */
static char *trim(char *text, size_t length)
{
    while (length > 0 && strchr(" \t\r", text[length - 1]) != NULL)
        length--;
    text[length] = '\0';
    return text + strspn(text, " \t");
}

/* Take one line of the file. `given` has a bit for each key that an earlier line has set. */
static enum fsdp_status take_line(struct settings *settings, char *line, unsigned *given, const char *path,
                                  int number, struct fsdp_err *err)
{
    char *const equals = strchr(line, '=');
    const char *name, *value;

    if (equals == NULL)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s:%d: a line is KEY = VALUE", path, number);
    value = trim(equals + 1, strlen(equals + 1));
    name = trim(line, (size_t)(equals - line));
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(name, keys[i].name) != 0)
            continue;
        if ((*given >> i & 1) != 0)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s:%d: %s is given twice", path, number, name);
        *given |= 1U << i;
        if (!keys[i].take(settings, value))
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s:%d: %s is %s, not \"%.*s\"", path, number, name,
                             keys[i].form, SHOWN_BYTES, value);
        return FSDP_OK;
    }
    return no_such_key(name, path, number, err);
}

enum fsdp_status settings_parse(struct settings *settings, const char *text, const char *path,
                                struct fsdp_err *err)
{
    struct settings read = { 0 };
    char copy[LINE_BYTES], *line;
    unsigned given = 0;

    for (int number = 1; *text != '\0'; number++) {
        const size_t length = strcspn(text, "\n"), used = strcspn(text, "#\n");
        enum fsdp_status status;

        if (used >= sizeof copy)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "%s:%d: the line is too long", path, number);
        memcpy(copy, text, used);
        line = trim(copy, used);
        status = *line == '\0' ? FSDP_OK : take_line(&read, line, &given, path, number, err);
        if (status != FSDP_OK)
            return status;
        text += length + (text[length] == '\n');
    }
    *settings = read;
    return FSDP_OK;
}

enum fsdp_status settings_load(struct settings *settings, const char *path, struct fsdp_err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum fsdp_status status;
    size_t length;
    char *text;

    if (fd < 0 && errno == ENOENT)
        return settings_parse(settings, "", path, err);
    if (fd < 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: %s", path, strerror(errno));
    status = file_read(fd, LONGEST_BYTES + 1, &text, &length);
    if (status == FSDP_ERR_NOMEM)
        fsdp_fail(err, status, "%s: no memory", path);
    else if (status != FSDP_OK)
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "%s: %s", path, strerror(errno));
    else if (length > LONGEST_BYTES || strlen(text) != length)
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "%s: this is no configuration: %s", path,
                           length > LONGEST_BYTES ? "it is too long" : "it has zero bytes");
    else
        status = settings_parse(settings, text, path, err);
    free(text);
    close(fd);
    return status;
}
