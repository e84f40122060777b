#include "shard_runtime/comm/link_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* A job is a few KiB of JSON; more than this is no job. */
enum { JOB_BYTES_MAX = 16 << 20 };

/* While an answer is awaited, the abort word is looked at this often. */
enum { ABORT_SLICE_MS = 100 };

/* The longest payload of any packet that an agent sends is a value. */
enum { PAYLOAD_MAX = FSDP_LINK_VALUE_BYTES };
_Static_assert(sizeof(struct fsdp_link_hello) <= PAYLOAD_MAX, "a hello fits the receive buffer");
_Static_assert(sizeof(struct fsdp_link_published) <= PAYLOAD_MAX, "a verdict fits the receive buffer");

/* What came while something else was awaited, oldest first. */
struct kept {
    struct kept *next;
    uint16_t type;
    union {
        struct fsdp_link_notice notice;
        struct fsdp_link_published published;
    };
};

/* A key put by a process that is alone. */
struct entry {
    struct entry *next;
    char key[FSDP_LINK_KEY_BYTES];
    size_t size;
    int fd;
    unsigned char value[];
};

struct packet {
    struct fsdp_link_header header;
    unsigned char payload[PAYLOAD_MAX];
    int fd; /* -1: none came along */
};

struct link {
    int fd; /* -1: alone */
    uint32_t next_tag;
    struct fsdp_err broken; /* status other than FSDP_OK: the first failure, sticky */
    struct fsdp_link_hello hello;
    struct fsdp_progress *progress;
    char *job;
    size_t job_length;
    struct kept *kept;
    struct entry *entries;
    struct packet *packet; /* the one last received */
};

/* --- packets --------------------------------------------------------------------------------------------- */

static enum fsdp_status say_broken(const struct link *link, struct fsdp_err *err)
{
    return fsdp_fail(err, link->broken.status, "%s", link->broken.message);
}

/* The link takes no more part in anything; the words become the answer to every later call. */
static enum fsdp_status break_link(struct link *link, enum fsdp_status status, const char *words,
                                   struct fsdp_err *err)
{
    if (link->broken.status == FSDP_OK)
        fsdp_fail(&link->broken, status, "%s", words);
    return say_broken(link, err);
}

static enum fsdp_status agent_gone(struct link *link, struct fsdp_err *err)
{
    return break_link(link, FSDP_ERR_PEER, "the agent that started this process is gone", err);
}

static void drop_fd(struct packet *packet)
{
    if (packet->fd >= 0)
        close(packet->fd);
    packet->fd = -1;
}

/* Keep the first descriptor of a message, close what else came: one at most belongs to a packet. */
static bool take_descriptors(struct msghdr *message, int *fd)
{
    int n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        size_t n_here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n_here; i++) {
            int one;

            memcpy(&one, CMSG_DATA(c) + i * sizeof(int), sizeof one);
            if (n++ == 0)
                *fd = one;
            else
                close(one);
        }
    }
    return n <= 1 && (message->msg_flags & MSG_CTRUNC) == 0;
}

/* One packet into link->packet, without waiting. *got is false when none is there. */
static enum fsdp_status receive_packet(struct link *link, bool *got, struct fsdp_err *err)
{
    struct packet *packet = link->packet;
    struct iovec parts[2] = { { &packet->header, sizeof packet->header }, { packet->payload, sizeof packet->payload } };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    bool one_descriptor;
    ssize_t n;

    *got = false;
    drop_fd(packet);
    if (link->broken.status != FSDP_OK)
        return say_broken(link, err);
    do
        n = recvmsg(link->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return FSDP_OK;
    if (n < 0 && errno != ECONNRESET)
        return break_link(link, FSDP_ERR_IO, strerror(errno), err);
    if (n <= 0)
        return agent_gone(link, err);
    one_descriptor = take_descriptors(&message, &packet->fd);
    if (!one_descriptor)
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a packet with too many descriptors", err);
    if ((message.msg_flags & MSG_TRUNC) != 0)
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a packet that is too long", err);
    if ((size_t)n < sizeof packet->header || packet->header.magic != FSDP_LINK_MAGIC)
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a packet that is not of the link's protocol", err);
    if (packet->header.version != FSDP_LINK_VERSION) {
        char words[128];

        snprintf(words, sizeof words, "the agent speaks version %d of the link's protocol, this library version %d",
                 packet->header.version, FSDP_LINK_VERSION);
        return break_link(link, FSDP_ERR_FORMAT, words, err);
    }
    if (packet->header.size != (size_t)n - sizeof packet->header)
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a packet whose size is not what it says", err);
    *got = true;
    return FSDP_OK;
}

/* Wait until a packet may be there, a moment at most. */
static void wait_briefly(const struct link *link)
{
    struct pollfd p = { .fd = link->fd, .events = POLLIN };

    poll(&p, 1, ABORT_SLICE_MS);
}

static enum fsdp_status send_packet(struct link *link, enum fsdp_link_type type, uint32_t tag, const void *head,
                                    size_t head_bytes, const void *body, size_t body_bytes, int fd,
                                    struct fsdp_err *err)
{
    struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC, .version = FSDP_LINK_VERSION,
                                       .type = (uint16_t)type, .tag = tag,
                                       .size = (uint32_t)(head_bytes + body_bytes) };
    struct iovec parts[3] = { { &header, sizeof header }, { (void *)head, head_bytes }, { (void *)body, body_bytes } };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };

    if (link->broken.status != FSDP_OK)
        return say_broken(link, err);
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
    }
    for (;;) {
        struct pollfd p = { .fd = link->fd, .events = POLLOUT };

        if (sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return FSDP_OK;
        if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            return agent_gone(link, err);
        if (errno == EBADF && fd >= 0)
            return fsdp_fail(err, FSDP_ERR_ARG, "the descriptor to send along is not open");
        if (errno == EAGAIN)
            poll(&p, 1, ABORT_SLICE_MS);
        else if (errno != EINTR)
            return break_link(link, FSDP_ERR_IO, strerror(errno), err);
    }
}

/* --- what comes by itself -------------------------------------------------------------------------------- */

static enum fsdp_status keep(struct link *link, struct fsdp_err *err)
{
    const struct packet *packet = link->packet;
    struct kept *kept = calloc(1, sizeof *kept), **end = &link->kept;

    if (kept == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "keeping a packet of the agent");
    kept->type = packet->header.type;
    if (kept->type == FSDP_LINK_NOTICE)
        memcpy(&kept->notice, packet->payload, sizeof kept->notice);
    else
        memcpy(&kept->published, packet->payload, sizeof kept->published);
    while (*end != NULL)
        end = &(*end)->next;
    *end = kept;
    return FSDP_OK;
}

static enum fsdp_status read_job(struct link *link, struct fsdp_err *err)
{
    const int fd = link->packet->fd;
    struct stat st;
    size_t done = 0;
    char *text;

    if (fd < 0 || link->job != NULL || link->packet->header.size != 0)
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a job packet that is not one", err);
    if (fstat(fd, &st) < 0 || st.st_size < 0 || st.st_size > JOB_BYTES_MAX)
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a job that is no file of a sensible size", err);
    text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "a job of %lld bytes", (long long)st.st_size);
    while (done < (size_t)st.st_size) {
        ssize_t n = pread(fd, text + done, (size_t)st.st_size - done, (off_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(text);
            return break_link(link, FSDP_ERR_FORMAT, "the agent sent a job that cannot be read", err);
        }
        done += (size_t)n;
    }
    text[done] = '\0';
    link->job = text;
    link->job_length = done;
    return FSDP_OK;
}

/* Put away a packet that nobody waits for at this moment. */
static enum fsdp_status absorb(struct link *link, struct fsdp_err *err)
{
    const struct packet *packet = link->packet;
    enum fsdp_status status;

    switch (packet->header.type) {
    case FSDP_LINK_VALUE:
        return FSDP_OK; /* the answer to a get that was given up */
    case FSDP_LINK_JOB:
        return read_job(link, err);
    case FSDP_LINK_NOTICE:
        if (packet->header.size != sizeof(struct fsdp_link_notice))
            return break_link(link, FSDP_ERR_FORMAT, "the agent sent a notice of a wrong size", err);
        status = keep(link, err);
        if (status == FSDP_OK && ((const struct fsdp_link_notice *)packet->payload)->kind == FSDP_NOTICE_ABORT)
            return break_link(link, FSDP_ERR_PEER, "another rank is gone, says the agent", err);
        return status;
    case FSDP_LINK_PUBLISHED:
        if (packet->header.size != sizeof(struct fsdp_link_published))
            return break_link(link, FSDP_ERR_FORMAT, "the agent sent a verdict of a wrong size", err);
        return keep(link, err);
    default:
        return break_link(link, FSDP_ERR_FORMAT, "the agent sent a packet of a kind that workers do not get", err);
    }
}

static enum fsdp_status check_abort_word(struct link *link, struct fsdp_err *err)
{
    if (atomic_load_explicit(&link->progress->abort_word, memory_order_relaxed) == 0)
        return FSDP_OK;
    return break_link(link, FSDP_ERR_PEER, "another rank is gone, says the agent", err);
}

/* Take in everything that has arrived. */
static enum fsdp_status drain(struct link *link, struct fsdp_err *err)
{
    enum fsdp_status status;
    bool got;

    do {
        status = receive_packet(link, &got, err);
        if (status == FSDP_OK && got)
            status = absorb(link, err);
    } while (status == FSDP_OK && got);
    return status;
}

enum fsdp_status link_check(struct link *link, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (link->fd < 0)
        return FSDP_OK;
    status = drain(link, err);
    return status == FSDP_OK ? check_abort_word(link, err) : status;
}

bool link_poll_notice(struct link *link, struct fsdp_link_notice *notice)
{
    if (link->fd >= 0)
        drain(link, NULL);
    for (struct kept **at = &link->kept; *at != NULL; at = &(*at)->next) {
        struct kept *found = *at;

        if (found->type != FSDP_LINK_NOTICE)
            continue;
        *notice = found->notice;
        *at = found->next;
        free(found);
        return true;
    }
    return false;
}

/* --- opening --------------------------------------------------------------------------------------------- */

/* A world of one: what the agent would have said. */
static enum fsdp_status open_alone(struct link *link, struct fsdp_err *err)
{
    link->hello = (struct fsdp_link_hello){ .world_size = 1, .local_world_size = 1, .n_nodes = 1, .threads = 1,
                                            .resume_step = -1, .node_address = "127.0.0.1" };
    link->progress = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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
        return break_link(link, FSDP_ERR_FORMAT, "the agent's hello came without a progress page", err);
    page = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, link->packet->fd, 0);
    if (page == MAP_FAILED)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "mapping the progress page: %s", strerror(errno));
    link->progress = page;
    if (page->magic == 0 && page->version == 0) { /* fresh: nobody has laid it out yet */
        page->magic = FSDP_PROGRESS_MAGIC;
        page->version = FSDP_PROGRESS_VERSION;
    }
    if (page->magic != FSDP_PROGRESS_MAGIC || page->version != FSDP_PROGRESS_VERSION)
        return break_link(link, FSDP_ERR_FORMAT, "the agent's progress page is of another version", err);
    return FSDP_OK;
}

/* The numbers a worker divides by and indexes with, and the strings it prints. */
static bool hello_is_sound(const struct fsdp_link_hello *h)
{
    return h->world_size >= 1 && h->world_size <= INT_MAX && h->rank < h->world_size && h->local_world_size >= 1 &&
           h->local_world_size <= h->world_size && h->local_rank < h->local_world_size && h->n_nodes >= 1 &&
           h->n_nodes <= h->world_size && h->node_rank < h->n_nodes && h->threads >= 1 && h->threads <= INT_MAX &&
           h->generation <= INT_MAX && memchr(h->run_dir, '\0', sizeof h->run_dir) != NULL &&
           memchr(h->node_address, '\0', sizeof h->node_address) != NULL;
}

static enum fsdp_status read_hello(struct link *link, struct fsdp_err *err)
{
    enum fsdp_status status;
    bool got = false;

    while (!got) {
        status = receive_packet(link, &got, err);
        if (status != FSDP_OK)
            return status;
        if (!got)
            wait_briefly(link);
    }
    if (link->packet->header.type != FSDP_LINK_HELLO || link->packet->header.size != sizeof link->hello)
        return break_link(link, FSDP_ERR_FORMAT, "the agent's first packet is not this version's hello", err);
    memcpy(&link->hello, link->packet->payload, sizeof link->hello);
    if (!hello_is_sound(&link->hello))
        return break_link(link, FSDP_ERR_FORMAT, "the agent's hello names ranks that cannot be", err);
    return map_progress(link, err);
}

/* The descriptor that the environment names, made ours alone. */
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
    unsetenv(FSDP_LINK_FD_ENV); /* it is of no use to a child of ours */
    return FSDP_OK;
}

enum fsdp_status link_open(struct link **out, struct fsdp_err *err)
{
    const char *text = getenv(FSDP_LINK_FD_ENV);
    enum fsdp_status status = FSDP_OK;
    struct link *link = NULL;

    *out = NULL;
    link = calloc(1, sizeof *link);
    if (link != NULL)
        link->fd = -1;
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
            status = drain(link, err); /* JOB, if there is one: it was sent before this process began */
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
        drop_fd(link->packet);
    free(link->packet);
    free(link->job);
    if (link->progress != NULL)
        munmap(link->progress, FSDP_PROGRESS_BYTES);
    if (link->fd >= 0)
        close(link->fd);
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

int link_fd(const struct link *link)
{
    return link->fd;
}

/* --- keys and values ------------------------------------------------------------------------------------- */

static struct entry *find_entry(const struct link *link, const char *key)
{
    struct entry *entry = link->entries;

    while (entry != NULL && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

static enum fsdp_status put_alone(struct link *link, const char *key, const void *value, size_t size_bytes, int fd,
                                  struct fsdp_err *err)
{
    struct entry *entry;

    if (find_entry(link, key) != NULL)
        return fsdp_fail(err, FSDP_ERR_ARG, "key %s was put before", key);
    entry = calloc(1, sizeof *entry + size_bytes);
    if (entry == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "key %s of %zu bytes", key, size_bytes);
    entry->fd = -1;
    if (fd >= 0 && (entry->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) {
        free(entry);
        return fsdp_fail(err, FSDP_ERR_IO, "key %s: copying its descriptor: %s", key, strerror(errno));
    }
    snprintf(entry->key, sizeof entry->key, "%s", key);
    if (size_bytes > 0)
        memcpy(entry->value, value, size_bytes);
    entry->size = size_bytes;
    entry->next = link->entries;
    link->entries = entry;
    return FSDP_OK;
}

static enum fsdp_status check_key(const char *key, struct fsdp_err *err)
{
    size_t length = key == NULL ? 0 : strlen(key);

    if (length > 0 && length < FSDP_LINK_KEY_BYTES)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_ARG, "a key has 1 to %d bytes, not %zu", FSDP_LINK_KEY_BYTES - 1, length);
}

enum fsdp_status link_put(struct link *link, const char *key, const void *value, size_t size_bytes, int fd,
                          struct fsdp_err *err)
{
    struct fsdp_link_put put = { .key = "" };
    enum fsdp_status status = check_key(key, err);

    if (status != FSDP_OK)
        return status;
    if (size_bytes > FSDP_LINK_VALUE_BYTES || (value == NULL && size_bytes > 0))
        return fsdp_fail(err, FSDP_ERR_ARG, "key %s: a value has at most %d bytes, not %zu", key,
                         FSDP_LINK_VALUE_BYTES, size_bytes);
    if (link->fd < 0)
        return put_alone(link, key, value, size_bytes, fd, err);
    snprintf(put.key, sizeof put.key, "%s", key);
    return send_packet(link, FSDP_LINK_PUT, 0, &put, sizeof put, value, size_bytes, fd, err);
}

/* Hand a value to the caller of link_get(); *fd_in is closed unless it is taken. */
static enum fsdp_status give_value(const char *key, const void *from, size_t from_bytes, int *fd_in, void *value,
                                   size_t *size_bytes, int *fd, struct fsdp_err *err)
{
    if (from_bytes > *size_bytes)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "key %s: a value of %zu bytes where at most %zu were expected", key,
                         from_bytes, *size_bytes);
    if (from_bytes > 0)
        memcpy(value, from, from_bytes);
    *size_bytes = from_bytes;
    if (fd != NULL) {
        *fd = *fd_in;
        *fd_in = -1;
    }
    return FSDP_OK;
}

static enum fsdp_status get_alone(struct link *link, const char *key, void *value, size_t *size_bytes, int *fd,
                                  struct fsdp_err *err)
{
    const struct entry *entry = find_entry(link, key);
    enum fsdp_status status;
    int copy = -1;

    if (entry == NULL)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "key %s was not put, and there is nobody else to put it", key);
    if (fd != NULL && entry->fd >= 0 && (copy = fcntl(entry->fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return fsdp_fail(err, FSDP_ERR_IO, "key %s: copying its descriptor: %s", key, strerror(errno));
    status = give_value(key, entry->value, entry->size, &copy, value, size_bytes, fd, err);
    if (copy >= 0)
        close(copy);
    return status;
}

/* Wait until link->packet is the VALUE with `tag`. */
static enum fsdp_status await_value(struct link *link, uint32_t tag, struct fsdp_err *err)
{
    enum fsdp_status status;
    bool got;

    for (;;) {
        status = receive_packet(link, &got, err);
        if (status != FSDP_OK)
            return status;
        if (got && link->packet->header.type == FSDP_LINK_VALUE && link->packet->header.tag == tag)
            return FSDP_OK;
        status = got ? absorb(link, err) : check_abort_word(link, err);
        if (status != FSDP_OK)
            return status;
        if (!got)
            wait_briefly(link);
    }
}

enum fsdp_status link_get(struct link *link, const char *key, void *value, size_t *size_bytes, int *fd,
                          struct fsdp_err *err)
{
    struct fsdp_link_get get = { .key = "" };
    enum fsdp_status status = check_key(key, err);
    uint32_t tag;

    if (fd != NULL)
        *fd = -1;
    if (status != FSDP_OK)
        return status;
    if (link->fd < 0)
        return get_alone(link, key, value, size_bytes, fd, err);
    tag = ++link->next_tag != 0 ? link->next_tag : ++link->next_tag;
    snprintf(get.key, sizeof get.key, "%s", key);
    status = send_packet(link, FSDP_LINK_GET, tag, &get, sizeof get, NULL, 0, -1, err);
    if (status == FSDP_OK)
        status = await_value(link, tag, err);
    if (status != FSDP_OK) {
        fsdp_wrap(err, "waiting for %s", key);
        return status;
    }
    status = give_value(key, link->packet->payload, link->packet->header.size, &link->packet->fd, value, size_bytes,
                        fd, err);
    drop_fd(link->packet);
    return status;
}

/* --- events and saves ------------------------------------------------------------------------------------ */

enum fsdp_status link_event(struct link *link, const char *json_object, struct fsdp_err *err)
{
    size_t length = json_object == NULL ? 0 : strlen(json_object);

    if (length < 2 || length > FSDP_LINK_EVENT_BYTES || json_object[0] != '{' || json_object[length - 1] != '}')
        return fsdp_fail(err, FSDP_ERR_ARG, "an event is a JSON object of at most %d bytes", FSDP_LINK_EVENT_BYTES);
    if (link->fd < 0)
        return FSDP_OK;
    return send_packet(link, FSDP_LINK_EVENT, 0, json_object, length, NULL, 0, -1, err);
}

enum fsdp_status link_saved(struct link *link, const struct fsdp_link_saved *saved, int manifest_fd,
                            struct fsdp_err *err)
{
    if (link->fd < 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "there is no agent to publish a checkpoint: the caller does it itself");
    return send_packet(link, FSDP_LINK_SAVED, 0, saved, sizeof *saved, NULL, 0, manifest_fd, err);
}

static bool take_verdict(struct link *link, int64_t step, struct fsdp_link_published *published)
{
    for (struct kept **at = &link->kept; *at != NULL; at = &(*at)->next) {
        struct kept *found = *at;

        if (found->type != FSDP_LINK_PUBLISHED || found->published.step != step)
            continue;
        *published = found->published;
        published->words[sizeof published->words - 1] = '\0';
        *at = found->next;
        free(found);
        return true;
    }
    return false;
}

enum fsdp_status link_published(struct link *link, int64_t step, struct fsdp_link_published *published,
                                struct fsdp_err *err)
{
    enum fsdp_status status;

    if (link->fd < 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "there is no agent to publish a checkpoint: the caller does it itself");
    for (;;) {
        status = link_check(link, err);
        if (take_verdict(link, step, published))
            return FSDP_OK; /* it came, whatever came after it */
        if (status != FSDP_OK)
            break;
        wait_briefly(link);
    }
    fsdp_wrap(err, "waiting for the checkpoint of step %lld to be published", (long long)step);
    return status;
}
