#include "launcher/talk.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/core/json.h"

enum { READ_BYTES = 65536 };

void talk_begin(struct talk *talk, const struct registry_list *list, const struct registry_job *job,
                enum desk_word word)
{
    char line[DESK_LINE_BYTES];
    const int n = snprintf(line, sizeof line, "%s\n", desk_word_text(word));

    talk->fd = registry_connect(list, job);
    if (talk->fd < 0) {
        talk->over = errno != EAGAIN;
    } else if (send(talk->fd, line, (size_t)n, MSG_NOSIGNAL) != n) {
        close(talk->fd);
        talk->fd = -1;
        talk->over = true;
    }
}

void talk_end(struct talk *talk)
{
    if (talk->fd >= 0)
        close(talk->fd);
    talk->fd = -1;
    talk->over = true;
}

void talk_take(struct talk *talk)
{
    char *bytes = realloc(talk->bytes, talk->n_bytes + READ_BYTES);
    ssize_t n;

    if (bytes == NULL) {
        talk_end(talk);
        return;
    }
    talk->bytes = bytes;
    n = recv(talk->fd, bytes + talk->n_bytes, READ_BYTES, MSG_DONTWAIT);
    if (n > 0 && talk->n_bytes + (size_t)n <= 2 * DESK_ANSWER_BYTES)
        talk->n_bytes += (size_t)n;
    else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
        talk_end(talk);
}

struct cJSON *talk_next_line(struct talk *talk)
{
    const char *newline = talk->n_bytes == 0 ? NULL : memchr(talk->bytes, '\n', talk->n_bytes);
    cJSON *object;
    size_t n;

    if (newline == NULL)
        return NULL;
    n = (size_t)(newline - talk->bytes) + 1;
    object = json_parse_object(talk->bytes, n - 1);
    talk->n_bytes -= n;
    memmove(talk->bytes, talk->bytes + n, talk->n_bytes);
    return object;
}
