/* Fills in where the nodes of a run meet, and what their workers are told about it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "agent/arbiter/etcd_endpoints.h"
#include "agent/wire/endpoint.h"
#include "launcher/launch_impl.h"
#include "launcher/rdzv_conf.h"
#include "launcher/scheduler.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"

void launch_note(struct launch *launch, const char *format, ...)
{
    va_list args;

    if (launch->n_notes == LAUNCH_NOTES_MAX)
        return;
    va_start(args, format);
    vsnprintf(launch->notes[launch->n_notes++], LAUNCH_NOTE_BYTES, format, args);
    va_end(args);
}

static const char *text_of(const struct options *options, enum option_id id)
{
    return options->of[id].text;
}

/* Is the endpoint an etcd? Then the nodes find in it which node leads, and no node is the fixed host. */
static bool meets_by_etcd(const struct options *options)
{
    const char *endpoint = text_of(options, OPT_RDZV_ENDPOINT);

    return endpoint != NULL && etcd_endpoints_are_named(endpoint);
}

/*
 * Reads host and port of an option. `fallback` is the port if the option names none. Returns 0, or the exit
 * status.
 */
static int read_endpoint(const struct options *options, enum option_id id, char host[LAUNCH_HOST_BYTES],
                         int fallback, int *port, struct fsdp_err *err)
{
    const char *text = text_of(options, id);

    if (options_endpoint(text, host, LAUNCH_HOST_BYTES, fallback, port, err) == FSDP_OK)
        return 0;
    fsdp_wrap(err, "%s", options->of[id].origin);
    return FSDP_EXIT_USAGE;
}

/* Reads --master-addr, which has no port: --master-port has it. An IPv6 address may be in brackets or not. */
static int read_master(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    const char *text = text_of(options, OPT_MASTER_ADDR), *colon = strchr(text, ':');
    bool ipv6 = text[0] == '[' || (colon != NULL && strchr(colon + 1, ':') != NULL);
    size_t length = strlen(text), skip = 0;

    if (ipv6 && text[0] == '[' && text[length - 1] == ']') {
        skip = 1;
        length -= 2;
    } else if ((colon != NULL && !ipv6) || text[0] == '[') {
        return launch_bad_usage(err,
                                "%s: must be an address without a port (that is --master-port), not %.60s",
                                options->of[OPT_MASTER_ADDR].origin, text);
    }
    if (length == 0 || length >= sizeof launch->master_host)
        return launch_bad_usage(err, "%s: %.60s is no address", options->of[OPT_MASTER_ADDR].origin, text);
    memcpy(launch->master_host, text + skip, length);
    launch->master_host[length] = '\0';
    return 0;
}

/*
 * Sets the endpoint at which several nodes meet. It is --rdzv-endpoint, or else --master-addr and
 * --master-port. If both are given, the workers get the second as MASTER_ADDR and MASTER_PORT. If both name
 * the same address, the workers get another port, because the agents listen at that one.
 */
static int set_endpoint(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    bool has_endpoint = text_of(options, OPT_RDZV_ENDPOINT) != NULL;
    bool has_master = text_of(options, OPT_MASTER_ADDR) != NULL;
    int port = (int)options_number(options, OPT_MASTER_PORT, LAUNCH_MASTER_PORT), status = 0;

    if (!has_endpoint && !has_master)
        return launch_bad_usage(err, "more than one node needs --rdzv-endpoint HOST:PORT");
    if (meets_by_etcd(options)) {
        if (has_master)
            launch_note(launch, "any node may lead: %s=%.60s is set aside",
                        options->of[OPT_MASTER_ADDR].origin, text_of(options, OPT_MASTER_ADDR));
        return 0;
    }
    if (has_master)
        status = read_master(launch, options, err);
    if (status == 0 && has_endpoint)
        status =
            read_endpoint(options, OPT_RDZV_ENDPOINT, launch->endpoint_host, LAUNCH_DEFAULT_PORT, &port, err);
    if (status != 0)
        return status;
    if (!has_endpoint)
        memcpy(launch->endpoint_host, launch->master_host, sizeof launch->endpoint_host);
    if (port == 0)
        return launch_bad_usage(err, "the nodes need one port to meet at: --rdzv-endpoint HOST:PORT");
    config->rendezvous_host = launch->endpoint_host;
    config->rendezvous_port = port;
    if (has_endpoint && has_master) {
        int master_port = (int)options_number(options, OPT_MASTER_PORT, 0);

        config->master_address = launch->master_host;
        config->master_port =
            master_port == port && strcmp(launch->master_host, launch->endpoint_host) == 0 ? 0 : master_port;
    }
    return 0;
}

/*
 * Gives all nodes of a Slurm step the same secret, if the user gave none. The first node makes one up and
 * writes it to a file. The other nodes wait for that file.
 */
static enum fsdp_status share_secret(struct launch *launch, const struct slurm_step *step,
                                     const struct launch_world *world, struct fsdp_err *err)
{
    char *path = launch->secret_file;

    /* A step may run several jobs, one after another, so the name of the job is part of the file's name. */
    if (snprintf(path, sizeof launch->secret_file, "%s/.secret-%s%s%s", world->secret_folder, step->id,
                 world->job_name == NULL ? "" : "-",
                 world->job_name == NULL ? "" : world->job_name) >= (int)sizeof launch->secret_file)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "the path of %.80s is too long", world->secret_folder);
    if (step->node != 0)
        return secret_await(&launch->secret, path, launch->config.join_timeout_ms, err);
    OK_OR_RETURN(rundir_make_folders(world->secret_folder, err));
    OK_OR_RETURN(secret_make(&launch->secret, path, err));
    launch->has_made_secret = true;
    return FSDP_OK;
}

static int set_secret(struct launch *launch, const struct options *options, const struct launch_world *world,
                      const struct surroundings *around, struct fsdp_err *err)
{
    enum fsdp_status status = secret_load(&launch->secret, text_of(options, OPT_SECRET_FILE), err);

    if (status == FSDP_OK && launch->secret.n_bytes == 0 && around->slurm != NULL &&
        !options_has(options, OPT_INSECURE) && !options_has(options, OPT_DRY_RUN))
        status = share_secret(launch, around->slurm, world, err);
    if (status != FSDP_OK)
        return exit_status_of(status);
    if (launch->secret.n_bytes == 0 && around->slurm != NULL && options_has(options, OPT_DRY_RUN))
        return 0; /* --dry-run only prints the launch, so no secret is made */
    if (launch->secret.n_bytes == 0 && !options_has(options, OPT_INSECURE))
        return launch_bad_usage(err,
                                "more than one node needs --secret-file FILE (or, on a network you trust, "
                                "--insecure or FSDPRUN_INSECURE=1)");
    if (launch->secret.n_bytes > 0) {
        launch->config.secret = launch->secret.bytes;
        launch->config.secret_bytes = launch->secret.n_bytes;
    }
    return 0;
}

static int set_arbiter(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    const enum option_id named = meets_by_etcd(options) ? OPT_RDZV_ENDPOINT : OPT_ARBITER;
    const char *where = text_of(options, named), *other = text_of(options, OPT_ARBITER);
    struct etcd_endpoints etcd;

    if (other != NULL && strcmp(other, where) != 0)
        return launch_bad_usage(err, "%s %.80s contradicts %s %.80s: that etcd says which node leads",
                                options->of[OPT_ARBITER].origin, other, options->of[named].origin, where);
    if (where == NULL || strcmp(where, "directory") == 0)
        launch->config.arbiter = AGENT_ARBITER_DIRECTORY;
    else if (strcmp(where, "none") == 0)
        launch->config.arbiter = AGENT_ARBITER_NONE;
    else if (!etcd_endpoints_are_named(where))
        return launch_bad_usage(err, "--arbiter is directory, none or etcd://HOST:PORT,...");
    else
        launch->config.arbiter = AGENT_ARBITER_ETCD;
    if (launch->config.arbiter != AGENT_ARBITER_ETCD)
        return 0;
    launch->config.etcd = where;
    if (etcd_endpoints_parse(&etcd, where, err) == FSDP_OK)
        return 0;
    fsdp_wrap(err, "%s", options->of[named].origin);
    return FSDP_EXIT_USAGE;
}

static bool is_c10d(const struct options *options)
{
    const char *backend = text_of(options, OPT_RDZV_BACKEND);

    return backend != NULL && strcmp(backend, "c10d") == 0;
}

/*
 * Sets MASTER_ADDR and MASTER_PORT of a run on one node, if the user names them. With --rdzv-endpoint, its
 * host is MASTER_ADDR, and its port depends on the backend:
 *   static  that port is MASTER_PORT
 *   c10d    that port serves only for nodes to meet, and a single node meets no other. As under torchrun the
 *           store gets a free port in each generation, so two runs may name the same endpoint.
 * An etcd as the endpoint sets neither.
 */
static int set_master(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    int status, port;

    config->master_port = (int)options_number(options, OPT_MASTER_PORT, 0);
    if (text_of(options, OPT_MASTER_ADDR) != NULL) {
        status = read_master(launch, options, err);
        if (status != 0)
            return status;
        config->master_address = launch->master_host;
    }
    if (text_of(options, OPT_RDZV_ENDPOINT) == NULL || meets_by_etcd(options))
        return 0;
    config->master_address = launch->endpoint_host;
    status = read_endpoint(options, OPT_RDZV_ENDPOINT, launch->endpoint_host, 0, &port, err);
    if (status == 0 && !is_c10d(options))
        config->master_port = port;
    return status;
}

/*
 * Handles an option that contradicts --standalone, which means this node alone. torchrun ignores such an
 * option silently. Here it is refused if it is on the command line. If a cluster has put it into the
 * environment, it is ignored, and a note says so.
 */
static int contradiction(struct launch *launch, const struct options *options, enum option_id id,
                         struct fsdp_err *err)
{
    const struct option_value *value = &options->of[id];

    if (value->origin[0] != '-') {
        launch_note(launch, "--standalone is this node alone: %s=%s is set aside",
                    value->origin[0] == '\0' ? "launch.nnodes" : value->origin,
                    value->text == NULL ? "more" : value->text);
        return 0;
    }
    return launch_bad_usage(err, "%s %.100s contradicts --standalone, which is this node alone",
                            value->origin, value->text);
}

static int set_standalone(struct launch *launch, const struct options *options,
                          const struct launch_world *world, struct fsdp_err *err)
{
    char host[LAUNCH_HOST_BYTES];
    int port, status = 0;

    if (world->min_nodes > 1)
        status = contradiction(launch, options, OPT_NNODES, err);
    if (status == 0 && options_number(options, OPT_NODE_RANK, 0) > 0)
        status = contradiction(launch, options, OPT_NODE_RANK, err);
    if (status != 0 || text_of(options, OPT_RDZV_ENDPOINT) == NULL)
        return status;
    if (meets_by_etcd(options))
        return contradiction(launch, options, OPT_RDZV_ENDPOINT, err);
    status = read_endpoint(options, OPT_RDZV_ENDPOINT, host, 0, &port, err);
    if (status == 0 && !endpoint_is_loopback(host))
        status = contradiction(launch, options, OPT_RDZV_ENDPOINT, err);
    return status;
}

static int set_conf(struct launch *launch, const struct options *options, struct rdzv_conf *conf,
                    struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    const char *text = text_of(options, OPT_RDZV_CONF);
    enum fsdp_status status = rdzv_conf_read(conf, text == NULL ? "" : text, err);

    if (status != FSDP_OK)
        return FSDP_EXIT_USAGE;
    config->hosting = conf->is_host < 0 ? AGENT_HOST_AUTO : conf->is_host ? AGENT_HOST_YES : AGENT_HOST_NO;
    if (conf->unknown[0] != '\0')
        launch_note(launch, "%s: nothing here knows of %s", options->of[OPT_RDZV_CONF].origin, conf->unknown);
    if (conf->join_timeout_s > 0)
        config->join_timeout_ms = conf->join_timeout_s * 1000;
    else if (conf->timeout_s > 0) /* with the backend static: how long nodes wait for node 0 */
        config->join_timeout_ms = conf->timeout_s * 1000;
    if (conf->last_call_timeout_s > 0)
        config->last_call_timeout_ms = conf->last_call_timeout_s * 1000;
    if (conf->lease_s > 0)
        config->lease_ms = conf->lease_s * 1000;
    return 0;
}

/* Returns the rank of this node. -1: the run may choose it, with c10d or if the nodes meet in an etcd. */
static int node_rank(const struct options *options, int n_nodes)
{
    if (text_of(options, OPT_NODE_RANK) != NULL)
        return (int)options_number(options, OPT_NODE_RANK, 0);
    return n_nodes > 1 && (is_c10d(options) || meets_by_etcd(options)) ? -1 : 0;
}

/*
 * Did the user name no place to meet? On one node torchrun then behaves as with --standalone, even with the
 * backend static.
 */
static bool names_no_place(const struct options *options)
{
    return text_of(options, OPT_RDZV_ENDPOINT) == NULL && !options_has(options, OPT_MASTER_PORT);
}

/*
 * Does the user want the agent not to serve the store? PyTorch has this variable for it. As under torchrun,
 * it has no effect if the user asks for a fixed master address or port.
 */
static bool wants_no_store(const struct options *options, const struct surroundings *around)
{
    const char *word = around->get_env(around->arg, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE");

    return word != NULL && strcmp(word, "1") == 0 &&
           (options_has(options, OPT_STANDALONE) || is_c10d(options) || names_no_place(options));
}

int launch_set_run_id(struct launch *launch, const struct options *options, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    unsigned char r[16];

    if (text_of(options, OPT_RDZV_ID) != NULL || config->n_nodes > 1 ||
        (!options_has(options, OPT_STANDALONE) && (is_c10d(options) || !names_no_place(options))))
        return 0;
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r)
        return exit_status_of(fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno)));
    r[6] = 0x40 | (r[6] & 0x0f); /* RFC 4122: a UUID of version 4, which is random */
    r[8] = 0x80 | (r[8] & 0x3f);
    snprintf(launch->run_id, sizeof launch->run_id,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0], r[1], r[2], r[3],
             r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
    config->run_id = launch->run_id;
    return 0;
}

static int refuse_worlds_of_one(const struct surroundings *around, struct fsdp_err *err)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    struct scheduler_step step;

    if (!scheduler_step_find(&step, around->get_env, around->arg))
        return 0;
    scheduler_step_advise(&step, LAUNCH_DEFAULT_PORT, words, sizeof words);
    return launch_bad_usage(err, "%s", words);
}

/* Refuses a Slurm job of several nodes that was started without srun: it would use only one of them. */
static int refuse_idle_nodes(const struct options *options, const struct surroundings *around,
                             struct fsdp_err *err)
{
    const int n_nodes = scheduler_idle_nodes(around->get_env, around->arg);

    if (n_nodes == 0)
        return 0;
    return launch_bad_usage(
        err,
        "this Slurm job has %d nodes, and only this one would be used; start it by srun: "
        "srun --ntasks-per-node=1 %s ... %.200s (or add --standalone, for this node alone)",
        n_nodes, options->program, options->rest[0]);
}

/* Refuses a world that needs more nodes than the Slurm step has: the nodes of the step would wait in vain. */
static int refuse_missing_nodes(const struct launch *launch, const struct options *options,
                                const struct surroundings *around, struct fsdp_err *err)
{
    const struct slurm_step *step = around->slurm;

    if (step == NULL || launch->config.min_nodes <= step->n_nodes)
        return 0;
    return launch_bad_usage(err, "%s asks for %d nodes, and this Slurm step has %d",
                            options->of[OPT_NNODES].text == NULL || options->of[OPT_NNODES].is_weak
                                ? "launch.nnodes"
                                : options->of[OPT_NNODES].origin,
                            launch->config.min_nodes, step->n_nodes);
}

/*
 * Is this node the only one of its Slurm step? Then its tasks are not worlds of their own: the first task
 * launches.
 */
static bool is_whole_step(const struct surroundings *around)
{
    return around->slurm != NULL && around->slurm->n_nodes == 1;
}

int launch_set_nodes(struct launch *launch, const struct options *options, const struct launch_world *world,
                     const struct surroundings *around, struct fsdp_err *err)
{
    struct agent_config *config = &launch->config;
    bool standalone = options_has(options, OPT_STANDALONE);
    struct rdzv_conf conf;
    int status = set_conf(launch, options, &conf, err);

    if (status == 0 && standalone)
        status = set_standalone(launch, options, world, err);
    if (status != 0)
        return status;
    config->n_nodes = standalone ? 1 : world->n_nodes;
    config->min_nodes = standalone ? 1 : world->min_nodes;
    config->node_rank = standalone ? 0 : node_rank(options, config->n_nodes);
    config->local_address = text_of(options, OPT_LOCAL_ADDR);
    config->no_store = wants_no_store(options, around) && (config->n_nodes == 1 || is_c10d(options));
    if (config->node_rank >= config->n_nodes)
        return launch_bad_usage(err, "%s: there is no node %d of %d (the first is 0)",
                                options->of[OPT_NODE_RANK].origin, config->node_rank, config->n_nodes);
    if (standalone)
        return 0;
    status = refuse_missing_nodes(launch, options, around, err);
    if (config->n_nodes == 1) {
        if (status == 0 && !is_whole_step(around))
            status = refuse_worlds_of_one(around, err);
        if (status == 0)
            status = refuse_idle_nodes(options, around, err);
        return status != 0 ? status : set_master(launch, options, err);
    }
    if (around->slurm != NULL) {
        /*
         * The endpoint's host name may resolve to another address, but Slurm says which node is the first. It
         * also sends each signal to all nodes of a step.
         */
        if (config->hosting == AGENT_HOST_AUTO)
            config->hosting = around->slurm->node == 0 ? AGENT_HOST_YES : AGENT_HOST_NO;
        config->signals_for_all = true;
    }
    if (status == 0)
        status = set_endpoint(launch, options, err);
    if (status == 0)
        status = set_arbiter(launch, options, err);
    return status != 0 ? status : set_secret(launch, options, world, around, err);
}
