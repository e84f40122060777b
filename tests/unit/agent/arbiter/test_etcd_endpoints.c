#include "agent/arbiter/etcd_endpoints.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

static struct etcd_endpoints endpoints;
static struct fsdp_err err;

Test(etcd_endpoints, members_are_kept_in_their_order)
{
    const char *const text = "etcd://a.example:1,10.0.0.1:65535,[fd00::1]:2380,b-2_c";

    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_OK), "%s", err.message);

    cr_assert(eq(int, endpoints.n, 4));
    cr_assert(not(endpoints.tls));
    cr_assert(eq(str, endpoints.urls[0], "http://a.example:1"));
    cr_assert(eq(str, endpoints.urls[1], "http://10.0.0.1:65535"));
    cr_assert(eq(str, endpoints.urls[2], "http://[fd00::1]:2380"));
    cr_assert(eq(str, endpoints.urls[3], "http://b-2_c:2379"), "the port of every etcd");
}

Test(etcd_endpoints, etcds_means_tls)
{
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, "etcds://a", &err), FSDP_OK));

    cr_assert(endpoints.tls);
    cr_assert(eq(str, endpoints.urls[0], "https://a:2379"));
}

Test(etcd_endpoints, only_these_schemes_name_an_etcd)
{
    cr_assert(etcd_endpoints_are_named("etcd://a"));
    cr_assert(etcd_endpoints_are_named("etcds://a"));
    cr_assert(not(etcd_endpoints_are_named("etcd:a")));
    cr_assert(not(etcd_endpoints_are_named("http://a")));
    cr_assert(not(etcd_endpoints_are_named("")));
}

ParameterizedTestParameters(etcd_endpoints, what_names_no_etcd_is_refused_with_words)
{
    static char texts[][48] = { "",
                                "etcd:",
                                "etcd://",
                                "http://a:1",
                                "etcd://,a",
                                "etcd://a,",
                                "etcd://a,,b",
                                "etcd://:2379",
                                "etcd://a:",
                                "etcd://a:0",
                                "etcd://a:65536",
                                "etcd://a:1x",
                                "etcd://a:-1",
                                "etcd://a:999999999999",
                                "etcd://a/",
                                "etcd://a:1/v3",
                                "etcd://a b",
                                "etcd://a?b=c",
                                "etcd://me:secret@a:1",
                                "etcd://[::1",
                                "etcd://[]:1",
                                "etcd://[::1]2",
                                "etcd://::1",
                                "etcd://[g::1]:1",
                                "etcd://a#b",
                                "etcd://a%41:1" };

    return cr_make_param_array(char[48], texts, sizeof texts / sizeof *texts);
}

ParameterizedTest(char (*text)[48], etcd_endpoints, what_names_no_etcd_is_refused_with_words)
{
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, *text, &err), FSDP_ERR_CONFIG), "\"%s\"", *text);

    cr_assert(ne(str, err.message, ""));
}

Test(etcd_endpoints, too_many_or_too_long_are_refused)
{
    char text[1024] = "etcd://a0";

    for (int i = 1; i < ETCD_MAX_ENDPOINTS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",a%d", i);
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_OK));
    cr_assert(eq(int, endpoints.n, ETCD_MAX_ENDPOINTS));
    strcat(text, ",a");
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_ERR_CONFIG));
    memset(text + strlen("etcd://"), 'a', ETCD_URL_BYTES);
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_ERR_CONFIG));
}
