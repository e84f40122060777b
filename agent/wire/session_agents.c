#include "agent/wire/session_agents.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { AGENTS_MAX = 65536 }; /* 6 MiB */

struct agent {
    struct table_entry link;
    unsigned char identity[SESSION_IDENTITY_BYTES];
    unsigned char session[SESSION_IDENTITY_BYTES]; /* the last one */
    struct session_reach reach;                    /* of that, once it is over */
    bool over, refused;
};

static uint64_t hash_of(const unsigned char *identity)
{
    return XXH3_64bits(identity, SESSION_IDENTITY_BYTES);
}

static struct agent *find(const struct session_agents *agents, const unsigned char *identity)
{
    for (struct table_entry *at = table_first(&agents->table, hash_of(identity)); at != NULL;
         at = table_next(at)) {
        struct agent *agent = TABLE_OWNER(at, struct agent, link);

        if (memcmp(agent->identity, identity, SESSION_IDENTITY_BYTES) == 0)
            return agent;
    }
    return NULL;
}

static struct agent *make(struct session_agents *agents, const unsigned char *identity)
{
    struct agent *agent = agents->table.n_entries < AGENTS_MAX ? calloc(1, sizeof *agent) : NULL;

    if (agent == NULL)
        return NULL;
    memcpy(agent->identity, identity, SESSION_IDENTITY_BYTES);
    if (table_add(&agents->table, &agent->link, hash_of(identity)))
        return agent;
    free(agent);
    return NULL;
}

void session_agents_begin(struct session_agents *agents, const unsigned char identity[SESSION_IDENTITY_BYTES],
                          const unsigned char session[SESSION_IDENTITY_BYTES])
{
    struct agent *agent = find(agents, identity);

    if (agent == NULL)
        agent = make(agents, identity);
    if (agent == NULL)
        return;
    memcpy(agent->session, session, SESSION_IDENTITY_BYTES);
    agent->over = false;
}

void session_agents_end(struct session_agents *agents, const unsigned char identity[SESSION_IDENTITY_BYTES],
                        const unsigned char session[SESSION_IDENTITY_BYTES],
                        const struct session_reach *reach)
{
    struct agent *agent = find(agents, identity);

    if (agent == NULL || memcmp(agent->session, session, SESSION_IDENTITY_BYTES) != 0)
        return;
    agent->reach = *reach;
    agent->over = true;
}

void session_agents_refuse(struct session_agents *agents,
                           const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    struct agent *agent = find(agents, identity);

    if (agent != NULL)
        agent->refused = true;
}

bool session_agents_refuses(const struct session_agents *agents,
                            const unsigned char identity[SESSION_IDENTITY_BYTES])
{
    const struct agent *agent = find(agents, identity);

    return agent != NULL && agent->refused;
}

static enum session_verdict judge_known(struct agent *agent, const struct session_hello *hello,
                                        struct session_hello *answer, struct fsdp_err *err)
{
    enum session_fit fit;

    if (!agent->over || memcmp(agent->session, hello->identity, SESSION_IDENTITY_BYTES) != 0) {
        if (!agent->refused)
            return hello->connection == 1 ? SESSION_NEW : SESSION_GONE;
        session_fit_fail(SESSION_THEY_WENT_BACK, err);
        return SESSION_BACKWARDS;
    }
    if (hello->connection <= agent->reach.connection)
        return SESSION_STALE;
    answer->received = agent->reach.received;
    answer->sent = agent->reach.sent;
    fit = session_fit(&agent->reach, hello);
    agent->refused = agent->refused || fit == SESSION_THEY_WENT_BACK;
    if (fit == SESSION_FITS && !agent->refused)
        return SESSION_GONE;
    session_fit_fail(fit == SESSION_WE_WENT_BACK ? fit : SESSION_THEY_WENT_BACK, err);
    return SESSION_BACKWARDS;
}

enum session_verdict session_agents_judge(struct session_agents *agents, const unsigned char *identity,
                                          const struct session_hello *hello, struct session_hello *answer,
                                          struct fsdp_err *err)
{
    struct agent *agent = identity == NULL ? NULL : find(agents, identity);

    *answer = *hello;
    answer->received = hello->sent; /* numbers that fit */
    answer->sent = hello->received;
    if (agent != NULL)
        answer->verdict = judge_known(agent, hello, answer, err);
    else
        answer->verdict = hello->connection == 1 ? SESSION_NEW : SESSION_GONE;
    return answer->verdict;
}

void session_agents_free(struct session_agents *agents)
{
    for (struct table_entry *at = table_empty(&agents->table), *next; at != NULL; at = next) {
        next = at->next;
        free(TABLE_OWNER(at, struct agent, link));
    }
}
