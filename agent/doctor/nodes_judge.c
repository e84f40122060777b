#include <stdlib.h>
#include <string.h>

#include "agent/doctor/checks.h"
#include "agent/doctor/nodes.h"

/*
 * Below 100 MB/s, what Gigabit Ethernet carries, a network is too slow for training. Clocks may differ by
 * five minutes, as munge allows.
 */
enum { CLOCK_WARN_US = 100000, CLOCK_FAIL_US = 300000000, ROUND_TRIP_WARN_US = 5000 };
static const double thin = 100e6, dead = 1e6;

static const char reach_advice[] =
    "a firewall between them, or an address that others cannot reach: --local-addr";
static const char slow_advice[] =
    "look at its link (network.interface), its cable and switch port; with several interfaces name the fast "
    "one: --local-addr";

/* What the pairs of one node show. `worst` is the other node of the pair that decides the value. */
struct of_node {
    const struct pair *unreached; /* a pair with this node that could not connect; NULL: all could */
    /* over both directions of all pairs of this node: the median, and the least */
    double rate, least_rate;
    int worst_rate;
    double round_trip_us, most_round_trip_us;
    int worst_round_trip;
    /* by how much this node's clock is ahead of the other nodes' clocks: the median over its pairs */
    double clock_us;
    int n; /* pairs that were measured */
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n == 0 ? 0.0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

/* `rooms` has 4 * n_pairs numbers. */
static void look(struct of_node *out, int node, const struct pair *pairs, size_t n_pairs, double *rooms)
{
    double *rates = rooms, *trips = rooms + 2 * n_pairs, *clocks = trips + n_pairs;
    size_t n = 0;

    *out = (struct of_node){ .worst_rate = -1 };
    for (size_t i = 0; i < n_pairs; i++) {
        const struct pair *pair = &pairs[i];
        const double least = pair->forth < pair->back ? pair->forth : pair->back;
        const int other = pair->a == node ? pair->b : pair->a;

        if (pair->a != node && pair->b != node)
            continue;
        if (pair->error[0] != '\0') {
            out->unreached = pair;
            continue;
        }
        rates[2 * n] = pair->forth;
        rates[2 * n + 1] = pair->back;
        trips[n] = (double)pair->round_trip_ns / 1e3;
        clocks[n] = pair->a == node ? (double)-pair->clock_us : (double)pair->clock_us;
        if (n == 0 || least < out->least_rate) {
            out->least_rate = least;
            out->worst_rate = other;
        }
        if (n == 0 || trips[n] > out->most_round_trip_us) {
            out->most_round_trip_us = trips[n];
            out->worst_round_trip = other;
        }
        n++;
    }
    out->n = (int)n;
    out->rate = median(rates, 2 * n);
    out->round_trip_us = median(trips, n);
    out->clock_us = median(clocks, n);
}

static bool add_pairs(struct doctor_report *report, const struct node_view *nodes, const struct of_node *own,
                      int node, double common_rate)
{
    const char *name = nodes[node].name;
    char value[DOCTOR_VALUE_BYTES];
    enum doctor_state state;
    bool kept;

    if (own->unreached != NULL) {
        const struct pair *pair = own->unreached;

        doctor_say(DOCTOR_FAIL, value, "%s cannot reach %s: %s", nodes[pair->a].name, nodes[pair->b].name,
                   pair->error);
        if (!doctor_report_add(report, name, "nodes.reach", DOCTOR_FAIL, value, reach_advice))
            return false;
    }
    if (own->n == 0)
        return true;
    state = own->least_rate < dead                                    ? DOCTOR_FAIL
            : own->least_rate < thin || own->rate < common_rate / 2.0 ? DOCTOR_WARN
                                                                      : DOCTOR_OK;
    doctor_say(state, value, "median %.0f MB/s; least %.0f MB/s, with %s", own->rate / 1e6,
               own->least_rate / 1e6, nodes[own->worst_rate].name);
    kept = doctor_report_add(report, name, "nodes.bandwidth", state, value, slow_advice);
    state = own->most_round_trip_us > ROUND_TRIP_WARN_US ? DOCTOR_WARN : DOCTOR_OK;
    doctor_say(state, value, "median %.0f us; most %.0f us, with %s", own->round_trip_us,
               own->most_round_trip_us, nodes[own->worst_round_trip].name);
    kept &= doctor_report_add(report, name, "nodes.roundtrip", state, value,
                              "nodes of one job belong into one data centre; a busy host delays too");
    state = own->clock_us > CLOCK_FAIL_US || own->clock_us < -CLOCK_FAIL_US   ? DOCTOR_FAIL
            : own->clock_us > CLOCK_WARN_US || own->clock_us < -CLOCK_WARN_US ? DOCTOR_WARN
                                                                              : DOCTOR_OK;
    doctor_say(state, value, "%+.1f ms to the other nodes", own->clock_us / 1e3);
    kept &= doctor_report_add(report, name, "nodes.clock", state, value,
                              "run chrony there: times in logs and events of several nodes are compared");
    return kept;
}

static bool add_node(struct doctor_report *report, const struct node_view *nodes, int node,
                     const char *run_dir)
{
    const bool equal = strcmp(nodes[node].version, nodes[0].version) == 0;
    char value[DOCTOR_VALUE_BYTES];
    bool kept;

    doctor_say(DOCTOR_OK, value, equal ? "%s" : "%s, and %s has %s", nodes[node].version, nodes[0].name,
               nodes[0].version);
    kept = doctor_report_add(report, nodes[node].name, "nodes.version", equal ? DOCTOR_OK : DOCTOR_FAIL,
                             value, "install one build on all nodes");
    if (run_dir == NULL || node == 0)
        return kept;
    doctor_say(DOCTOR_OK, value, "%s is %sthe directory of %s", run_dir,
               nodes[node].sees_run_dir ? "" : "not ", nodes[0].name);
    return kept &&
           doctor_report_add(report, nodes[node].name, "nodes.rundir",
                             nodes[node].sees_run_dir ? DOCTOR_OK : DOCTOR_WARN, value,
                             "use a file system that all nodes share: at least checkpoint.dir must be "
                             "there");
}

bool nodes_judge(struct doctor_report *report, const struct node_view *nodes, int n_nodes,
                 const struct pair *pairs, size_t n_pairs, const char *run_dir)
{
    double *rooms = calloc(4 * n_pairs + 1, sizeof *rooms), *rates = calloc(2 * n_pairs + 1, sizeof *rates);
    bool kept = rooms != NULL && rates != NULL;
    size_t n = 0;

    for (size_t i = 0; i < n_pairs && kept; i++)
        if (pairs[i].error[0] == '\0') {
            rates[n++] = pairs[i].forth;
            rates[n++] = pairs[i].back;
        }
    for (int node = 0; node < n_nodes && kept; node++) {
        struct of_node own;

        look(&own, node, pairs, n_pairs, rooms);
        kept = add_node(report, nodes, node, run_dir) &&
               add_pairs(report, nodes, &own, node, n == 0 ? 0.0 : median(rates, n));
    }
    free(rooms);
    free(rates);
    return kept;
}
