/* Which node hosts: this one, if it has the endpoint, or if the arbiter says so. */
#include "agent/rendezvous/meeting_impl.h"

#include <stdio.h>
#include <string.h>

/*
 * Returns whether this node may host. Rank 0 of a trainer's job must be on the node of the coordinator. So a
 * node that was given another node rank leaves hosting to the node with rank 0.
 */
static bool may_host(const struct agent_config *config)
{
    if (config->hosting != AGENT_HOST_AUTO)
        return config->hosting == AGENT_HOST_YES;
    return config->job_json == NULL || config->node_rank <= 0;
}

bool meeting_is_open_to_others(const struct meeting *meeting)
{
    return !endpoint_is_loopback(meeting_has_endpoint(meeting) ? meeting->endpoint.host : meeting->address);
}

void meeting_end_offer(struct meeting *meeting)
{
    rendezvous_destroy(meeting->offer);
    meeting->offer = NULL;
}

/* Ends the meeting: this node hosts. It serves other nodes on the listener of its offer. */
static void end_as_host(struct meeting *meeting)
{
    struct rendezvous *rendezvous = meeting->offer;
    char name[ENDPOINT_TEXT_BYTES], where[ENDPOINT_TEXT_BYTES + 64];

    meeting->over = true;
    meeting->offer = NULL;
    uv_timer_stop(&meeting->timer);
    snprintf(where, sizeof where, "%s%s",
             endpoint_text(name,
                           meeting->again || !meeting_has_endpoint(meeting) ? meeting->address
                                                                            : meeting->endpoint.host,
                           rendezvous_port(rendezvous)),
             meeting_is_open_to_others(meeting) ? " (on every address of this node)" : "");
    meeting->handlers.hosts(meeting->arg, rendezvous, where);
}

/* Tells the arbiter that this node could host, at address `host`. */
static void offer(struct meeting *meeting, const char *host)
{
    if (!meeting->handlers.offers(meeting->arg, host, rendezvous_port(meeting->offer)))
        meeting->over = true;
}

/* By the endpoint */

bool meeting_hosts_by_endpoint(const struct meeting *meeting)
{
    return meeting_has_endpoint(meeting) && !meeting->again && meeting->leader.port == 0 &&
           may_host(meeting->config);
}

/*
 * Starts to listen if this node has the endpoint's address, and so becomes the host. It listens on every
 * address of the node. The node itself may know its name as 127.0.1.1 (Debian's /etc/hosts), but other nodes
 * know another address for that name.
 */
static enum fsdp_status listen_here(struct meeting *meeting, struct rendezvous **out, struct fsdp_err *err)
{
    struct endpoint_addresses every;

    if (!meeting_is_open_to_others(meeting))
        return rendezvous_listen(out, meeting->loop, &meeting->addresses, &meeting->sessions, err);
    if (meeting->config->hosting != AGENT_HOST_YES && !endpoint_is_here(&meeting->addresses))
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no address of this host");
    endpoint_wildcard(&every, meeting->endpoint.port);
    return rendezvous_listen(out, meeting->loop, &every, &meeting->sessions, err);
}

bool meeting_become_host(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status = listen_here(meeting, &meeting->offer, &err);

    if (status == FSDP_OK) {
        uv_timer_stop(&meeting->timer);
        if (meeting->handlers.offers == NULL)
            end_as_host(meeting);
        else
            offer(meeting, meeting->endpoint.host);
        return true;
    }
    if (status != FSDP_ERR_BUSY && status != FSDP_ERR_NOT_FOUND)
        snprintf(meeting->last_words, sizeof meeting->last_words, "cannot listen: %s", err.message);
    else if (meeting->config->hosting == AGENT_HOST_YES)
        snprintf(meeting->last_words, sizeof meeting->last_words, "another process listens there");
    return false;
}

bool meeting_leads_here(const struct meeting *meeting)
{
    const struct endpoint *to = meeting_place(meeting);

    if (meeting->offer == NULL || to->port != rendezvous_port(meeting->offer))
        return false;
    if (!meeting_is_open_to_others(meeting))
        return strcmp(to->host, meeting->address) == 0;
    return endpoint_is_here(&meeting->addresses) ||
           (to == &meeting->endpoint && meeting->config->hosting == AGENT_HOST_YES);
}

/* Where an arbiter says who leads */

/* Listens at `port` of this node's own address; port 0: at any free port. */
static enum fsdp_status offer_at(struct meeting *meeting, int port, struct fsdp_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct endpoint_addresses at;
    struct addrinfo *found = NULL;
    char digits[16];

    snprintf(digits, sizeof digits, "%d", port);
    endpoint_wildcard(&at, port);
    if (!meeting_is_open_to_others(meeting) && getaddrinfo(meeting->address, digits, &hints, &found) == 0) {
        endpoint_collect(&at, found);
        freeaddrinfo(found);
    }
    return rendezvous_listen(&meeting->offer, meeting->loop, &at, &meeting->sessions, err);
}

bool meeting_offer_without_endpoint(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };

    if (meeting->again || meeting->offer != NULL || !may_host(meeting->config))
        return true;
    if (offer_at(meeting, 0, &err) == FSDP_OK)
        offer(meeting, meeting->address);
    else
        snprintf(meeting->last_words, sizeof meeting->last_words, "cannot listen: %s", err.message);
    return !meeting->over;
}

enum fsdp_status meeting_offer(struct meeting *meeting, const char **host, int *port, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (meeting->offer == NULL)
        status = meeting_has_endpoint(meeting) ? offer_at(meeting, meeting->endpoint.port, NULL)
                                               : FSDP_ERR_NOT_FOUND;
    if (status != FSDP_OK)
        status = offer_at(meeting, 0, err);
    if (status != FSDP_OK)
        return status;
    meeting->stands = true;
    *host = meeting->address;
    *port = rendezvous_port(meeting->offer);
    return FSDP_OK;
}

void meeting_lead(struct meeting *meeting)
{
    struct fsdp_err err = { 0 };
    const char *at;
    int port;

    meeting_end_attempt(meeting);
    if (meeting->offer == NULL && meeting_offer(meeting, &at, &port, &err) != FSDP_OK)
        meeting_fail(meeting, FSDP_EXIT_LINK, err.message);
    else
        end_as_host(meeting);
}

/*
 * Another node leads. A session that exists with it is kept: its coordinator may have let this node in a
 * moment ago.
 */
void meeting_follow(struct meeting *meeting, const char *host, int port)
{
    const struct endpoint dialled = *meeting_place(meeting);

    if (endpoint_init(&meeting->leader, host, port, NULL) != FSDP_OK)
        meeting->leader.port = 0;
    if (meeting->over || meeting->welcomed || meeting->leader.port == 0)
        return;
    meeting_end_offer(meeting);
    meeting->n_rounds = 0;
    if (meeting->session != NULL && dialled.port == port && strcmp(dialled.host, meeting->leader.host) == 0)
        return;
    meeting_end_attempt(meeting);
    meeting->pause_ms = MEETING_FIRST_PAUSE_MS;
    uv_timer_start(&meeting->timer, meeting_on_timer, 0, 0);
}
