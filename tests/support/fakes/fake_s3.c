/*
 * A server of S3's protocol that keeps objects in memory: what shard_runtime/objectstore needs, and no more.
 * It takes part in no signature: it only looks that there is one. It prints its port, serves until its
 * standard input ends, and then prints what is left.
 *
 *   fake_s3 [PAGE]   a page of a list has PAGE entries at most (1000)
 *
 * Any client may ask it for faults, by PUT /-/fault/N/HOW: the Nth request from then on fails.
 *   503    with that status; nothing is done
 *   cut    the connection is closed; nothing is done
 *   lost   the request is done, and the connection is closed without an answer
 *   short  an answer has half of its body
 *   early  an answer of another status comes first (103)
 *   stall  no answer comes
 *   odd    the end of an upload has status 200 and a body that is no result; nothing is done
 *   odder  the same, but the upload is ended. Both change nothing of other requests
 *   lose   it does not fail, but before it the objects are lost that were stored since the order
 * GET /-/count answers how many requests were made, without these two.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = 32768, KEY_BYTES = 1200, OBJECTS = 20000, PARTS = 64, QUERY_BYTES = 4096 };

struct bytes {
    char *at;
    size_t n;
};

struct object {
    char key[KEY_BYTES]; /* "": free */
    struct bytes body;
    bool is_older; /* than the last order of a fault */
};

struct upload {
    char key[KEY_BYTES], id[32];
    struct bytes parts[PARTS + 1];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static struct upload *uploads;
static size_t n_uploads;
static int n_requests, fault_at, next_id, page = 1000;
static char fault[16];

struct request {
    int fd;
    char head[HEAD_BYTES], method[8], path[KEY_BYTES], query[QUERY_BYTES];
    struct bytes body;
    char how[16]; /* it must fail; "": it need not */
};

/* Connections */

static bool read_more(int fd, char *to, size_t *n, size_t most)
{
    const ssize_t got = read(fd, to + *n, most - *n);

    *n += got > 0 ? (size_t)got : 0;
    return got > 0;
}

static const char *header(const struct request *request, const char *name)
{
    static _Thread_local char value[512];
    const size_t length = strlen(name);

    for (const char *line = request->head; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + length + 2, "\r\n"), line + length + 2);
            return value;
        }
        if (*line == '\r' || *line == '\0')
            break;
    }
    return NULL;
}

static bool take_request(struct request *request)
{
    char target[KEY_BYTES + QUERY_BYTES], *end = NULL, *mark;
    size_t n = 0, head, length, have;
    const char *said;

    while (n < HEAD_BYTES - 1 && end == NULL) {
        if (!read_more(request->fd, request->head, &n, HEAD_BYTES - 1))
            return false;
        request->head[n] = '\0';
        end = strstr(request->head, "\r\n\r\n");
    }
    if (end == NULL || sscanf(request->head, "%7s %5200s", request->method, target) != 2)
        return false;
    head = (size_t)(end + 4 - request->head);
    said = header(request, "Content-Length");
    length = said != NULL ? strtoul(said, NULL, 10) : 0;
    request->body = (struct bytes){ calloc(1, length + 1), length };
    have = n - head < length ? n - head : length;
    memcpy(request->body.at, request->head + head, have);
    while (have < length)
        if (!read_more(request->fd, request->body.at, &have, length))
            return false;
    mark = strchr(target, '?');
    snprintf(request->query, sizeof request->query, "%s", mark != NULL ? mark + 1 : "");
    if (mark != NULL)
        *mark = '\0';
    return (size_t)snprintf(request->path, sizeof request->path, "%s", target + 1) < sizeof request->path;
}

static void send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return;
        bytes += sent;
        n -= (size_t)sent;
    }
}

static void answer(struct request *request, int status, const char *more, const char *body, size_t n)
{
    char head[512];
    const bool is_head = strcmp(request->method, "HEAD") == 0;
    const bool is_short = strcmp(request->how, "short") == 0 && n > 1;

    if (strcmp(request->how, "early") == 0) {
        static const char hints[] = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

        send_all(request->fd, hints, sizeof hints - 1);
    }
    if (strcmp(request->how, "lost") == 0) {
        shutdown(request->fd, SHUT_RDWR);
        return;
    }
    snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n", status, n, more);
    send_all(request->fd, head, strlen(head));
    if (!is_head)
        send_all(request->fd, body, is_short ? n / 2 : n);
    if (is_short)
        shutdown(request->fd, SHUT_RDWR);
}

static void refuse(struct request *request, int status, const char *code)
{
    char body[256];

    snprintf(body, sizeof body,
             "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>as asked &amp; told</Message></Error>",
             code);
    answer(request, status, "Content-Type: application/xml\r\n", body, strlen(body));
}

/* Objects */

static struct object *find(const char *key)
{
    for (size_t i = 0; i < OBJECTS; i++)
        if (strcmp(objects[i].key, key) == 0)
            return &objects[i];
    return NULL;
}

static void store(const char *key, struct bytes body)
{
    struct object *object = find(key);

    if (object == NULL)
        object = find("");
    if (object == NULL)
        abort();
    free(object->body.at);
    snprintf(object->key, sizeof object->key, "%s", key);
    object->body = body;
    object->is_older = false;
}

/* The value of a parameter, or NULL. Escapes are of single bytes. */
static const char *parameter(const struct request *request, const char *name)
{
    static _Thread_local char values[8][QUERY_BYTES];
    static _Thread_local int turn;
    const size_t length = strlen(name);

    for (const char *at = request->query; at != NULL && *at != '\0'; at = strchr(at, '&')) {
        char *to;

        at += *at == '&';
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        to = values[turn = (turn + 1) % 8];
        for (at += length + 1; *at != '\0' && *at != '&'; at++) {
            unsigned byte = (unsigned char)*at;

            if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1)
                at += 2;
            *to++ = (char)byte;
        }
        *to = '\0';
        return values[turn];
    }
    return NULL;
}

/* A signature is over the sorted query: so must be what is sent. */
static bool is_sorted(const char *query)
{
    const char *next = strchr(query, '&');

    for (; next != NULL; query = next + 1, next = strchr(query, '&')) {
        if (strcmp(query, next + 1) > 0)
            return false;
        if (memchr(query, '=', (size_t)(next - query)) == NULL)
            return false;
    }
    return *query == '\0' || strchr(query, '=') != NULL;
}

static struct upload *find_upload(const char *id, const char *key)
{
    for (size_t i = 0; i < n_uploads; i++)
        if (strcmp(uploads[i].id, id) == 0 && strcmp(uploads[i].key, key) == 0)
            return &uploads[i];
    return NULL;
}

static void drop_upload(struct upload *upload)
{
    for (size_t i = 0; i <= PARTS; i++)
        free(upload->parts[i].at);
    memset(upload, 0, sizeof *upload);
}

static void begin_upload(struct request *request)
{
    char body[256];
    struct upload *upload;

    uploads = realloc(uploads, (n_uploads + 1) * sizeof *uploads);
    upload = &uploads[n_uploads++];
    memset(upload, 0, sizeof *upload);
    snprintf(upload->key, sizeof upload->key, "%s", request->path);
    snprintf(upload->id, sizeof upload->id, "id+%d/=", ++next_id);
    snprintf(body, sizeof body,
             "<?xml version=\"1.0\"?>\n<InitiateMultipartUploadResult xmlns=\"x\"><Bucket>b</Bucket>"
             "<UploadId>%s</UploadId></InitiateMultipartUploadResult>",
             upload->id);
    answer(request, 200, "", body, strlen(body));
}

/* An ETag may be any text: what the store sends must come back. `escaped`: as XML has it. */
static const char *etag_of(int number, bool escaped)
{
    static _Thread_local char etag[96];

    snprintf(etag, sizeof etag,
             escaped ? "W/\"Zq_%d~(x)=&amp;&lt;+&gt;/{%032x}!\"" : "W/\"Zq_%d~(x)=&<+>/{%032x}!\"", number,
             number);
    return etag;
}

static void put_part(struct request *request, const char *id)
{
    struct upload *upload = find_upload(id, request->path);
    const int number = atoi(parameter(request, "partNumber"));
    char more[128];

    if (upload == NULL || number < 1 || number > PARTS) {
        refuse(request, 404, "NoSuchUpload");
        return;
    }
    free(upload->parts[number].at);
    upload->parts[number] = request->body;
    request->body = (struct bytes){ NULL, 0 };
    snprintf(more, sizeof more, "ETag: %s\r\n", etag_of(number, false));
    answer(request, 200, more, "", 0);
}

static void end_upload(struct request *request, const char *id)
{
    static const char done[] =
        "<CompleteMultipartUploadResult><ETag>\"x\"</ETag></CompleteMultipartUploadResult>";
    static const char odd[] = "<Error><Message>no code, and cut";
    struct upload *upload = find_upload(id, request->path);
    struct bytes whole = { NULL, 0 };
    const char *at = request->body.at;
    int number = 0;

    if (upload == NULL) {
        refuse(request, 404, "NoSuchUpload");
        return;
    }
    if (strcmp(request->how, "odd") == 0) {
        answer(request, 200, "", odd, sizeof odd - 1);
        return;
    }
    while ((at = strstr(at, "<PartNumber>")) != NULL) {
        char tag[160];

        at += 12;
        number++;
        snprintf(tag, sizeof tag, "</PartNumber><ETag>%s</ETag>", etag_of(number, true));
        if (atoi(at) != number || number > PARTS || upload->parts[number].at == NULL ||
            strstr(at, tag) == NULL) {
            refuse(request, 400, "InvalidPart");
            return;
        }
        whole.at = realloc(whole.at, whole.n + upload->parts[number].n + 1);
        memcpy(whole.at + whole.n, upload->parts[number].at, upload->parts[number].n);
        whole.n += upload->parts[number].n;
    }
    store(request->path, whole);
    drop_upload(upload);
    if (strcmp(request->how, "odder") == 0)
        answer(request, 200, "", odd, sizeof odd - 1);
    else
        answer(request, 200, "", done, sizeof done - 1);
}

static void get(struct request *request)
{
    const struct object *object = find(request->path);
    const char *range = header(request, "Range");
    size_t from = 0, to;
    char more[128] = "";

    if (object == NULL) {
        refuse(request, 404, "NoSuchKey");
        return;
    }
    to = object->body.n;
    if (range != NULL && sscanf(range, "bytes=%zu-%zu", &from, &to) == 2) {
        to = to + 1 < object->body.n ? to + 1 : object->body.n;
        if (from >= object->body.n) {
            refuse(request, 416, "InvalidRange");
            return;
        }
    }
    answer(request, range != NULL ? 206 : 200, more, object->body.at + from, to - from);
}

/* Lists */

struct text {
    char *at;
    size_t n;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
    char words[KEY_BYTES + 256];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(words, sizeof words, format, args);
    va_end(args);
    text->at = realloc(text->at, text->n + (size_t)n + 1);
    memcpy(text->at + text->n, words, (size_t)n + 1);
    text->n += (size_t)n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Entries in the order of their keys, behind the one that the token names. */
static void list(struct request *request)
{
    const char *prefix = parameter(request, "prefix"), *delimiter = parameter(request, "delimiter");
    const char *after = parameter(request, "continuation-token"), *most = parameter(request, "max-keys");
    const size_t bucket = strlen(request->path) + 1;
    char **keys = calloc(OBJECTS + 1, sizeof *keys), last[KEY_BYTES] = "";
    const int limit = most != NULL && atoi(most) < page ? atoi(most) : page;
    struct text text = { NULL, 0 };
    size_t n = 0;
    int n_entries = 0;
    bool more = false;

    for (size_t i = 0; i < OBJECTS; i++)
        if (strncmp(objects[i].key, request->path, bucket - 1) == 0 && objects[i].key[bucket - 1] == '/' &&
            strncmp(objects[i].key + bucket, prefix, strlen(prefix)) == 0)
            keys[n++] = objects[i].key + bucket;
    qsort(keys, n, sizeof *keys, by_text);
    add(&text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>");
    for (size_t i = 0; i < n; i++) {
        const char *slash = delimiter != NULL ? strchr(keys[i] + strlen(prefix), '/') : NULL;
        char entry[KEY_BYTES];

        snprintf(entry, sizeof entry, "%.*s", slash != NULL ? (int)(slash + 1 - keys[i]) : KEY_BYTES - 1,
                 keys[i]);
        if (strcmp(entry, last) == 0 || (after != NULL && strcmp(entry, after) <= 0))
            continue;
        if (n_entries == limit) {
            more = true;
            break;
        }
        snprintf(last, sizeof last, "%s", entry);
        n_entries++;
        add(&text,
            slash != NULL ? "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>"
                          : "<Contents><Key>%s</Key><Size>1</Size><Owner><ID>o</ID></Owner></Contents>",
            entry);
    }
    add(&text, "<IsTruncated>%s</IsTruncated>", more ? "true" : "false");
    if (more)
        add(&text, "<NextContinuationToken>%s</NextContinuationToken>", last);
    add(&text, "</ListBucketResult>");
    answer(request, 200, "", text.at, text.n);
    free(text.at);
    free(keys);
}

static void list_uploads(struct request *request)
{
    const char *prefix = parameter(request, "prefix");
    const size_t bucket = strlen(request->path) + 1;
    struct text text = { NULL, 0 };

    add(&text, "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>");
    for (size_t i = 0; i < n_uploads; i++)
        if (strlen(uploads[i].key) > bucket && strncmp(uploads[i].key + bucket, prefix, strlen(prefix)) == 0)
            add(&text, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", uploads[i].key + bucket,
                uploads[i].id);
    add(&text, "</ListMultipartUploadsResult>");
    answer(request, 200, "", text.at, text.n);
    free(text.at);
}

/* Requests */

static void serve_object(struct request *request)
{
    const char *id = parameter(request, "uploadId"), *only_new = header(request, "If-None-Match");

    if (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0) {
        get(request);
    } else if (strcmp(request->method, "PUT") == 0 && id != NULL) {
        put_part(request, id);
    } else if (strcmp(request->method, "PUT") == 0) {
        if (only_new != NULL && find(request->path) != NULL) {
            refuse(request, 412, "PreconditionFailed");
            return;
        }
        store(request->path, request->body);
        request->body = (struct bytes){ NULL, 0 };
        answer(request, 200, "ETag: \"0123\"\r\n", "", 0);
    } else if (strcmp(request->method, "POST") == 0 && id != NULL) {
        end_upload(request, id);
    } else if (strcmp(request->method, "POST") == 0 && parameter(request, "uploads") != NULL) {
        begin_upload(request);
    } else if (strcmp(request->method, "DELETE") == 0 && id != NULL) {
        struct upload *upload = find_upload(id, request->path);

        if (upload != NULL)
            drop_upload(upload);
        if (upload != NULL)
            answer(request, 204, "", "", 0);
        else
            refuse(request, 404, "NoSuchUpload");
    } else if (strcmp(request->method, "DELETE") == 0) {
        struct object *object = find(request->path);

        if (object != NULL) {
            free(object->body.at);
            memset(object, 0, sizeof *object);
        }
        answer(request, 204, "", "", 0);
    } else {
        refuse(request, 400, "NotServed");
    }
}

static void serve(struct request *request)
{
    const char *signature = header(request, "Authorization");
    char count[16];

    request->how[0] = '\0';
    if (sscanf(request->path, "-/fault/%d/%15s", &fault_at, fault) == 2) {
        for (size_t i = 0; i < OBJECTS; i++)
            objects[i].is_older = true;
        answer(request, 200, "", "", 0);
        return;
    }
    if (strcmp(request->path, "-/count") == 0) {
        snprintf(count, sizeof count, "%d", n_requests);
        answer(request, 200, "", count, strlen(count));
        return;
    }
    n_requests++;
    if (fault_at > 0 && --fault_at == 0) {
        memcpy(request->how, fault, sizeof request->how);
        if (strcmp(request->how, "503") == 0) {
            refuse(request, 503, "SlowDown");
            return;
        }
        if (strcmp(request->how, "cut") == 0) {
            shutdown(request->fd, SHUT_RDWR);
            return;
        }
        if (strcmp(request->how, "stall") == 0)
            return;
        for (size_t i = 0; i < OBJECTS && strcmp(request->how, "lose") == 0; i++)
            if (!objects[i].is_older)
                objects[i].key[0] = '\0';
    }
    if (signature == NULL || strncmp(signature, "AWS4-HMAC-SHA256 Credential=", 28) != 0)
        refuse(request, 403, "AccessDenied");
    else if (header(request, "x-amz-content-sha256") == NULL || !is_sorted(request->query))
        refuse(request, 403, "SignatureDoesNotMatch");
    else if (strncmp(request->path, "missing", 7) == 0)
        refuse(request, 404, "NoSuchBucket");
    else if (strchr(request->path, '/') != NULL)
        serve_object(request);
    else if (parameter(request, "list-type") != NULL)
        list(request);
    else if (parameter(request, "uploads") != NULL)
        list_uploads(request);
    else
        refuse(request, 400, "NotServed");
}

static void *serve_connection(void *arg)
{
    struct request *request = calloc(1, sizeof *request);

    request->fd = (int)(long)arg;
    while (take_request(request)) {
        pthread_mutex_lock(&mutex);
        serve(request);
        pthread_mutex_unlock(&mutex);
        free(request->body.at);
        request->body.at = NULL;
    }
    free(request->body.at);
    close(request->fd);
    free(request);
    return NULL;
}

static void *accept_all(void *arg)
{
    for (;;) {
        const int fd = accept((int)(long)arg, NULL, NULL);
        pthread_t thread;

        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
        if (fd >= 0 && pthread_create(&thread, NULL, serve_connection, (void *)(long)fd) == 0)
            pthread_detach(thread);
    }
    return NULL;
}

static void print_what_is_left(void)
{
    for (size_t i = 0; i < OBJECTS; i++)
        if (objects[i].key[0] != '\0')
            printf("object %s %zu\n", objects[i].key, objects[i].body.n);
    for (size_t i = 0; i < n_uploads; i++)
        if (uploads[i].key[0] != '\0')
            printf("upload %s\n", uploads[i].key);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    char byte;

    if (argc > 1)
        page = atoi(argv[1]);
    objects = calloc(OBJECTS, sizeof *objects);
    if (objects == NULL || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0 ||
        pthread_create(&thread, NULL, accept_all, (void *)(long)fd) != 0) {
        perror("fake_s3");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    pthread_mutex_lock(&mutex);
    print_what_is_left();
    _exit(0);
}
