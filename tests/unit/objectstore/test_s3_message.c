#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/objectstore/s3_message.h"

Test(s3_message, a_query_is_sorted_and_escaped_and_a_name_alone_has_its_sign)
{
    struct s3_parameter parameters[] = { { "uploads", NULL }, { "prefix", "a b/~+=" }, { "list-type", "2" } };
    struct json_text url = { 0 };

    s3_add_query(&url, parameters, 3);

    cr_assert(eq(str, url.bytes, "?list-type=2&prefix=a%20b%2F~%2B%3D&uploads="));
    json_text_free(&url);
}

static const char page[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://x/\">\n"
    "  <Name>b</Name><Prefix>p/</Prefix><IsTruncated>true</IsTruncated>"
    "<Contents><Key>p/a&amp;b&#x41;&#66;</Key><Owner><ID>o</ID></Owner><Size>3</Size></Contents>"
    "<NextContinuationToken>t/==</NextContinuationToken>"
    "<CommonPrefixes><Prefix>p/q/</Prefix></CommonPrefixes><Empty/></ListBucketResult>";

Test(s3_message, a_page_of_objects_is_read)
{
    struct s3_list list = { .n = 0 };

    cr_assert(eq(int, s3_read_list(page, strlen(page), &list, NULL), FSDP_OK));
    cr_assert(eq(sz, list.n, 2));
    cr_assert(eq(str, list.entries[0].key, "p/a&bAB"));
    cr_assert(not(list.entries[0].is_prefix));
    cr_assert(eq(str, list.entries[1].key, "p/q/"));
    cr_assert(list.entries[1].is_prefix && list.more);
    cr_assert(eq(str, list.next, "t/=="));
    s3_list_free(&list);
}

Test(s3_message, uploads_under_way_are_read)
{
    static const char text[] = "<ListMultipartUploadsResult><KeyMarker></KeyMarker><Upload><Key>k</Key>"
                               "<UploadId>u/1</UploadId></Upload><IsTruncated>false</IsTruncated>"
                               "</ListMultipartUploadsResult>";
    struct s3_list list = { .n = 0 };

    cr_assert(eq(int, s3_read_list(text, strlen(text), &list, NULL), FSDP_OK));
    cr_assert(list.n == 1 && !list.more);
    cr_assert(eq(str, list.entries[0].key, "k"));
    cr_assert(eq(str, list.entries[0].upload, "u/1"));
    s3_list_free(&list);
}

Test(s3_message, a_page_that_is_cut_anywhere_is_refused)
{
    for (size_t length = 0; length + 1 < sizeof page - 1; length++) {
        struct s3_list list = { .n = 0 };

        cr_assert(eq(int, s3_read_list(page, length, &list, NULL), FSDP_ERR_FORMAT), "%zu bytes", length);
        s3_list_free(&list);
    }
}

Test(s3_message, xml_that_no_store_sends_is_refused)
{
    static const char *const wrong[] = {
        "",
        "text",
        "<ListBucketResult>",
        "<ListBucketResult></Other>",
        "<ListBucketResult/><ListBucketResult/>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult/>",
        "<ListBucketResult><Name>&b;</Name></ListBucketResult>",
        "<ListBucketResult><Name>&#0;</Name></ListBucketResult>",
        "<ListBucketResult><Name>&#x110;</Name></ListBucketResult>",
        "<ListBucketResult><Name><![CDATA[a]]></Name></ListBucketResult>",
        "<ListBucketResult><Contents></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<a><b><c><d><e><f><g><h><i/></h></g></f></e></d></c></b></a>",
        "<Error><Code>NoSuchKey</Code></Error>",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct s3_list list = { .n = 0 };

        cr_assert(eq(int, s3_read_list(wrong[i], strlen(wrong[i]), &list, NULL), FSDP_ERR_FORMAT), "%s",
                  wrong[i]);
        s3_list_free(&list);
    }
}

Test(s3_message, an_error_is_one_line_whatever_it_says)
{
    static const char text[] = "<Error>\n<Code>Slow<!</Code></Error>",
                      good[] = "<Error><Code>Slow Down</Code><Message>a\nb\x1b[1m</Message></Error>";
    struct s3_error error;

    cr_assert(not(s3_read_error(text, strlen(text), &error)));
    cr_assert(s3_read_error(good, strlen(good), &error));
    cr_assert(eq(str, error.code, "Slow?Down"));
    cr_assert(eq(str, error.words, "a b [1m"));
}

Test(s3_message, an_upload_has_an_id_and_ends_with_its_parts)
{
    static const char text[] =
        "<InitiateMultipartUploadResult><UploadId>id=</UploadId></InitiateMultipartUploadResult>";
    const char etags[2][S3_ETAG_BYTES] = { "W/\"a<&>\"", "\"b\"" };
    char id[S3_UPLOAD_BYTES];
    struct json_text body = { 0 };

    cr_assert(s3_read_upload(text, strlen(text), id));
    cr_assert(eq(str, id, "id="));
    cr_assert(not(s3_read_upload(text, strlen(text) - 1, id)));
    s3_add_parts(&body, etags, 2);
    cr_assert(eq(str, body.bytes,
                 "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>W/\"a&lt;&amp;&gt;\"</ETag>"
                 "</Part><Part>"
                 "<PartNumber>2</PartNumber><ETag>\"b\"</ETag></Part></CompleteMultipartUpload>"));
    json_text_free(&body);
}

Test(s3_message, an_etag_is_kept_as_it_came)
{
    static const char came[] = " \tW/\"Zz_9-~{&<>}\"\r\n";
    char etag[S3_ETAG_BYTES], long_one[S3_ETAG_BYTES + 1];

    cr_assert(s3_read_etag(came, strlen(came), etag));
    cr_assert(eq(str, etag, "W/\"Zz_9-~{&<>}\""));
    memset(long_one, 'x', sizeof long_one);
    cr_assert(s3_read_etag(long_one, S3_ETAG_BYTES - 1, etag));
    cr_assert(eq(sz, strlen(etag), S3_ETAG_BYTES - 1));
    cr_assert(not(s3_read_etag(long_one, S3_ETAG_BYTES, etag)));
    cr_assert(eq(str, etag, ""));
    cr_assert(not(s3_read_etag(" \r\n", 3, etag)));
    cr_assert(not(s3_read_etag("a\nb", 3, etag)));
    cr_assert(not(s3_read_etag("a\xe9", 2, etag)));
}

Test(s3_message, a_result_is_whole_and_has_its_name)
{
    static const char name[] = "CompleteMultipartUploadResult",
                      good[] = " \n<?xml version=\"1.0\"?>\n  <CompleteMultipartUploadResult xmlns=\"x\">"
                               "<ETag>&#34;a-2&#34;</ETag></CompleteMultipartUploadResult>\n";
    static const char *const wrong[] = {
        "",
        "  \n",
        "<Error><Message>no code</Message></Error>",
        "<a><CompleteMultipartUploadResult/></a>",
        "<CompleteMultipartUploadResults/>",
        "<CompleteMultipartUploadResult/><Error/>",
        "<html><p>ok</html>",
    };

    cr_assert(s3_is_result(good, strlen(good), name));
    for (size_t length = 0; length + 1 < strlen(good); length++)
        cr_assert(not(s3_is_result(good, length, name)), "%zu bytes", length);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert(not(s3_is_result(wrong[i], strlen(wrong[i]), name)), "%s", wrong[i]);
}

Test(s3_message, an_address_of_the_longest_key_can_be_read)
{
    char text[3400];
    int n = snprintf(text, sizeof text, "<CompleteMultipartUploadResult><Location>http://h/b/");

    for (int i = 0; i < 1024; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%%2F");
    n += snprintf(text + n, sizeof text - (size_t)n, "</Location></CompleteMultipartUploadResult>");
    cr_assert(s3_is_result(text, (size_t)n, "CompleteMultipartUploadResult"));
}
