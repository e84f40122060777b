#include "agent/doctor/nodes.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/doctor/node_link.h"
#include "shard_runtime/core/json.h"
#include "shard_runtime/core/require.h"

enum { SERVED_WITHIN_MS = 12000, MARK_BYTES = 64 };

/* This rank, and what it has found. `value` holds the result of the last node_link_get(). */
struct rank {
    struct node_link link;
    int self, n;
    struct pairs_server *server;
    struct pair pairs[PAIRS_MOST_ROUNDS];
    int n_pairs;
    char host[DOCTOR_NODE_BYTES], mark[MARK_BYTES], value[FSDP_LINK_VALUE_BYTES + 1];
};

/* How others reach a node: the value of its key "address". */
struct address {
    char host[256], mark[MARK_BYTES], name[DOCTOR_NODE_BYTES];
    int port;
    unsigned char secret[PAIRS_SECRET_BYTES];
};

static void copy_text(char *out, size_t size, const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

    snprintf(out, size, "%s", text != NULL ? text : "");
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(member) ? member->valuedouble : 0.0;
}

/* Puts the text, which is freed, at a key of this rank. */
static enum fsdp_status put_text(struct rank *rank, const char *name, struct json_text *text,
                                 struct fsdp_err *err)
{
    const enum fsdp_status status =
        text->failed ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for what the other nodes are told")
                     : node_link_put(&rank->link, name, rank->self, text->bytes, text->length, err);

    json_text_free(text);
    return status;
}

static enum fsdp_status get_object(struct rank *rank, const char *name, int node, cJSON **out,
                                   struct fsdp_err *err)
{
    size_t n_bytes;

    *out = NULL;
    OK_OR_RETURN(node_link_get(&rank->link, name, node, rank->value, &n_bytes, err));
    *out = json_parse_object(rank->value, n_bytes);
    return *out != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_FORMAT, "node %d sent no JSON object", node);
}

/*
 * Rank 0 makes a file in the run directory, and the other nodes look for it: a directory with the same name
 * need not be the same one. If the file cannot be made, the check disk.writable gives the reason.
 */
static void make_mark(struct rank *rank, const char *run_dir)
{
    char path[DOCTOR_PATH_BYTES + MARK_BYTES + 1];
    unsigned char random[8] = { 0 };
    int fd;

    if (rank->self != 0 || run_dir == NULL || getrandom(random, sizeof random, 0) != sizeof random)
        return;
    snprintf(rank->mark, sizeof rank->mark, ".fsdprun-doctor.");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(rank->mark + strlen(rank->mark), 3, "%02x", random[i]);
    snprintf(path, sizeof path, "%.255s/%.63s", run_dir, rank->mark);
    fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        rank->mark[0] = '\0';
    else
        close(fd);
}

static bool see_mark(const char *run_dir, const char *mark)
{
    char path[DOCTOR_PATH_BYTES + MARK_BYTES + 1];

    if (run_dir == NULL || mark[0] == '\0' || strchr(mark, '/') != NULL)
        return false;
    snprintf(path, sizeof path, "%.255s/%.63s", run_dir, mark);
    return access(path, F_OK) == 0;
}

static void remove_mark(const struct rank *rank, const char *run_dir)
{
    char path[DOCTOR_PATH_BYTES + MARK_BYTES + 1];

    if (rank->self != 0 || rank->mark[0] == '\0')
        return;
    snprintf(path, sizeof path, "%.255s/%.63s", run_dir, rank->mark);
    (void)unlink(path);
}

static enum fsdp_status put_address(struct rank *rank, struct fsdp_err *err)
{
    unsigned char secret[PAIRS_SECRET_BYTES];
    char digits[2 * PAIRS_SECRET_BYTES + 1] = "";
    struct json_text text = { 0 };
    int port;

    if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        return fsdp_fail(err, FSDP_ERR_IO, "the system gives no random bytes");
    OK_OR_RETURN(pairs_serve(&rank->server, rank->link.hello.node_address, secret, rank->n, &port, err));
    for (int i = 0; i < PAIRS_SECRET_BYTES; i++)
        snprintf(digits + 2 * i, 3, "%02x", secret[i]);
    json_open(&text, NULL, '{');
    json_field_string(&text, "host", rank->link.hello.node_address);
    json_field(&text, "port", "%d", port);
    json_field_string(&text, "secret", digits);
    json_field_string(&text, "mark", rank->mark);
    json_field_string(&text, "name", rank->host);
    json_close(&text, '}');
    return put_text(rank, "address", &text, err);
}

static enum fsdp_status get_address(struct rank *rank, int node, struct address *address,
                                    struct fsdp_err *err)
{
    char digits[2 * PAIRS_SECRET_BYTES + 1];
    cJSON *object;

    OK_OR_RETURN(get_object(rank, "address", node, &object, err));
    copy_text(address->host, sizeof address->host, object, "host");
    copy_text(address->mark, sizeof address->mark, object, "mark");
    copy_text(address->name, sizeof address->name, object, "name");
    copy_text(digits, sizeof digits, object, "secret");
    address->port = (int)number_of(object, "port");
    cJSON_Delete(object);
    for (int i = 0; i < PAIRS_SECRET_BYTES; i++)
        if (sscanf(digits + 2 * i, "%2hhx", &address->secret[i]) != 1)
            return fsdp_fail(err, FSDP_ERR_FORMAT, "node %d sent no address", node);
    return FSDP_OK;
}

static enum fsdp_status put_report(struct rank *rank, const struct doctor_report *report, const char *version,
                                   bool sees_run_dir, struct fsdp_err *err)
{
    struct json_text text = { 0 };
    char *rows = doctor_report_json(report);

    json_open(&text, NULL, '{');
    json_field_string(&text, "name", rank->host);
    json_field_string(&text, "version", version);
    json_field_bool(&text, "sees_run_dir", sees_run_dir);
    json_key(&text, "rows");
    if (rows != NULL)
        json_add_bytes(&text, rows, strlen(rows));
    text.failed |= rows == NULL;
    json_close(&text, '}');
    free(rows);
    return put_text(rank, "report", &text, err);
}

/*
 * Measures the pairs in rounds. In each round a node is in at most one pair: the lower number connects, and
 * the other waits until it is done.
 */
static enum fsdp_status measure_all(struct rank *rank, struct fsdp_err *err)
{
    for (int round = 0; round < pairs_rounds(rank->n); round++) {
        const int partner = pairs_partner(rank->n, round, rank->self);
        struct address address;

        if (partner < 0)
            continue;
        if (partner < rank->self) {
            (void)pairs_await(rank->server, partner, SERVED_WITHIN_MS);
            continue;
        }
        OK_OR_RETURN(get_address(rank, partner, &address, err));
        rank->pairs[rank->n_pairs] = (struct pair){ .a = rank->self, .b = partner };
        pairs_measure(&rank->pairs[rank->n_pairs++], address.host, address.port, address.secret, rank->self);
    }
    return FSDP_OK;
}

static enum fsdp_status put_pairs(struct rank *rank, struct fsdp_err *err)
{
    struct json_text text = { 0 };

    json_open(&text, NULL, '{');
    json_open(&text, "pairs", '[');
    for (int i = 0; i < rank->n_pairs; i++) {
        const struct pair *pair = &rank->pairs[i];

        json_open(&text, NULL, '{');
        json_field(&text, "b", "%d", pair->b);
        json_field_string(&text, "error", pair->error);
        json_field_real(&text, "round_trip_ns", "%.0f", (double)pair->round_trip_ns);
        json_field_real(&text, "clock_us", "%.0f", (double)pair->clock_us);
        json_field_real(&text, "forth", "%.0f", pair->forth);
        json_field_real(&text, "back", "%.0f", pair->back);
        json_close(&text, '}');
    }
    json_close(&text, ']');
    json_close(&text, '}');
    return put_text(rank, "pairs", &text, err);
}

/* On rank 0. */

static enum fsdp_status get_report(struct rank *rank, int node, struct node_view *view,
                                   struct doctor_report *all, struct fsdp_err *err)
{
    struct doctor_report own = { 0 };
    enum fsdp_status status;
    cJSON *object;
    char *rows;

    OK_OR_RETURN(get_object(rank, "report", node, &object, err));
    copy_text(view->name, sizeof view->name, object, "name");
    copy_text(view->version, sizeof view->version, object, "version");
    view->sees_run_dir = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "sees_run_dir"));
    rows = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(object, "rows"));
    cJSON_Delete(object);
    status = rows == NULL ? fsdp_fail(err, FSDP_ERR_FORMAT, "node %d sent no report", node)
                          : doctor_report_read(&own, rows, strlen(rows), err);
    cJSON_free(rows);
    if (status == FSDP_OK && !doctor_report_join(all, view->name, &own))
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the reports of all nodes");
    doctor_report_fini(&own);
    return status;
}

static enum fsdp_status get_pairs(struct rank *rank, int node, struct pair *pairs, size_t *n,
                                  struct fsdp_err *err)
{
    const cJSON *item;
    int n_of_node = 0;
    cJSON *object;

    OK_OR_RETURN(get_object(rank, "pairs", node, &object, err));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, "pairs"))
    {
        struct pair *pair = &pairs[*n];

        *pair = (struct pair){ .a = node,
                               .b = (int)number_of(item, "b"),
                               .round_trip_ns = (int64_t)number_of(item, "round_trip_ns"),
                               .clock_us = (int64_t)number_of(item, "clock_us"),
                               .forth = number_of(item, "forth"),
                               .back = number_of(item, "back") };
        copy_text(pair->error, sizeof pair->error, item, "error");
        if (pair->b <= node || pair->b >= rank->n || ++n_of_node > PAIRS_MOST_ROUNDS)
            break;
        ++*n;
    }
    cJSON_Delete(object);
    return FSDP_OK;
}

/* Adds numbers to equal host names: several nodes may be on one host, and containers often have one name. */
static void tell_names_apart(struct node_view *nodes, int n)
{
    for (int i = 0; i < n; i++) {
        bool again = false;

        for (int k = i + 1; k < n; k++)
            if (strcmp(nodes[k].name, nodes[i].name) == 0) {
                char name[DOCTOR_NODE_BYTES];

                snprintf(name, sizeof name, "%.50s (node %d)", nodes[k].name, k);
                memcpy(nodes[k].name, name, sizeof name);
                again = true;
            }
        if (again)
            snprintf(nodes[i].name + strlen(nodes[i].name), DOCTOR_NODE_BYTES - strlen(nodes[i].name),
                     " (node %d)", i);
    }
}

static enum fsdp_status gather(struct rank *rank, struct doctor_report *report, const char *run_dir,
                               struct fsdp_err *err)
{
    struct node_view *nodes = calloc((size_t)rank->n, sizeof *nodes);
    struct pair *pairs = calloc((size_t)rank->n * PAIRS_MOST_ROUNDS, sizeof *pairs);
    struct doctor_report *of = calloc((size_t)rank->n, sizeof *of), all = { 0 };
    enum fsdp_status status = FSDP_OK;
    size_t n_pairs = 0;
    bool kept = nodes != NULL && pairs != NULL && of != NULL;

    for (int i = 0; i < rank->n && kept && status == FSDP_OK; i++) {
        status = get_report(rank, i, &nodes[i], &of[i], err);
        if (status == FSDP_OK)
            status = get_pairs(rank, i, pairs, &n_pairs, err);
    }
    if (kept && status == FSDP_OK) {
        tell_names_apart(nodes, rank->n);
        for (int i = 0; i < rank->n && kept; i++)
            kept = doctor_report_join(&all, nodes[i].name, &of[i]);
        kept =
            kept && nodes_judge(&all, nodes, rank->n, pairs, n_pairs, rank->mark[0] != '\0' ? run_dir : NULL);
    }
    if (!kept)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the reports of all nodes");
    for (int i = 0; i < rank->n && of != NULL; i++)
        doctor_report_fini(&of[i]);
    free(of);
    free(nodes);
    free(pairs);
    doctor_report_fini(status == FSDP_OK ? report : &all);
    if (status == FSDP_OK)
        *report = all;
    return status;
}

/* The check of the one row that the other ranks have. */
static const char elsewhere[] = "nodes.elsewhere";

bool nodes_are_elsewhere(const struct doctor_report *report)
{
    return report->n == 1 && strcmp(report->rows[0].check, elsewhere) == 0;
}

/*
 * Ends the examination. Rank 0 waits for all reports and sends its verdict to the other ranks. Every other
 * rank waits for that verdict.
 */
static enum fsdp_status conclude(struct rank *rank, struct doctor_report *report, const char *run_dir,
                                 const char *leader, struct fsdp_err *err)
{
    enum doctor_state worst;
    char value[DOCTOR_VALUE_BYTES];
    size_t n_bytes;

    if (rank->self == 0) {
        OK_OR_RETURN(gather(rank, report, run_dir, err));
        worst = doctor_report_worst(report);
        return node_link_put(&rank->link, "verdict", 0, doctor_state_name(worst),
                             strlen(doctor_state_name(worst)), err);
    }
    OK_OR_RETURN(node_link_get(&rank->link, "verdict", 0, rank->value, &n_bytes, err));
    worst = strcmp(rank->value, "fail") == 0   ? DOCTOR_FAIL
            : strcmp(rank->value, "warn") == 0 ? DOCTOR_WARN
                                               : DOCTOR_OK;
    doctor_report_fini(report);
    doctor_say(worst, value, "the report of all nodes is printed on %s", leader);
    return doctor_report_add(report, "", elsewhere, worst, value, "read it there")
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a report");
}

static enum fsdp_status run(struct rank *rank, struct doctor_report *report, const char *version,
                            const char *run_dir, struct fsdp_err *err)
{
    struct address first;

    OK_OR_RETURN(put_address(rank, err));
    OK_OR_RETURN(get_address(rank, 0, &first, err));
    OK_OR_RETURN(put_report(rank, report, version, see_mark(run_dir, first.mark), err));
    OK_OR_RETURN(measure_all(rank, err));
    OK_OR_RETURN(put_pairs(rank, err));
    return conclude(rank, report, run_dir, first.name, err);
}

enum fsdp_status nodes_examine(struct doctor_report *report, const char *version, const char *run_dir,
                               int link_fd, struct fsdp_err *err)
{
    struct rank *rank = calloc(1, sizeof *rank);
    enum fsdp_status status;

    if (rank == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a rank of the doctor");
    status = node_link_open(&rank->link, link_fd, err);
    if (status == FSDP_OK) {
        rank->self = (int)rank->link.hello.rank;
        rank->n = (int)rank->link.hello.world_size;
        if (gethostname(rank->host, sizeof rank->host - 1) < 0)
            snprintf(rank->host, sizeof rank->host, "%.60s", rank->link.hello.node_address);
        make_mark(rank, run_dir);
        status = run(rank, report, version, run_dir, err);
        remove_mark(rank, run_dir);
    }
    free(rank);
    return status;
}
