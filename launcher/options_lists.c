#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options.h"
#include "shard_runtime/core/require.h"

/* Reads a number of at most nine digits at *at, and moves *at to the character after it. */
static bool take_number(const char **at, int64_t *out)
{
    size_t n = strspn(*at, "0123456789");

    *out = 0;
    if (n == 0 || n > 9)
        return false;
    for (size_t i = 0; i < n; i++)
        *out = *out * 10 + ((*at)[i] - '0');
    *at += n;
    return true;
}

/* Sets out[rank] to `value`. With n_ranks 0 it sets nothing: there is no `out`. */
static enum fsdp_status set_rank(unsigned char *out, int n_ranks, int64_t rank, int64_t value,
                                 struct fsdp_err *err)
{
    if (n_ranks > 0 && rank >= n_ranks)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "names local rank %" PRId64 " of %d (the first is 0)", rank,
                         n_ranks);
    if (n_ranks > 0)
        out[rank] = (unsigned char)value;
    return FSDP_OK;
}

enum fsdp_status options_streams(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err)
{
    const char *at = text;
    int64_t rank, streams;

    memset(out, 0, (size_t)n_ranks);
    if (take_number(&at, &streams) && *at == '\0' && streams <= 3) {
        memset(out, (int)streams, (size_t)n_ranks);
        return FSDP_OK;
    }
    for (at = text;; at++) {
        bool good = take_number(&at, &rank) && *at++ == ':' && take_number(&at, &streams) && streams <= 3 &&
                    (*at == ',' || *at == '\0');

        if (!good)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "must be 0, 1, 2, 3 or RANK:N,RANK:N,..., not %.60s",
                             option_text(text));
        OK_OR_RETURN(set_rank(out, n_ranks, rank, streams, err));
        if (*at == '\0')
            return FSDP_OK;
    }
}

enum fsdp_status options_ranks(const char *text, int n_ranks, unsigned char *out, struct fsdp_err *err)
{
    int64_t rank;

    memset(out, 0, (size_t)n_ranks);
    for (const char *at = text;; at++) {
        if (!take_number(&at, &rank) || (*at != ',' && *at != '\0'))
            return fsdp_fail(err, FSDP_ERR_CONFIG, "must be local ranks as 0,2,11, not %.60s",
                             option_text(text));
        OK_OR_RETURN(set_rank(out, n_ranks, rank, 1, err));
        if (*at == '\0')
            return FSDP_OK;
    }
}

enum fsdp_status options_patterns(const char *text, char ***out, struct fsdp_err *err)
{
    size_t n = 1, length = strlen(text);
    char **list = NULL, *to = NULL, *begin;

    for (const char *c = text; *c != '\0'; c++)
        n += *c == ',';
    list = malloc((n + 1) * sizeof *list + length + 1);
    if (list == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the texts");
    begin = to = (char *)(list + n + 1);
    n = 0;
    for (const char *c = text;; c++) {
        bool escaped = c[0] == ',' && c[1] == ',';

        if (*c != '\0' && (*c != ',' || escaped)) {
            *to++ = *c;
            c += escaped;
            continue;
        }
        *to++ = '\0';
        if (*begin == '\0') {
            free(list);
            return fsdp_fail(err, FSDP_ERR_CONFIG,
                             "must be texts with commas between them, none empty, not %.60s",
                             option_text(text));
        }
        list[n++] = begin;
        begin = to;
        if (*c == '\0')
            break;
    }
    list[n] = NULL;
    if (out != NULL)
        *out = list;
    else
        free(list);
    return FSDP_OK;
}

/* Returns the signal with that name, with or without SIG, in upper or lower case. 0: there is none. */
static int signal_named(const char *name, size_t length)
{
    char upper[16];

    if (length >= sizeof upper)
        return 0;
    for (size_t i = 0; i < length; i++)
        upper[i] = (char)toupper((unsigned char)name[i]);
    upper[length] = '\0';
    for (int s = 1; s < 32; s++) {
        const char *known = sigabbrev_np(s);

        if (known != NULL && strcmp(strncmp(upper, "SIG", 3) == 0 ? upper + 3 : upper, known) == 0)
            return s;
    }
    return 0;
}

/* No process can handle KILL and STOP. The other signals here are for job control, or report on children. */
static bool can_be_handled(int s)
{
    return s != SIGKILL && s != SIGSTOP && s != SIGCHLD && s != SIGCONT && s != SIGTSTP && s != SIGTTIN &&
           s != SIGTTOU;
}

enum fsdp_status options_signals(const char *text, uint64_t *set, struct fsdp_err *err)
{
    *set = 0;
    for (const char *at = text;; at++) {
        const char *name = at + strspn(at, " ");
        size_t length = strcspn(name, ","), trimmed = length;
        int s;

        while (trimmed > 0 && name[trimmed - 1] == ' ')
            trimmed--;
        s = signal_named(name, trimmed);
        if (s == 0)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "must be names of signals, as SIGTERM,USR1; %.*s is none",
                             trimmed == 0 ? 7 : (int)(trimmed < 40 ? trimmed : 40),
                             trimmed == 0 ? "nothing" : name);
        if (!can_be_handled(s))
            return fsdp_fail(err, FSDP_ERR_CONFIG, "SIG%s cannot be handled", sigabbrev_np(s));
        *set |= UINT64_C(1) << s;
        at = name + length;
        if (*at == '\0')
            return FSDP_OK;
    }
}
