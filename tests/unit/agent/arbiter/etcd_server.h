/*
 * An etcd of one or three members, which the test starts. Each test process has an address of loopback of its
 * own, so ports cannot collide. Members die with the test.
 */
#ifndef UNIT_AGENT_ETCD_SERVER_H
#define UNIT_AGENT_ETCD_SERVER_H

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/arbiter/arbiter_store.h"
#include "agent/arbiter/etcd_client.h"
#include "shard_runtime/core/clock.h"
#include "tests/unit/agent/scratch.h"

enum { SERVER_MEMBERS = 3, SERVER_PORT = 19379, SERVER_READY_MS = 60000, SERVER_ASK_MS = 10000 };

static pid_t servers[SERVER_MEMBERS];
static int n_servers;

/** "127.A.B.C": the test's own address. */
static inline const char *server_address(void)
{
    static char text[16]; /* set once: a member's process, which is a copy of the test's, has another pid */
    const unsigned pid = (unsigned)getpid();

    if (*text == '\0')
        snprintf(text, sizeof text, "127.%u.%u.%u", 1 + (pid >> 16) % 254, pid >> 8 & 255, pid & 255);
    return text;
}

/** The member's end for clients; the one for members has the port after it. */
static inline const char *server_url(int nth, int plus, const char *scheme)
{
    static char texts[8][64];
    static int used;
    char *const text = texts[used++ % 8];

    snprintf(text, sizeof *texts, "%s://%s:%d", scheme, server_address(), SERVER_PORT + 2 * nth + plus);
    return text;
}

static inline void server_exec(int nth, const char *cluster, const char *scheme, const char *const *more)
{
    const char *arguments[32] = { "etcd" };
    char name[16], dir[128];
    int n = 1;
    const int log = open(scratch_path("log-%d", nth), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const char *const options[][2] = { { "--name", name },
                                       { "--data-dir", dir },
                                       { "--listen-client-urls", server_url(nth, 0, scheme) },
                                       { "--advertise-client-urls", server_url(nth, 0, scheme) },
                                       { "--listen-peer-urls", server_url(nth, 1, "http") },
                                       { "--initial-advertise-peer-urls", server_url(nth, 1, "http") },
                                       { "--initial-cluster", cluster },
                                       { "--initial-cluster-token", server_address() },
                                       /* processes are killed here, not the kernel */
                                       { "--unsafe-no-fsync", NULL } };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(name, sizeof name, "m%d", nth);
    snprintf(dir, sizeof dir, "%s/data-%d", scratch, nth);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (int k = 0; k < 2 && options[i][k] != NULL; k++)
            arguments[n++] = options[i][k];
    while (more != NULL && *more != NULL)
        arguments[n++] = *more++;
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

/** Skip the test unless there is an etcd. Make the folder of the test. */
static inline void servers_begin(void)
{
    if (system("command -v etcd > /dev/null") != 0)
        cr_skip_test("there is no etcd (Debian: etcd-server)");
    scratch_make();
}

/** Start n members. */
static inline void servers_start(int n, const char *scheme, const char *const *more)
{
    char cluster[256] = "";

    for (int i = 0; i < n; i++)
        snprintf(cluster + strlen(cluster), sizeof cluster - strlen(cluster), "%sm%d=%s", i == 0 ? "" : ",",
                 i, server_url(i, 1, "http"));
    for (n_servers = 0; n_servers < n; n_servers++) {
        const pid_t pid = fork();

        if (pid == 0)
            server_exec(n_servers, cluster, scheme, more);
        servers[n_servers] = pid;
    }
}

/** All members, in this order: `first`, the next one, ... */
static inline struct etcd_endpoints server_endpoints(const char *scheme, int first, int n)
{
    struct etcd_endpoints endpoints;
    char text[256];

    snprintf(text, sizeof text, "%s://", scheme);
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%d", i == 0 ? "" : ",",
                 server_address(), SERVER_PORT + 2 * ((first + i) % n_servers));
    cr_assert_eq(etcd_endpoints_parse(&endpoints, text, NULL), FSDP_OK);
    return endpoints;
}

/** What the members said, if one of them has ended by itself; else NULL. */
static inline const char *server_words(void)
{
    for (int i = 0; i < n_servers; i++)
        if (servers[i] > 0 && waitpid(servers[i], NULL, WNOHANG) == servers[i]) {
            servers[i] = 0;
            return scratch_read(scratch_path("log-%d", i));
        }
    return NULL;
}

/** Wait until a store gets an answer. */
static inline void server_wait_ready(struct arbiter_store *store)
{
    const int64_t until_ms = clock_now_ms() + SERVER_READY_MS;
    struct leader_record record;
    struct fsdp_err err = { 0 };

    while (store->ops->read(store, &record, &err) == ARBITER_FAILED) {
        const char *const words = server_words();

        cr_assert_null(words, "etcd has ended: %s", words);
        cr_assert_lt(clock_now_ms(), until_ms, "%s: %s", err.message, scratch_read(scratch_path("log-0")));
    }
}

/** Ask one member something that a store does not ask. The caller frees the answer. */
static inline cJSON *server_ask(int nth, const char *path, const char *body)
{
    const struct etcd_endpoints endpoints = server_endpoints("etcd", nth, 1);
    struct etcd_client *client;
    struct fsdp_err err = { 0 };
    cJSON *answer;

    cr_assert_eq(etcd_client_create(&client, &endpoints, SERVER_ASK_MS, &err), FSDP_OK);
    cr_assert_eq(etcd_client_ask(client, path, body, etcd_client_deadline(client), &answer, &err), FSDP_OK,
                 "%s", err.message);
    etcd_client_destroy(client);
    return answer;
}

static inline const char *server_string(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
}

/** Which member leads the others? */
static inline int server_leader(void)
{
    for (int i = 0; i < n_servers; i++) {
        cJSON *answer = server_ask(i, "/v3/maintenance/status", "{}");
        const char *const member = server_string(cJSON_GetObjectItem(answer, "header"), "member_id");
        const char *const leader = server_string(answer, "leader");
        const bool leads = member != NULL && leader != NULL && strcmp(member, leader) == 0;

        cJSON_Delete(answer);
        if (leads)
            return i;
    }
    cr_assert(false, "no member leads");
    return -1;
}

static inline void server_kill(int nth)
{
    if (servers[nth] <= 0)
        return;
    kill(servers[nth], SIGKILL);
    waitpid(servers[nth], NULL, 0);
    servers[nth] = 0;
}

static inline void servers_kill(void)
{
    for (int i = 0; i < n_servers; i++)
        server_kill(i);
}

static inline void servers_end(void)
{
    servers_kill();
    scratch_remove();
}

#endif
