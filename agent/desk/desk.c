#include "agent/desk/desk.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/core/exit_status.h"

enum { ACCEPT_AT_ONCE = 32, LOOK_MS = 250 };

enum waits_for {
    WAITS_FOR_NOTHING, /* the connection closes once the caller has taken the answer */
    WAITS_FOR_LINE,
    WAITS_FOR_CHANGE,
    WAITS_FOR_FORMING,
    WAITS_FOR_END
};

struct caller {
    struct desk *desk; /* NULL: the desk is closed */
    struct caller *next;
    int fd;
    uv_poll_t poll;
    enum waits_for waits_for;
    /* by uv_now(): when the caller's line must be complete, or its answer must be taken; 0: no deadline */
    uint64_t until_ms;
    char line[DESK_LINE_BYTES];
    size_t n_line;
    char *answer; /* bytes of an answer that the socket has not taken yet; NULL: none */
    size_t n_answer, n_sent;
    enum desk_word watches; /* of WAITS_FOR_CHANGE */
    uint64_t next_ms;       /* earliest time, by uv_now(), for the next line to a caller that watches */
    char *told;             /* the last line that a watching caller was sent; NULL: none yet */
};

struct desk {
    uv_loop_t *loop;
    struct desk_handlers handlers;
    int listen_fd;
    uv_poll_t listener;
    /* runs while a caller has a deadline, or while no more callers are accepted for lack of descriptors */
    uv_timer_t look;
    struct caller *callers; /* the newest first */
    int n_callers;
    bool paused; /* there is no descriptor for another connection */
    int n_handles;
};

static const char *const words[DESK_WORDS] = {
    [DESK_PS] = "ps",       [DESK_STATUS] = "status",       [DESK_INSPECT] = "inspect",
    [DESK_WATCH] = "watch", [DESK_WATCH_ALL] = "watch all", [DESK_STOP] = "stop",
    [DESK_SAVE] = "save",   [DESK_RESTART] = "restart",
};

const char *desk_word_text(enum desk_word word)
{
    return words[word];
}

/* Closing */

static void on_caller_closed(uv_handle_t *handle)
{
    struct caller *caller = handle->data;

    close(caller->fd);
    free(caller->answer);
    free(caller->told);
    free(caller);
}

static void hang_up(struct caller *caller)
{
    struct caller **at = &caller->desk->callers;

    while (*at != caller)
        at = &(*at)->next;
    *at = caller->next;
    caller->desk->n_callers--;
    caller->desk = NULL;
    uv_close((uv_handle_t *)&caller->poll, on_caller_closed);
}

/* Answering */

static void on_caller(uv_poll_t *poll, int status, int events);
static void on_connection(uv_poll_t *poll, int status, int events);
static void on_look(uv_timer_t *timer);

static void look_often(struct desk *desk)
{
    if (!uv_is_active((uv_handle_t *)&desk->look))
        uv_timer_start(&desk->look, on_look, LOOK_MS, LOOK_MS);
}

static void set_deadline(struct caller *caller)
{
    caller->until_ms = uv_now(caller->desk->loop) + DESK_MS;
    look_often(caller->desk);
}

/*
 * Send as much of the answer as the socket takes. Returns false if this closed the connection: it was broken,
 * or all is sent and the caller waits for nothing more.
 */
static bool send_more(struct caller *caller)
{
    while (caller->n_sent < caller->n_answer) {
        const ssize_t n = send(caller->fd, caller->answer + caller->n_sent, caller->n_answer - caller->n_sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (caller->until_ms == 0)
                set_deadline(caller);
            uv_poll_start(&caller->poll, UV_READABLE | UV_WRITABLE, on_caller);
            return true;
        }
        if (n <= 0) {
            hang_up(caller);
            return false;
        }
        caller->n_sent += (size_t)n;
    }
    free(caller->answer);
    caller->answer = NULL;
    caller->n_answer = caller->n_sent = 0;
    caller->until_ms = 0;
    if (caller->waits_for == WAITS_FOR_NOTHING) {
        hang_up(caller);
        return false;
    }
    uv_poll_start(&caller->poll, UV_READABLE, on_caller);
    return true;
}

/*
 * Queue a line of an answer, and send what the socket takes. `text` is freed. Returns what send_more()
 * returns.
 */
static bool say(struct caller *caller, struct json_text *text)
{
    json_add(text, "\n");
    if (!text->failed && caller->n_answer + text->length <= DESK_ANSWER_BYTES) {
        char *answer = realloc(caller->answer, caller->n_answer + text->length);

        if (answer != NULL) {
            memcpy(answer + caller->n_answer, text->bytes, text->length);
            caller->answer = answer;
            caller->n_answer += text->length;
            json_text_free(text);
            return send_more(caller);
        }
    }
    json_text_free(text);
    hang_up(caller);
    return false;
}

static bool refuse(struct caller *caller, int status, const char *reason)
{
    struct json_text text = { 0 };

    caller->waits_for = WAITS_FOR_NOTHING;
    json_open(&text, NULL, '{');
    json_field(&text, "refused", "%d", status);
    json_field_string(&text, "words", reason);
    json_close(&text, '}');
    return say(caller, &text);
}

static bool show(struct caller *caller, enum desk_word word)
{
    const struct desk_handlers *handlers = &caller->desk->handlers;
    struct json_text text = { 0 };

    caller->waits_for = WAITS_FOR_NOTHING;
    handlers->show(handlers->arg, word, &text);
    if (!text.failed && text.length < DESK_ANSWER_BYTES)
        return say(caller, &text);
    json_text_free(&text);
    return refuse(caller, FSDP_EXIT_IO, "the answer is too large");
}

/*
 * Tell a caller that watches what has changed since it was told last. Returns false if the connection is
 * closed.
 */
static bool tell(struct caller *caller)
{
    const struct desk_handlers *handlers = &caller->desk->handlers;
    const uint64_t now_ms = uv_now(caller->desk->loop);
    struct json_text text = { 0 };
    char *told;

    if (caller->answer != NULL || now_ms < caller->next_ms)
        return true;
    caller->next_ms = now_ms + DESK_WATCH_MS;
    handlers->show(handlers->arg, caller->watches, &text);
    if (text.failed || text.length >= DESK_ANSWER_BYTES) {
        json_text_free(&text);
        return refuse(caller, FSDP_EXIT_IO, "the answer is too large");
    }
    told = caller->told != NULL && strcmp(caller->told, text.bytes) == 0 ? NULL : strdup(text.bytes);
    if (told == NULL) { /* nothing new, or no memory now */
        json_text_free(&text);
        return true;
    }
    free(caller->told);
    caller->told = told;
    return say(caller, &text);
}

static bool watch(struct caller *caller, enum desk_word word)
{
    caller->waits_for = WAITS_FOR_CHANGE;
    caller->watches = word;
    look_often(caller->desk);
    if (!tell(caller))
        return false;
    uv_poll_start(&caller->poll, caller->answer != NULL ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_caller);
    return true;
}

static bool order(struct caller *caller, enum desk_word word)
{
    const struct desk_handlers *handlers = &caller->desk->handlers;
    char reason[DESK_REASON_BYTES] = "";
    struct json_text text = { 0 };
    int status;

    status = handlers->order(handlers->arg, word, reason);
    if (status != 0)
        return refuse(caller, status, reason);
    caller->waits_for = word == DESK_RESTART ? WAITS_FOR_FORMING : WAITS_FOR_END;
    json_open(&text, NULL, '{');
    json_field_bool(&text, "accepted", true);
    json_close(&text, '}');
    return say(caller, &text);
}

static bool take_line(struct caller *caller, const char *line)
{
    caller->until_ms = 0;
    for (int i = 0; i < DESK_WORDS; i++)
        if (strcmp(line, words[i]) == 0)
            return i >= DESK_STOP    ? order(caller, (enum desk_word)i)
                   : i >= DESK_WATCH ? watch(caller, (enum desk_word)i)
                                     : show(caller, (enum desk_word)i);
    return refuse(caller, FSDP_EXIT_USAGE, "this fsdprun knows no such question");
}

/* Read more of the caller's line, and act when it is complete. Returns false if the connection is closed. */
static bool read_line(struct caller *caller)
{
    const size_t room = sizeof caller->line - caller->n_line;
    const ssize_t n = recv(caller->fd, caller->line + caller->n_line, room, MSG_DONTWAIT);
    char *end;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0 || caller->waits_for != WAITS_FOR_LINE) {
        /*
         * the caller has closed its end, or sends a second line; an order that it gave before remains valid
         */
        hang_up(caller);
        return false;
    }
    caller->n_line += (size_t)n;
    end = memchr(caller->line, '\n', caller->n_line);
    if (end == NULL)
        return caller->n_line < sizeof caller->line ||
               refuse(caller, FSDP_EXIT_USAGE, "the line is too long");
    *end = '\0';
    caller->n_line = 0;
    return take_line(caller, caller->line);
}

static void on_caller(uv_poll_t *poll, int status, int events)
{
    struct caller *caller = poll->data;

    (void)status;
    if ((events & UV_WRITABLE) != 0 && !send_more(caller))
        return;
    if ((events & UV_READABLE) != 0)
        read_line(caller);
}

/* Close the connections whose time is over, and tell those that watch. */
static void on_look(uv_timer_t *timer)
{
    struct desk *desk = timer->data;
    bool any = false;

    for (struct caller *caller = desk->callers, *next; caller != NULL; caller = next) {
        next = caller->next;
        if (caller->until_ms != 0 && uv_now(desk->loop) >= caller->until_ms)
            hang_up(caller);
        else if (caller->waits_for != WAITS_FOR_CHANGE)
            any |= caller->until_ms != 0;
        else
            any |= tell(caller);
    }
    if (desk->paused) {
        desk->paused = false;
        uv_poll_start(&desk->listener, UV_READABLE, on_connection);
    }
    if (!any)
        uv_timer_stop(&desk->look);
}

/* Accepting */

static struct caller *oldest_of(const struct desk *desk, enum waits_for waits_for)
{
    struct caller *oldest = NULL;

    for (struct caller *caller = desk->callers; caller != NULL; caller = caller->next)
        if (caller->waits_for == waits_for)
            oldest = caller;
    return oldest;
}

/*
 * Make room for one more caller by closing a connection: the oldest that has sent no line yet, or else the
 * oldest that watches. Returns false if there is none of either kind.
 */
static bool make_room(struct desk *desk)
{
    struct caller *oldest;

    if (desk->n_callers < DESK_CONNECTIONS)
        return true;
    oldest = oldest_of(desk, WAITS_FOR_LINE);
    if (oldest == NULL)
        oldest = oldest_of(desk, WAITS_FOR_CHANGE);
    if (oldest != NULL)
        hang_up(oldest);
    return oldest != NULL;
}

static bool is_allowed(int fd)
{
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/*
 * Accepts a caller. If its line has come already, it is answered at once, so that no later caller can take
 * its place first.
 */
static void welcome(struct desk *desk, int fd)
{
    struct caller *caller = is_allowed(fd) && make_room(desk) ? calloc(1, sizeof *caller) : NULL;

    if (caller == NULL || uv_poll_init(desk->loop, &caller->poll, fd) != 0) {
        free(caller);
        close(fd);
        return;
    }
    caller->desk = desk;
    caller->fd = fd;
    caller->poll.data = caller;
    caller->waits_for = WAITS_FOR_LINE;
    caller->next = desk->callers;
    desk->callers = caller;
    desk->n_callers++;
    set_deadline(caller);
    if (read_line(caller) && caller->waits_for == WAITS_FOR_LINE)
        uv_poll_start(&caller->poll, UV_READABLE, on_caller);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct desk *desk = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        const int fd = accept4(desk->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            welcome(desk, fd);
            continue;
        }
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            /*
             * no descriptors are left; the listening socket stays readable, so watching it would keep the
             * loop busy
             */
            desk->paused = true;
            uv_poll_stop(poll);
            uv_timer_start(&desk->look, on_look, LOOK_MS, LOOK_MS);
        }
        return;
    }
}

/* Opening and closing */

static void on_desk_closed(uv_handle_t *handle)
{
    struct desk *desk = handle->data;

    if (--desk->n_handles == 0) {
        close(desk->listen_fd);
        free(desk);
    }
}

enum fsdp_status desk_open(struct desk **out, uv_loop_t *loop, int listen_fd,
                           const struct desk_handlers *handlers, struct fsdp_err *err)
{
    struct desk *desk = calloc(1, sizeof *desk);
    int error = desk == NULL ? UV_ENOMEM : uv_poll_init(loop, &desk->listener, listen_fd);

    *out = NULL;
    if (error != 0) {
        free(desk);
        close(listen_fd);
        return fsdp_fail(err, FSDP_ERR_IO, "the socket of the run: %s", uv_strerror(error));
    }
    desk->loop = loop;
    desk->handlers = *handlers;
    desk->listen_fd = listen_fd;
    desk->n_handles = 2;
    uv_timer_init(loop, &desk->look);
    desk->listener.data = desk->look.data = desk;
    uv_poll_start(&desk->listener, UV_READABLE, on_connection);
    *out = desk;
    return FSDP_OK;
}

void desk_formed(struct desk *desk, int generation)
{
    if (desk == NULL)
        return;
    for (struct caller *caller = desk->callers, *next; caller != NULL; caller = next) {
        struct json_text text = { 0 };

        next = caller->next;
        if (caller->waits_for != WAITS_FOR_FORMING)
            continue;
        caller->waits_for = WAITS_FOR_NOTHING;
        json_open(&text, NULL, '{');
        json_field(&text, "generation", "%d", generation);
        json_close(&text, '}');
        say(caller, &text);
    }
}

void desk_close(struct desk *desk, int status, const char *line)
{
    if (desk == NULL)
        return;
    while (desk->callers != NULL) {
        struct caller *caller = desk->callers;
        struct json_text text = { 0 };

        if (caller->waits_for == WAITS_FOR_FORMING || caller->waits_for == WAITS_FOR_END) {
            caller->waits_for = WAITS_FOR_NOTHING;
            json_open(&text, NULL, '{');
            json_field(&text, "ended", "%d", status);
            json_field_string(&text, "words", line);
            json_close(&text, '}');
            if (!say(caller, &text))
                continue;
        }
        hang_up(caller);
    }
    uv_close((uv_handle_t *)&desk->listener, on_desk_closed);
    uv_close((uv_handle_t *)&desk->look, on_desk_closed);
}
