/*
 * The keys that workers put for ranks of other nodes. A value goes only to the nodes that asked for its key:
 *   1. A worker asks its node for a key that the node lacks. The node sends one WANT to the coordinator.
 *   2. A worker puts a key. Its node sends the key and its value to the coordinator, unless a descriptor
 *     comes
 *      with it, which only processes of the same host can use.
 *   3. The coordinator keeps every value until the generation is over. As soon as it has both the value and
 *      the WANT, it sends the value to that node, once.
 */
#include "agent/cluster/coordinator_impl.h"

enum { KEYS_MAX_BYTES = 1 << 30 }; /* of one generation */

struct telling {
    int from; /* the node that put the key */
    const char *key;
};

static void tell_value(const struct coordinator_node *node, const char *key, const struct store_value *value)
{
    const struct coordinator *coordinator = node->coordinator;
    const struct proto_put put = { key, value->bytes, value->size_bytes };

    if (coordinator_in_play(coordinator, (int)(node - coordinator->nodes)))
        node->tell(node->member, PROTO_PUT, coordinator->generation, &put);
}

static void tell_waiting(void *arg, void *client, uint32_t tag, const struct store_value *value)
{
    const struct telling *telling = arg;
    const struct coordinator_node *node = client;

    (void)tag;
    if (node != &node->coordinator->nodes[telling->from]) /* it has the value already */
        tell_value(node, telling->key, value);
}

/*
 * Returns whether there are ranks on other nodes, which may need keys. At the first key, makes the store for
 * them.
 */
static bool have_keys(struct coordinator *coordinator)
{
    if (coordinator->roster.n_nodes == 1)
        return false;
    if (coordinator->keys == NULL)
        coordinator->keys = store_create(KEYS_MAX_BYTES);
    return coordinator->keys != NULL;
}

void coordinator_put(struct coordinator *coordinator, int node, const char *key, const void *value,
                     size_t size_bytes)
{
    struct telling telling = { .from = node, .key = key };
    struct fsdp_err err = { 0 };

    if (have_keys(coordinator) &&
        store_put(coordinator->keys, key, value, size_bytes, -1, tell_waiting, &telling, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: %s", err.message);
}

void coordinator_want(struct coordinator *coordinator, int node, const char *key)
{
    struct coordinator_node *from = &coordinator->nodes[node];
    struct fsdp_err err = { 0 };
    struct store_value value;

    if (!have_keys(coordinator))
        return;
    if (store_get(coordinator->keys, key, from, 0, &value, NULL, &err) != FSDP_OK)
        console_say(coordinator->services.console, "fsdprun: %s", err.message);
    else if (value.bytes != NULL)
        tell_value(from, key, &value);
}

void coordinator_forget_keys(struct coordinator *coordinator)
{
    store_destroy(coordinator->keys);
    coordinator->keys = NULL;
}
