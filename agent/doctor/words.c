#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "agent/doctor/checks.h"
#include "agent/os/small_file.h"

enum doctor_state doctor_say(enum doctor_state state, char value[DOCTOR_VALUE_BYTES], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(value, DOCTOR_VALUE_BYTES, format, args);
    va_end(args);
    return state;
}

const char *doctor_size(char out[32], int64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1023.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024.0;
        unit++;
    }
    snprintf(out, 32, unit == 0 || value >= 99.5 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

enum doctor_state doctor_least(int64_t number, int64_t warn, int64_t fail)
{
    return number < 0 || number >= warn ? DOCTOR_OK : number >= fail ? DOCTOR_WARN : DOCTOR_FAIL;
}

static bool read_line(const struct doctor_host *host, char *out, size_t size, const char *format,
                      va_list args)
{
    char path[SMALL_FILE_PATH_BYTES];
    bool found;

    vsnprintf(path, sizeof path, format, args);
    found = small_file_read(out, size, "%s%s", host->root, path);
    out[strcspn(out, "\n")] = '\0';
    return found;
}

bool doctor_line(const struct doctor_host *host, char *out, size_t size, const char *format, ...)
{
    va_list args;
    bool found;

    va_start(args, format);
    found = read_line(host, out, size, format, args);
    va_end(args);
    return found;
}

int64_t doctor_number(const struct doctor_host *host, const char *format, ...)
{
    char text[64];
    va_list args;
    bool found;

    va_start(args, format);
    found = read_line(host, text, sizeof text, format, args);
    va_end(args);
    return found && isdigit((unsigned char)text[0]) ? strtoll(text, NULL, 10) : -1;
}

const char *doctor_env(const struct doctor_host *host, const char *name)
{
    const char *value = host->get_env(host->arg, name);

    return value == NULL || value[0] == '\0' ? NULL : value;
}
