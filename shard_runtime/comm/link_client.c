#include "shard_runtime/comm/link_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/comm/link_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"

/* Fills in what an agent would have sent to a world of one rank. */
static enum fsdp_status open_alone(struct link *link, struct fsdp_err *err)
{
    link->hello = (struct fsdp_link_hello){ .world_size = 1,
                                            .local_world_size = 1,
                                            .n_nodes = 1,
                                            .threads = 1,
                                            .resume_step = -1,
                                            .node_address = "127.0.0.1" };
    link->progress =
        mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (link->progress == MAP_FAILED) {
        link->progress = NULL;
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a progress page: %s", strerror(errno));
    }
    link->progress->magic = FSDP_PROGRESS_MAGIC;
    link->progress->version = FSDP_PROGRESS_VERSION;
    return FSDP_OK;
}

static enum fsdp_status map_progress(struct link *link, struct fsdp_err *err)
{
    struct fsdp_progress *page;
    struct stat st;

    if (link->packet->fd < 0 || fstat(link->packet->fd, &st) < 0 || st.st_size < FSDP_PROGRESS_BYTES)
        return link_break(link, FSDP_ERR_FORMAT, "the agent's hello came without a progress page", err);
    page = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, link->packet->fd, 0);
    if (page == MAP_FAILED)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "mapping the progress page: %s", strerror(errno));
    link->progress = page;
    if (page->magic == 0 && page->version == 0) { /* the page is new, so this process lays it out */
        page->magic = FSDP_PROGRESS_MAGIC;
        page->version = FSDP_PROGRESS_VERSION;
    }
    if (page->magic != FSDP_PROGRESS_MAGIC || page->version != FSDP_PROGRESS_VERSION)
        return link_break(link, FSDP_ERR_FORMAT, "the agent's progress page is of another version", err);
    atomic_store_explicit(&page->phase, FSDP_PHASE_OPEN, memory_order_relaxed);
    atomic_store_explicit(&page->pass, FSDP_PHASE_OPEN, memory_order_relaxed);
    link_alive(link); /* shows the agent that the process uses the link */
    return FSDP_OK;
}

/* Checks the numbers that later code divides by and indexes with, and that the strings end. */
static bool hello_is_sound(const struct fsdp_link_hello *h)
{
    return h->world_size >= 1 && h->world_size <= INT_MAX && h->rank < h->world_size &&
           h->local_world_size >= 1 && h->local_world_size <= h->world_size &&
           h->local_rank < h->local_world_size && h->n_nodes >= 1 && h->n_nodes <= h->world_size &&
           (h->n_nodes == 1 || (h->lease_ms > 0 && h->lease_ms <= INT64_MAX / 1000000)) &&
           h->node_rank < h->n_nodes && h->threads >= 1 && h->threads <= INT_MAX &&
           h->generation <= INT_MAX && memchr(h->run_dir, '\0', sizeof h->run_dir) != NULL &&
           memchr(h->checkpoint_dir, '\0', sizeof h->checkpoint_dir) != NULL &&
           memchr(h->node_address, '\0', sizeof h->node_address) != NULL;
}

static enum fsdp_status read_hello(struct link *link, struct fsdp_err *err)
{
    bool got = false;

    while (!got) {
        OK_OR_RETURN(link_receive(link, &got, err));
        if (!got)
            link_wait_briefly(link);
    }
    if (link->packet->header.type != FSDP_LINK_HELLO || link->packet->header.size != sizeof link->hello)
        return link_break(link, FSDP_ERR_FORMAT, "the agent's first packet is not this version's hello", err);
    memcpy(&link->hello, link->packet->payload, sizeof link->hello);
    if (!hello_is_sound(&link->hello))
        return link_break(link, FSDP_ERR_FORMAT, "the agent's hello names ranks that cannot be", err);
    return map_progress(link, err);
}

/* Takes the descriptor that the environment names, and makes it close-on-exec. */
static enum fsdp_status take_socket(const char *text, int *fd, struct fsdp_err *err)
{
    char *end;
    long number;
    int type = 0;
    socklen_t length = sizeof type;

    errno = 0;
    number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < 0 || number > INT_MAX)
        return fsdp_fail(err, FSDP_ERR_FORMAT, FSDP_LINK_FD_ENV "=%s is not a descriptor", text);
    if (getsockopt((int)number, SOL_SOCKET, SO_TYPE, &type, &length) < 0 || type != SOCK_SEQPACKET)
        return fsdp_fail(err, FSDP_ERR_FORMAT, FSDP_LINK_FD_ENV "=%s is not a link to an agent", text);
    if (fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "descriptor %ld: %s", number, strerror(errno));
    *fd = (int)number;
    unsetenv(FSDP_LINK_FD_ENV); /* a child of this process must not use it */
    return FSDP_OK;
}

enum fsdp_status link_open(struct link **out, struct fsdp_err *err)
{
    const char *text = getenv(FSDP_LINK_FD_ENV);
    enum fsdp_status status = FSDP_OK;
    struct link *link = NULL;

    *out = NULL;
    link = calloc(1, sizeof *link);
    if (link != NULL) {
        link->fd = -1;
        pthread_mutex_init(&link->receiving, NULL);
        pthread_mutex_init(&link->state, NULL);
    }
    if (link == NULL || (link->packet = calloc(1, sizeof *link->packet)) == NULL) {
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "the link to the agent");
        goto done;
    }
    link->packet->fd = -1;
    if (text == NULL) {
        status = open_alone(link, err);
    } else {
        status = take_socket(text, &link->fd, err);
        if (status == FSDP_OK)
            status = read_hello(link, err);
        if (status == FSDP_OK)
            /* a JOB message, if there is one, was sent before this process began, so it can be read now */
            status = link_drain(link, err);
    }
    if (status != FSDP_OK) {
        fsdp_wrap(err, "joining the agent");
        goto done;
    }
    *out = link;
    link = NULL;
done:
    link_close(link);
    return status;
}

void link_close(struct link *link)
{
    if (link == NULL)
        return;
    while (link->kept != NULL) {
        struct kept *next = link->kept->next;

        free(link->kept);
        link->kept = next;
    }
    while (link->entries != NULL) {
        struct entry *next = link->entries->next;

        if (link->entries->fd >= 0)
            close(link->entries->fd);
        free(link->entries);
        link->entries = next;
    }
    if (link->packet != NULL)
        link_drop_fd(link->packet);
    free(link->packet);
    free(link->job);
    if (link->progress != NULL)
        munmap(link->progress, FSDP_PROGRESS_BYTES);
    if (link->fd >= 0)
        close(link->fd);
    pthread_mutex_destroy(&link->receiving);
    pthread_mutex_destroy(&link->state);
    free(link);
}

bool link_alone(const struct link *link)
{
    return link->fd < 0;
}

const struct fsdp_link_hello *link_hello(const struct link *link)
{
    return &link->hello;
}

const char *link_job(const struct link *link, size_t *length)
{
    if (length != NULL)
        *length = link->job_length;
    return link->job;
}

struct fsdp_progress *link_progress(const struct link *link)
{
    return link->progress;
}

void link_alive(const struct link *link)
{
    atomic_store_explicit(&link->progress->beat_ns, (uint64_t)clock_now_ns(), memory_order_relaxed);
}

uint32_t link_begin_wait(const struct link *link)
{
    const uint32_t phase = atomic_load_explicit(&link->progress->phase, memory_order_relaxed);

    atomic_store_explicit(&link->progress->phase, FSDP_PHASE_WAIT, memory_order_relaxed);
    link_alive(link);
    return phase;
}

void link_end_wait(const struct link *link, uint32_t phase)
{
    atomic_store_explicit(&link->progress->phase, phase, memory_order_relaxed);
    link_alive(link);
}

enum fsdp_status link_event(struct link *link, const char *json_object, struct fsdp_err *err)
{
    size_t length = json_object == NULL ? 0 : strlen(json_object);

    if (length < 2 || length > FSDP_LINK_EVENT_BYTES || json_object[0] != '{' ||
        json_object[length - 1] != '}')
        return fsdp_fail(err, FSDP_ERR_ARG, "an event is a JSON object of at most %d bytes",
                         FSDP_LINK_EVENT_BYTES);
    if (link->fd < 0)
        return FSDP_OK;
    return link_send(link, FSDP_LINK_EVENT, 0, json_object, length, NULL, 0, -1, err);
}

enum fsdp_status link_saved(struct link *link, const struct fsdp_link_saved *saved, int manifest_fd,
                            struct fsdp_err *err)
{
    if (link->fd < 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "there is no agent to publish a checkpoint: the caller does it itself");
    return link_send(link, FSDP_LINK_SAVED, 0, saved, sizeof *saved, NULL, 0, manifest_fd, err);
}

bool link_poll_published(struct link *link, int64_t step, struct fsdp_link_published *published)
{
    struct kept kept;

    (void)link_check(link, NULL);
    if (!link_take_kept(link, FSDP_LINK_PUBLISHED, step, &kept))
        return false;
    *published = kept.published;
    published->words[sizeof published->words - 1] = '\0';
    return true;
}

enum fsdp_status link_published(struct link *link, int64_t step, struct fsdp_link_published *published,
                                struct fsdp_err *err)
{
    enum fsdp_status status;
    struct kept kept;
    uint32_t phase;
    bool there;

    if (link->fd < 0)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "there is no agent to publish a checkpoint: the caller does it itself");
    phase = link_begin_wait(link);
    for (;;) {
        status = link_check(link, err);
        there =
            link_take_kept(link, FSDP_LINK_PUBLISHED, step, &kept); /* even if the link has failed since */
        if (there || status != FSDP_OK)
            break;
        link_wait_briefly(link);
    }
    link_end_wait(link, phase);
    if (there) {
        *published = kept.published;
        published->words[sizeof published->words - 1] = '\0';
        return FSDP_OK;
    }
    fsdp_wrap(err, "waiting for the checkpoint of step %lld to be published", (long long)step);
    return status;
}
