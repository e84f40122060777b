#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "launcher/rdzv_conf.h"

Test(rdzv_conf, what_is_taken)
{
    static const struct {
        const char *text;
        int64_t timeout, join, last_call;
        int is_host;
        const char *unknown;
    } cases[] = {
        { "", 0, 0, 0, -1, "" },
        { "  ", 0, 0, 0, -1, "" },
        { "timeout=900", 900, 0, 0, -1, "" },
        { "join_timeout=5,last_call_timeout=1", 0, 5, 1, -1, "" },
        { "lease=5", 0, 0, 0, -1, "" },
        { " join_timeout = 5 , is_host = true ", 0, 5, 0, 1, "" },
        { "join_timeout=5,join_timeout=6", 0, 6, 0, -1, "" },
        { "is_host=1", 0, 0, 0, 1, "" },
        { "is_host=Y", 0, 0, 0, 1, "" },
        { "is_host=t", 0, 0, 0, 1, "" },
        { "is_host=YES", 0, 0, 0, 1, "" },
        { "is_host=0", 0, 0, 0, 0, "" },
        { "is_host=False", 0, 0, 0, 0, "" },
        { "is_host=n", 0, 0, 0, 0, "" },
        { "is_host=no", 0, 0, 0, 0, "" },
        { "close_timeout=30,heartbeat_timeout=5,keep_alive_interval=5,keep_alive_max_attempt=3,read_timeout="
          "60",
          0, 0, 0, -1, "" },
        { "store_type=tcp,use_libuv=true,protocol=http,ssl_cert=a,ssl_cert_key=b,ca_cert=c", 0, 0, 0, -1,
          "" },
        { "\"timeout=900\"", 900, 0, 0, -1, "" },
        { " '\tjoin_timeout=5, last_call_timeout=1 ' ", 0, 5, 1, -1, "" },
        { "\"join_timeout=5\",'is_host=1'", 0, 5, 0, 1, "" },
        { "join_timeout=\"5\", is_host = 'true'", 0, 5, 0, 1, "" },
        { "\"\"", 0, 0, 0, -1, "" },
        { "\"zebra=1,timeout=2", 2, 0, 0, -1, "\"zebra" },
        { "zebra=1", 0, 0, 0, -1, "zebra" },
        { "zebra=a=b,join_timeout=3,Timeout=1", 0, 3, 0, -1, "zebra, Timeout" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fsdp_err err = { 0 };
        struct rdzv_conf conf;

        cr_expect(eq(int, rdzv_conf_read(&conf, cases[i].text, &err), FSDP_OK), "%s: %s", cases[i].text,
                  err.message);
        cr_expect(conf.timeout_s == cases[i].timeout && conf.join_timeout_s == cases[i].join &&
                      conf.last_call_timeout_s == cases[i].last_call,
                  "%s", cases[i].text);
        cr_expect(eq(int, conf.is_host, cases[i].is_host), "%s", cases[i].text);
        cr_expect(eq(str, conf.unknown, (char *)cases[i].unknown), "%s", cases[i].text);
    }
}

Test(rdzv_conf, what_is_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "timeout", "must be KEY=VALUE,KEY=VALUE,..., and timeout has no value" },
        { "timeout=", "must be KEY=VALUE,KEY=VALUE,..., and timeout= has no value" },
        { "=3", "must be KEY=VALUE,KEY=VALUE,..., and =3 has no key" },
        { "timeout=3,", "must be KEY=VALUE,KEY=VALUE,..., and the place next to a comma has no key" },
        { ",timeout=3", "must be KEY=VALUE,KEY=VALUE,..., and the place next to a comma has no key" },
        { "zebra= ,timeout=3", "must be KEY=VALUE,KEY=VALUE,..., and zebra= has no value" },
        { "\"timeout\"", "must be KEY=VALUE,KEY=VALUE,..., and timeout has no value" },
        { "timeout=\"\"", "must be KEY=VALUE,KEY=VALUE,..., and timeout=\"\" has no value" },
        { "\"timeout=3,'", "must be KEY=VALUE,KEY=VALUE,..., and ' has no value" },
        { "\"", "must be KEY=VALUE,KEY=VALUE,..., and \" has no value" },
        { "timeout=3\"", "timeout must be a whole number of at least 1, not 3\"" },
        { "timeout=0", "timeout must be a whole number of at least 1, not 0" },
        { "join_timeout=-1", "join_timeout must be a whole number of at least 1, not -1" },
        { "join_timeout=1.5", "join_timeout must be a whole number of at least 1, not 1.5" },
        { "read_timeout=9999999999", "read_timeout must be a whole number of at least 1, not 9999999999" },
        { "is_host=maybe", "is_host must be 1, 0, true or false, not maybe" },
        { "store_type=file",
          "store_type must be tcp (the nodes meet over a network, not in a file), not file" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fsdp_err err = { 0 };
        struct rdzv_conf conf;

        cr_expect(eq(int, rdzv_conf_read(&conf, cases[i].text, &err), FSDP_ERR_CONFIG), "%s", cases[i].text);
        cr_expect(eq(str, err.message, (char *)cases[i].why));
    }
}
