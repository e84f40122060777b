#include "launcher/agent_jobs.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/control_proto.h"
#include "agent/wire/frame.h"
#include "shard_runtime/core/clock.h"

enum { NO_GROUP = 65534 }; /* the group of that number owns no files: nogroup, nfsnobody */

/*
 * Connects to the socket, which takes at most `patience_ms`. If `any_user` is set, root may connect to the
 * agent of any user.
 */
static enum fsdp_status connect_to(const char *path, bool any_user, int patience_ms, int *fd, uid_t *owner,
                                   struct fsdp_err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const struct timeval patience = { patience_ms / 1000, patience_ms % 1000 * 1000 };
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;
    struct stat at;

    *fd = -1;
    if (path[0] == '\0' || strlen(path) >= sizeof address.sun_path)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "--agent: a socket's path has 1 to %zu bytes",
                         sizeof address.sun_path - 1);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* also the limit of connect(), which waits while the agent accepts no client */
    if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0 ||
        connect(*fd, (struct sockaddr *)&address, sizeof address) < 0)
        fsdp_fail(err, FSDP_ERR_PEER, "no agent serves %s: %s", path, strerror(errno));
    else if (getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
             (peer.uid != geteuid() && peer.uid != 0 && !(any_user && geteuid() == 0)))
        fsdp_fail(err, FSDP_ERR_PEER, "the agent at %s is another user's", path);
    else {
        *owner = peer.uid == 0 && stat(path, &at) == 0 ? at.st_uid : peer.uid;
        return FSDP_OK;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return FSDP_ERR_PEER;
}

enum fsdp_status agent_connect(const char *path, int *fd, uid_t *owner, struct fsdp_err *err)
{
    return connect_to(path, false, AGENT_PATIENCE_MS, fd, owner, err);
}

/* Waits for the agent's one answer. Returns false if there is none in time; `frame` is the parser's. */
static bool receive_answer(int fd, int patience_ms, struct frame_parser *parser, struct frame *frame)
{
    const int64_t until_ms = clock_now_ms() + patience_ms;
    unsigned char bytes[4096];
    int64_t left_ms;

    while ((left_ms = until_ms - clock_now_ms()) > 0) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        ssize_t n;

        if (poll(&readable, 1, (int)left_ms) < 0 && errno != EINTR)
            return false;
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0 || frame_parser_feed(parser, bytes, (size_t)n, NULL) != FSDP_OK ||
            frame_parser_next(parser, frame, NULL) != FSDP_OK)
            return false;
        if (frame->payload != NULL)
            return true;
    }
    return false;
}

/* Adds the jobs that the agent names. A folder that is refused hides only the jobs that are in it. */
static enum fsdp_status add_jobs(struct registry_list *list, const char *path, uid_t owner,
                                 const struct frame *answer, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct control_place place;
    char words[CONTROL_WORDS_BYTES + 1];
    uint32_t number;
    size_t at = 0;
    int more = answer->type == CONTROL_JOBS ? 1 : -1;

    if (answer->type == CONTROL_REFUSED &&
        control_decode_words(answer->payload, answer->size, &number, words, sizeof words))
        return fsdp_fail(err, FSDP_ERR_PEER, "the agent at %s refuses: %s", path, words);
    while (more > 0 && (status == FSDP_OK || status == FSDP_ERR_CONFIG) &&
           (more = control_take_place(answer->payload, answer->size, &at, &place)) > 0) {
        const enum fsdp_status one =
            registry_add(list, owner, (pid_t)place.pid, place.runtime_dir, place.temporary, err);

        if (one != FSDP_OK)
            status = one;
    }
    return more < 0 ? fsdp_fail(err, FSDP_ERR_PEER, "the agent at %s says what no agent says", path) : status;
}

/*
 * Root that asks another user's agent goes on as that user, for good. So whatever the agent and its jobs
 * name, files, links and sockets, is read with no more rights than that user has.
 */
static enum fsdp_status become(uid_t owner, struct fsdp_err *err)
{
    if (owner == geteuid() || geteuid() != 0)
        return FSDP_OK;
    if (setgroups(0, NULL) < 0 || setresgid(NO_GROUP, NO_GROUP, NO_GROUP) < 0 ||
        setresuid(owner, owner, owner) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "cannot become user %u: %s", owner, strerror(errno));
    return FSDP_OK;
}

static enum fsdp_status ask(struct registry_list *list, const char *path, bool any_user, int patience_ms,
                            struct fsdp_err *err)
{
    const struct frame question = { .type = CONTROL_JOBS, .size = 4 };
    unsigned char bytes[FRAME_HEAD_BYTES + 4];
    struct frame_parser parser;
    struct frame answer;
    enum fsdp_status status;
    uid_t owner;
    int fd;

    if (connect_to(path, any_user, patience_ms, &fd, &owner, err) != FSDP_OK)
        return FSDP_ERR_PEER; /* also for a path that no socket can have */
    frame_parser_init(&parser, CONTROL_JOBS_BYTES);
    frame_write_head(bytes, &question);
    control_encode_number(bytes + FRAME_HEAD_BYTES, 0);
    if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != (ssize_t)sizeof bytes ||
        !receive_answer(fd, patience_ms, &parser, &answer))
        status = fsdp_fail(err, FSDP_ERR_PEER, "the agent at %s does not answer", path);
    else if ((status = become(owner, err)) == FSDP_OK)
        status = add_jobs(list, path, owner, &answer, err);
    frame_parser_fini(&parser);
    close(fd);
    return status;
}

static const char *agent_of_environment(void)
{
    const char *agent = getenv("FSDPRUN_AGENT");

    return agent != NULL && agent[0] != '\0' ? agent : NULL;
}

enum fsdp_status agent_jobs_read(struct registry_list *list, const char *agent, const char *run,
                                 int patience_ms, struct fsdp_err *err)
{
    const bool is_alone = agent != NULL;
    enum fsdp_status status = FSDP_OK;
    struct stat at;

    *list = (struct registry_list){ 0 };
    if (agent == NULL) {
        status = registry_read(list, err);
        agent = agent_of_environment();
    }
    if ((status == FSDP_OK || status == FSDP_ERR_CONFIG) && agent != NULL) {
        const enum fsdp_status asked = ask(list, agent, is_alone, patience_ms, err);

        if (asked != FSDP_OK)
            status = asked;
    }
    if (status == FSDP_OK || run == NULL || stat(run, &at) < 0 || !S_ISDIR(at.st_mode))
        return status;
    fsdp_err_clear(err);
    return FSDP_OK;
}

bool agent_jobs_are_asked(const char *agent)
{
    return agent != NULL || agent_of_environment() != NULL;
}
