#include "agent/arbiter/etcd_client.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <fcntl.h>

#include "shard_runtime/core/clock.h"
#include "tests/unit/agent/arbiter/fake_etcd.h"

enum { REQUEST_MS = 1500, MS = 1000 * 1000 };

static const struct fake_reply good = { .json = "{" FAKE_HEADER ", \"ID\": \"5\"}" };
static const struct fake_reply silent = { 0 };
static struct etcd_client *client;
static cJSON *answer;
static struct fsdp_err err;

/* A client of n members of `fakes`. */
static void connect_to(int n)
{
    char text[256] = "etcd://";
    struct etcd_endpoints endpoints;

    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s127.0.0.1:%d", i == 0 ? "" : ",",
                 fakes[i].port);
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_OK), "%s", err.message);
    cr_assert(eq(int, etcd_client_create(&client, &endpoints, REQUEST_MS, &err), FSDP_OK), "%s", err.message);
}

static enum fsdp_status ask(void)
{
    cJSON_Delete(answer);
    return etcd_client_ask(client, "/v3/x", "{\"a\": 1}", etcd_client_deadline(client), &answer, &err);
}

static void tear_down(void)
{
    cJSON_Delete(answer);
    etcd_client_destroy(client);
}

TestSuite(etcd_client, .fini = tear_down, .timeout = 60);

Test(etcd_client, a_request_is_a_post_of_json)
{
    fake_start(0, &good, 1);
    connect_to(1);

    cr_assert(eq(int, ask(), FSDP_OK), "%s", err.message);

    cr_assert(eq(str, cJSON_GetStringValue(cJSON_GetObjectItem(answer, "ID")), "5"));
    cr_assert(strncmp(fakes[0].requests[0], "POST /v3/x HTTP/1.1\r\n", 21) == 0);
    cr_assert_not_null(strstr(fakes[0].requests[0], "Content-Type: application/json\r\n"));
    cr_assert_not_null(strstr(fakes[0].requests[0], "\r\n\r\n{\"a\": 1}"));
}

Test(etcd_client, one_connection_serves_all_requests)
{
    fake_start(0, &good, 1);
    connect_to(1);

    for (int i = 0; i < 3; i++)
        cr_assert(eq(int, ask(), FSDP_OK));

    cr_assert(eq(int, fakes[0].n_requests, 3));
    cr_assert(eq(int, fakes[0].n_connections, 1));
}

ParameterizedTestParameters(etcd_client, a_bad_member_is_passed_over)
{
    static int cases[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };

    return cr_make_param_array(int, cases, sizeof cases / sizeof *cases);
}

static struct fake_reply bad_reply(int nth)
{
    static char long_json[20000];
    static const char *const raw[] = {
        "",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>",
        "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 700\r\n\r\n{\"header\":{\"cluster_id\":\"77\"}",
        "HTTP/1.1 503 X\r\n\r\n{\"message\":\"etcdserver: request timed out\",\"code\":14}",
        "HTTP/1.1 200 OK\r\n\r\n{\"header\":{}}",
    };
    const int n_raw = sizeof raw / sizeof *raw;

    if (nth < n_raw)
        return (struct fake_reply){ .raw = raw[nth] };
    if (nth == n_raw)
        return (struct fake_reply){ .endless = true };
    if (nth == n_raw + 1)
        return silent;
    memset(long_json, ' ', sizeof long_json - 1);
    memcpy(long_json, good.json, strlen(good.json));
    return (struct fake_reply){ .json = long_json };
}

ParameterizedTest(int *nth, etcd_client, a_bad_member_is_passed_over)
{
    const struct fake_reply bad = bad_reply(*nth);

    fake_start(0, &bad, 1);
    fake_start(1, &good, 1);
    connect_to(2);

    cr_assert(eq(int, ask(), FSDP_OK), "%s", err.message);
    cr_assert(eq(int, ask(), FSDP_OK), "%s", err.message);

    cr_assert(eq(int, fakes[0].n_requests, 1), "the member that answered is asked first from then on");
    cr_assert(eq(int, fakes[1].n_requests, 2));
}

Test(etcd_client, a_member_that_refuses_connections_is_passed_over)
{
    fake_start(0, NULL, 0);
    fake_start(1, NULL, 0);
    fake_start(2, &good, 1);
    connect_to(3);

    cr_assert(eq(int, ask(), FSDP_OK), "%s", err.message);
}

/* A follower may lose a request when its leader dies. The same member answers the next try. */
Test(etcd_client, a_request_that_was_lost_is_sent_again)
{
    const struct fake_reply replies[] = { silent, good };

    fake_start(0, replies, 2);
    connect_to(1);

    cr_assert(eq(int, ask(), FSDP_OK), "%s", err.message);

    cr_assert(eq(int, fakes[0].n_requests, 2));
}

Test(etcd_client, members_that_are_silent_cost_no_more_than_the_time)
{
    const int64_t began_ms = clock_now_ms();

    fake_start(0, &silent, 1);
    fake_start(1, &silent, 1);
    connect_to(2);

    cr_assert(eq(int, ask(), FSDP_ERR_IO));

    cr_assert(ge(int, (int)(clock_now_ms() - began_ms), REQUEST_MS / 2));
    cr_assert(lt(int, (int)(clock_now_ms() - began_ms), 2 * REQUEST_MS));
    cr_assert(eq(ptr, answer, NULL));
    cr_assert(fakes[0].n_requests > 0 && fakes[1].n_requests > 0);
    cr_assert_not_null(strstr(err.message, "etcd at http://127.0.0.1:"));
}

Test(etcd_client, members_that_refuse_are_asked_until_the_time_is_over)
{
    const int64_t began_ms = clock_now_ms();

    fake_start(0, NULL, 0);
    connect_to(1);

    cr_assert(eq(int, ask(), FSDP_ERR_IO));

    cr_assert(lt(int, (int)(clock_now_ms() - began_ms), 2 * REQUEST_MS));
    cr_assert_not_null(strstr(err.message, "connect to 127.0.0.1 port"), "%s", err.message);
}

Test(etcd_client, nothing_is_sent_after_the_deadline)
{
    fake_start(0, &good, 1);
    connect_to(1);

    cr_assert(
        eq(int, etcd_client_ask(client, "/v3/x", "{}", clock_boot_ns() - 1, &answer, &err), FSDP_ERR_IO));

    cr_assert(ne(str, err.message, ""));
    cr_assert(eq(int, fakes[0].n_connections, 0));
}

Test(etcd_client, a_member_of_another_etcd_is_refused)
{
    static const struct fake_reply other = { .json = "{" FAKE_OTHER_HEADER "}" };
    const struct fake_reply replies[] = { good, { .raw = "" } };

    fake_start(0, replies, 2);
    fake_start(1, &other, 1);
    connect_to(2);

    cr_assert(eq(int, ask(), FSDP_OK));
    cr_assert(eq(int, ask(), FSDP_ERR_IO));

    cr_assert(gt(int, fakes[1].n_requests, 0));
    cr_assert(eq(ptr, answer, NULL));
}

Test(etcd_client, a_lease_that_is_over_is_said_at_once)
{
    static const struct fake_reply over = {
        .raw =
            "HTTP/1.1 404 Not Found\r\n\r\n{\"message\":\"etcdserver: requested lease not found\",\"code\":5}"
    };

    fake_start(0, &over, 1);
    fake_start(1, &good, 1);
    connect_to(2);

    cr_assert(eq(int, ask(), FSDP_ERR_NOT_FOUND));

    cr_assert(eq(int, fakes[1].n_requests, 0));
}

Test(etcd_client, a_body_without_memory_is_not_sent)
{
    fake_start(0, &good, 1);
    connect_to(1);

    cr_assert(eq(int, etcd_client_ask(client, "/v3/x", NULL, etcd_client_deadline(client), &answer, &err),
                 FSDP_ERR_NOMEM));

    cr_assert(eq(int, fakes[0].n_connections, 0));
}

Test(etcd_client, a_proxy_of_the_environment_is_not_used)
{
    cr_assert(eq(int, setenv("http_proxy", "http://127.0.0.1:1", 1), 0));
    cr_assert(eq(int, setenv("ALL_PROXY", "http://127.0.0.1:1", 1), 0));
    fake_start(0, &good, 1);
    connect_to(1);

    cr_assert(eq(int, ask(), FSDP_OK), "%s", err.message);
}

Test(etcd_client, a_worker_does_not_inherit_the_connection)
{
    DIR *dir;
    int n_sockets = 0;

    fake_start(0, &good, 1);
    connect_to(1);
    cr_assert(eq(int, ask(), FSDP_OK));

    dir = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        const int fd = atoi(entry->d_name);

        if (getpeername(fd, (struct sockaddr *)&peer, &length) != 0 || peer.sin_family != AF_INET ||
            ntohs(peer.sin_port) != fakes[0].port)
            continue;
        n_sockets++;
        cr_assert(ne(int, fcntl(fd, F_GETFD) & FD_CLOEXEC, 0));
    }
    closedir(dir);
    cr_assert(eq(int, n_sockets, 1));
}
