/* What several nodes need of host names, ports and network links, as far as one host can test it. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/os/small_file.h"
#include "agent/wire/endpoint.h"

enum { MOST_INTERFACES = 64, MOST_PORTS = 8 };

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static void look_up_host(struct network_facts *network)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    int error;

    if (gethostname(network->host, sizeof network->host - 1) < 0)
        return;
    error = getaddrinfo(network->host, NULL, &hints, &found);
    if (error != 0) {
        snprintf(network->host_error, sizeof network->host_error, "%s", gai_strerror(error));
        return;
    }
    network->host_is_loopback = true;
    for (const struct addrinfo *at = found; at != NULL && network->host_is_loopback; at = at->ai_next) {
        getnameinfo(at->ai_addr, at->ai_addrlen, network->host_address, sizeof network->host_address, NULL, 0,
                    NI_NUMERICHOST);
        network->host_is_loopback = is_loopback(at->ai_addr);
    }
    freeaddrinfo(found);
}

/* Listens as the hosting node would: on all addresses of this machine. */
static int try_port(int port)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, error = 0;
    bool is_v6 = fd >= 0;

    if (!is_v6)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, is_v6 ? (void *)&v6 : (void *)&v4, is_v6 ? sizeof v6 : sizeof v4) < 0 || listen(fd, 1) < 0)
        error = errno;
    close(fd);
    return error;
}

static void look_at_endpoint(struct network_facts *network, const struct doctor_host *host)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct endpoint_addresses addresses;
    struct addrinfo *found = NULL;
    int error;

    network->port = host->port;
    network->endpoint_is_here = host->endpoint == NULL;
    if (host->endpoint != NULL) {
        snprintf(network->endpoint, sizeof network->endpoint, "%.159s", host->endpoint);
        error = getaddrinfo(host->endpoint, NULL, &hints, &found);
        if (error != 0) {
            snprintf(network->endpoint_error, sizeof network->endpoint_error, "%s", gai_strerror(error));
            return;
        }
        endpoint_collect(&addresses, found);
        network->endpoint_is_here = endpoint_is_here(&addresses);
        freeaddrinfo(found);
    }
    if (network->endpoint_is_here && host->port > 0)
        network->port_error = try_port(host->port);
}

static void look_at_interfaces(struct network_facts *network, const struct doctor_host *host)
{
    char names[MOST_INTERFACES][64], state[32];
    const int n = small_file_list(host->root, "/sys/class/net", names, MOST_INTERFACES);

    network->interface_mbit = -1;
    for (int i = 0; i < n; i++) {
        const char *name = names[i];
        int mbit;

        if (strcmp(name, "lo") == 0 || doctor_number(host, "/sys/class/net/%s/carrier", name) != 1 ||
            !doctor_line(host, state, sizeof state, "/sys/class/net/%s/operstate", name) ||
            strcmp(state, "down") == 0)
            continue;
        mbit = (int)doctor_number(host, "/sys/class/net/%s/speed", name);
        if (network->interface[0] != '\0' && mbit <= network->interface_mbit)
            continue;
        network->interface_mbit = mbit;
        snprintf(network->interface, sizeof network->interface, "%.31s", name);
    }
    if (network->interface[0] == '\0')
        return;
    network->interface_mtu = (int)doctor_number(host, "/sys/class/net/%s/mtu", network->interface);
    network->interface_errors =
        doctor_number(host, "/sys/class/net/%s/statistics/rx_errors", network->interface) +
        doctor_number(host, "/sys/class/net/%s/statistics/tx_errors", network->interface);
    network->interface_packets =
        doctor_number(host, "/sys/class/net/%s/statistics/rx_packets", network->interface) +
        doctor_number(host, "/sys/class/net/%s/statistics/tx_packets", network->interface);
}

static void look_at_infiniband(struct network_facts *network, const struct doctor_host *host)
{
    char devices[MOST_INTERFACES][64], ports[MOST_PORTS][64], folder[160], state[32];
    const int n = small_file_list(host->root, "/sys/class/infiniband", devices, MOST_INTERFACES);

    for (int i = 0; i < n; i++) {
        int n_ports;

        snprintf(folder, sizeof folder, "/sys/class/infiniband/%.63s/ports", devices[i]);
        n_ports = small_file_list(host->root, folder, ports, MOST_PORTS);
        for (int k = 0; k < n_ports; k++) {
            network->n_infiniband++;
            doctor_line(host, state, sizeof state, "%s/%s/state", folder, ports[k]);
            if (strstr(state, "ACTIVE") != NULL)
                network->n_infiniband_active++;
            else
                snprintf(network->infiniband_down, sizeof network->infiniband_down, "%.40s/%.8s (%.10s)",
                         devices[i], ports[k], state);
        }
    }
}

void network_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct network_facts *network = &facts->network;

    network->n_nodes = host->n_nodes;
    look_at_interfaces(network, host);
    look_at_infiniband(network, host);
    look_up_host(network);
    look_at_endpoint(network, host);
}

static enum doctor_state host_name(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct network_facts *network = &facts->network;

    if (network->host_error[0] != '\0')
        return doctor_say(DOCTOR_WARN, value, "%s does not resolve: %s", network->host, network->host_error);
    return doctor_say(network->host_is_loopback && network->n_nodes > 1 ? DOCTOR_WARN : DOCTOR_OK, value,
                      "%s is %s%s", network->host, network->host_address,
                      network->host_is_loopback ? ", a loopback address" : "");
}

static enum doctor_state endpoint(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct network_facts *network = &facts->network;

    if (network->endpoint[0] == '\0')
        return DOCTOR_NOTHING;
    return network->endpoint_error[0] != '\0'
               ? doctor_say(DOCTOR_FAIL, value, "%s: %s", network->endpoint, network->endpoint_error)
               : doctor_say(DOCTOR_OK, value, "%s is %s host", network->endpoint,
                            network->endpoint_is_here ? "this" : "another");
}

static enum doctor_state port(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct network_facts *network = &facts->network;

    if (!network->endpoint_is_here || network->port == 0)
        return DOCTOR_NOTHING;
    return network->port_error == 0
               ? doctor_say(DOCTOR_OK, value, "%d is free", network->port)
               : doctor_say(network->endpoint[0] != '\0' ? DOCTOR_FAIL : DOCTOR_WARN, value, "%d: %s",
                            network->port, strerror(network->port_error));
}

static enum doctor_state interface(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct network_facts *network = &facts->network;

    if (network->interface[0] == '\0')
        return network->n_nodes > 1 ? doctor_say(DOCTOR_FAIL, value, "no interface but lo is up")
                                    : DOCTOR_NOTHING;
    if (network->interface_mbit < 0)
        return doctor_say(DOCTOR_OK, value, "%s is up, MTU %d", network->interface, network->interface_mtu);
    return doctor_say(network->interface_mbit < 1000 ? DOCTOR_WARN : DOCTOR_OK, value,
                      "%s is up: %d Mbit/s, MTU %d", network->interface, network->interface_mbit,
                      network->interface_mtu);
}

static enum doctor_state errors(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct network_facts *network = &facts->network;

    if (network->interface[0] == '\0' || network->interface_errors < 0 || network->interface_packets < 0)
        return DOCTOR_NOTHING;
    return doctor_say(network->interface_errors > network->interface_packets / 100000 + 10 ? DOCTOR_WARN
                                                                                           : DOCTOR_OK,
                      value, "%s: %" PRId64 " errors in %" PRId64 " packets", network->interface,
                      network->interface_errors, network->interface_packets);
}

static enum doctor_state infiniband(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct network_facts *network = &facts->network;

    if (network->n_infiniband == 0)
        return DOCTOR_NOTHING;
    return network->n_infiniband_active == network->n_infiniband
               ? doctor_say(DOCTOR_OK, value, "%d ports are active", network->n_infiniband)
               : doctor_say(DOCTOR_WARN, value, "%d of %d ports are active; not %s",
                            network->n_infiniband_active, network->n_infiniband, network->infiniband_down);
}

const struct doctor_check network_checks[] = {
    { "network.hostname", host_name,
      "give the name its address in /etc/hosts or DNS: gloo and MPI look it up (ours does not)" },
    { "network.endpoint", endpoint, "the name must resolve on every node: an address in digits always does" },
    { "network.port", port, "another program has it: give the endpoint another port" },
    { "network.interface", interface, "look at ip link: is the cable, or the container's network, there?" },
    { "network.errors", errors, "look at the cable and the switch: ethtool -S" },
    { "network.infiniband", infiniband,
      "ibstat; start the subnet manager, or name the good ones in NCCL_IB_HCA" },
    { 0 },
};
