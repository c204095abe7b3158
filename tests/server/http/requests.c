/* requests.c: the table of requests: right ones, and every way of framing that must be refused.
 *
 * Data alone. RFC 9112 says which are right; for those that it lets a server repair or refuse, the
 * rule is: refused, because a front end may repair them otherwise.
 */
#include "tests/server/http/requests.h"

#define HOST "Host: localhost\r\n"
#define GET(headers) "GET /livez HTTP/1.1\r\n" HOST headers "\r\n"
#define POST(headers, body) "POST /v1/completions HTTP/1.1\r\n" HOST headers "\r\n" body
#define CHUNKS(body) POST("Transfer-Encoding: chunked\r\n", body)
#define TWO "Content-Length: 2\r\n"

#define RIGHT(name, bytes, statuses)                                                               \
  { name, bytes, sizeof(bytes) - 1, statuses, NULL }
#define WRONG(name, bytes, message)                                                                \
  { name, bytes, sizeof(bytes) - 1, "400", message }
#define ENDS(name, bytes, statuses, message)                                                       \
  { name, bytes, sizeof(bytes) - 1, statuses, message }

#define LF "LF alone"
#define CR "CR stands where"
#define CR_ALONE "CR is not followed"
#define CONTROL "control byte"
#define NAME "name of a header"
#define SINGLE "must be single"
#define LENGTH "plain number"
#define CODING "Transfer-Encoding served"
#define EXTENSION "extension"
#define TARGET "request target"
#define VERSION "does not end in HTTP/1.1"
#define NO_VERSION "without a version"
#define METHOD "begin with a method"

#define A16 "aaaaaaaaaaaaaaaa"
#define A256 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16
#define A4096 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256 A256
#define A20K A4096 A4096 A4096 A4096 A4096
#define FIELDS10 "a: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\ne: 5\r\nf: 6\r\ng: 7\r\nh: 8\r\ni: 9\r\nj: 0\r\n"
#define FIELDS100                                                                                  \
  FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10 FIELDS10
#define QUERY20 "a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q&r&s&t&"

/* ISO C promises 4,095 bytes of a string; compilers allow more. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

const raw_request_t raw_requests[] = {
    /* right */
    RIGHT("get", GET(""), "200"),
    RIGHT("get of 1.0", "GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "200"),
    RIGHT("post", POST(TWO, "{}"), "200"),
    RIGHT("post of nothing", POST("Content-Length: 0\r\n", ""), "200"),
    RIGHT("length with zeros", POST("Content-Length: 0002\r\n", "{}"), "200"),
    RIGHT("length before blanks", POST("Content-Length: 2 \r\n", "{}"), "200"),
    RIGHT("length between tabs", POST("Content-Length:\t2\t \t\r\n", "{}"), "200"),
    RIGHT("length without a blank", POST("Content-Length:2\r\n", "{}"), "200"),
    RIGHT("length in capitals", POST("CONTENT-LENGTH: 2\r\n", "{}"), "200"),
    RIGHT("host before blanks", "GET /livez HTTP/1.1\r\nHost: localhost \t\r\n\r\n", "200"),
    RIGHT("host with a port", "GET /livez HTTP/1.1\r\nhost: [::1]:8000\r\n\r\n", "200"),
    RIGHT("value of blanks", GET("X:  \t \r\n"), "200"),
    RIGHT("value of nothing", GET("X:\r\n"), "200"),
    RIGHT("value in Latin-1", GET("X: caf\xe9\r\n"), "200"),
    RIGHT("value with a tab inside", GET("X: a\tb  c \r\n"), "200"),
    RIGHT("every byte of a name", GET("!#$%&'*+-.^_`|~09azAZ: 1\r\n"), "200"),
    RIGHT("two cookies", GET("Cookie: a=1; b=2\r\nCookie: c\r\n"), "200"),
    RIGHT("query", "GET /livez?a=1&b&c=%20 HTTP/1.1\r\n" HOST "\r\n", "200"),
    RIGHT("absolute target", "GET http://localhost/livez HTTP/1.1\r\n" HOST "\r\n", "200"),
    RIGHT("OPTIONS of the server", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "404"),
    RIGHT("unknown method", "BREW /livez HTTP/1.1\r\n" HOST "\r\n", "405"),
    RIGHT("empty line before", "\r\n" GET(""), "200"),
    RIGHT("empty line behind a body", POST(TWO, "{}") "\r\n" GET(""), "200 200"),
    RIGHT("body that looks like a request", POST("Content-Length: 40\r\n", GET("")), "200"),
    RIGHT("pair", GET("") GET(""), "200 200"),
    RIGHT("three, the first slow",
          POST("Content-Length: 24\r\n", "{\"mode\":\"later\",\"ms\":30}") POST(TWO, "{}") GET(""),
          "200 200 200"),
    RIGHT("one chunk", CHUNKS("2\r\n{}\r\n0\r\n\r\n"), "200"),
    RIGHT("no chunk", CHUNKS("0\r\n\r\n"), "200"),
    RIGHT("chunks", CHUNKS("1\r\n{\r\nA\r\n\"a\": \"\r\n\"}\r\n01\r\n}\r\n000\r\n\r\n"), "200"),
    RIGHT("chunks in capitals", POST("transfer-encoding: CHUNKED \r\n", "2\r\n{}\r\n0\r\n\r\n"),
          "200"),
    RIGHT("chunk of CR and LF", CHUNKS("4\r\n\r\n\r\n\r\n0\r\n\r\n"), "200"),
    RIGHT("size of 15 digits", CHUNKS("000000000000002\r\n{}\r\n0\r\n\r\n"), "200"),
    RIGHT("trailers", CHUNKS("2\r\n{}\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n"), "200"),
    RIGHT("chunks, then another", CHUNKS("2\r\n{}\r\n0\r\n\r\n") GET(""), "200 200"),
    RIGHT("expect", POST("Expect: 100-continue\r\n" TWO, "{}"), "100? 200"),

    /* line ends */
    WRONG("LF behind the request line", "GET /livez HTTP/1.1\n" HOST "\r\n", LF),
    WRONG("LF behind a header", "GET /livez HTTP/1.1\r\nHost: localhost\n\r\n", LF),
    WRONG("LF for the empty line", "GET /livez HTTP/1.1\r\n" HOST "\n", LF),
    WRONG("LF everywhere", "GET /livez HTTP/1.1\nHost: localhost\n\n", LF),
    WRONG("LF in a name", GET("X\nY: 1\r\n"), LF),
    WRONG("LF behind a name", GET("X:\n1\r\n"), LF),
    WRONG("LF behind a length", POST("Content-Length: 2\n", "{}"), LF),
    WRONG("LF behind a method", "GET\n/livez HTTP/1.1\r\n" HOST "\r\n", LF),
    WRONG("LF before a request", "\n" GET(""), LF),
    WRONG("LF behind a size", CHUNKS("2\n{}\r\n0\r\n\r\n"), LF),
    WRONG("LF behind a chunk", CHUNKS("2\r\n{}\n0\r\n\r\n"), LF),
    WRONG("LF behind the last size", CHUNKS("0\n\r\n"), LF),
    WRONG("LF behind the last chunk", CHUNKS("0\r\n\n"), LF),
    WRONG("LF behind a trailer", CHUNKS("0\r\nX: 1\n\r\n"), LF),
    WRONG("CR behind the request line", "GET /livez HTTP/1.1\r" HOST "\r\n", CR_ALONE),
    WRONG("CR in a value", GET("X: a\rb\r\n"), CR_ALONE),
    WRONG("CR behind a value", GET("X: a\r\r\n"), CR_ALONE),
    WRONG("CR in a name", GET("X\rY: a\r\n"), CR),
    WRONG("CR behind a size", CHUNKS("2\r{}\r\n0\r\n\r\n"), CR_ALONE),
    WRONG("CR behind a chunk", CHUNKS("2\r\n{}\r0\r\n\r\n"), CR_ALONE),
    WRONG("CR for the empty line", "GET /livez HTTP/1.1\r\n" HOST "\rGET", CR_ALONE),
    WRONG("CR behind the trailers", CHUNKS("0\r\n\rGET"), CR_ALONE),
    WRONG("CR in the target", "GET /li\rvez HTTP/1.1\r\n" HOST "\r\n", NO_VERSION),
    WRONG("two empty lines before", "\r\n\r\n" GET(""), CR),

    /* bytes of headers */
    WRONG("NUL in a value", GET("Authorization: Bearer KEY\0x\r\n"), CONTROL),
    WRONG("control byte in a value", GET("X: a\x01z\r\n"), CONTROL),
    WRONG("DEL in a value", GET("X: a\x7fz\r\n"), CONTROL),
    WRONG("NUL in a name", GET("X\0Y: a\r\n"), NAME),
    WRONG("control byte in a name", GET("X\x02: a\r\n"), NAME),
    WRONG("Latin-1 in a name", GET("X\xe9: a\r\n"), NAME),
    WRONG("no name", GET(": a\r\n"), NAME),
    WRONG("no colon", GET("GET /livez HTTP/1.1\r\n"), "before the colon"),
    WRONG("no colon, no blank", GET("abc\r\n"), CR),
    WRONG("blank before the colon", POST("Content-Length : 2\r\n", "{}"), "before the colon"),
    WRONG("tab before the colon", GET("X\t: a\r\n"), "before the colon"),
    WRONG("folded line", GET("X: a\r\n b\r\n"), "folded"),
    WRONG("folded by a tab", GET("X: a\r\n\tb\r\n"), "folded"),
    WRONG("folded before all", "GET /livez HTTP/1.1\r\n X: a\r\n" HOST "\r\n", "folded"),

    /* lengths */
    WRONG("length of letters", POST("Content-Length: abc\r\n", "{}"), LENGTH),
    WRONG("length with a plus", POST("Content-Length: +2\r\n", "{}"), LENGTH),
    WRONG("length with a minus", POST("Content-Length: -1\r\n", "{}"), LENGTH),
    WRONG("length in hex", POST("Content-Length: 0x2\r\n", "{}"), LENGTH),
    WRONG("length with a point", POST("Content-Length: 2.0\r\n", "{}"), LENGTH),
    WRONG("list of lengths", POST("Content-Length: 2,2\r\n", "{}"), LENGTH),
    WRONG("list of lengths, a blank", POST("Content-Length: 2, 2\r\n", "{}"), LENGTH),
    WRONG("length in two words", POST("Content-Length: 2 2\r\n", "{}"), "Content-Length or"),
    WRONG("no length", POST("Content-Length:\r\n", "{}"), "Content-Length is empty"),
    WRONG("length of blanks", POST("Content-Length:  \r\n", "{}"), "Content-Length is empty"),
    ENDS("huge length", POST("Content-Length: 99999999999999999999\r\n", "{}"), "413", "larger"),
    ENDS("length of 2^63", POST("Content-Length: 9223372036854775808\r\n", "{}"), "413", "larger"),
    WRONG("two lengths", POST(TWO "Content-Length: 3\r\n", "{}"), SINGLE),
    WRONG("the same length twice", POST(TWO TWO, "{}"), SINGLE),
    WRONG("length and chunks", POST(TWO "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), "together"),
    WRONG("chunks and length", POST("Transfer-Encoding: chunked\r\n" TWO, "0\r\n\r\n"), "together"),

    /* codings */
    WRONG("unknown coding", POST("Transfer-Encoding: xchunked\r\n", "{}"), CODING),
    WRONG("coding with a tail", POST("Transfer-Encoding: chunkedx\r\n", "{}"), CODING),
    WRONG("half a coding", POST("Transfer-Encoding: chunk\r\n", "{}"), CODING),
    WRONG("two codings", POST("Transfer-Encoding: gzip, chunked\r\n", "{}"), CODING),
    WRONG("chunked twice", POST("Transfer-Encoding: chunked, chunked\r\n", "{}"), CODING),
    WRONG("identity", POST("Transfer-Encoding: identity\r\n", "{}"), CODING),
    WRONG("no coding", POST("Transfer-Encoding:\r\n", "{}"), CODING),
    WRONG("quoted coding", POST("Transfer-Encoding: \"chunked\"\r\n", "{}"), CODING),
    WRONG("two coding lines",
          POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
          SINGLE),
    WRONG("chunks in 1.0",
          "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "1.0"),

    /* chunks */
    WRONG("extension", CHUNKS("2;a=b\r\n{}\r\n0\r\n\r\n"), EXTENSION),
    WRONG("extension without a name", CHUNKS("2;\r\n{}\r\n0\r\n\r\n"), EXTENSION),
    WRONG("extension of the last chunk", CHUNKS("2\r\n{}\r\n0;a\r\n\r\n"), EXTENSION),
    WRONG("blank behind a size", CHUNKS("2 \r\n{}\r\n0\r\n\r\n"), EXTENSION),
    WRONG("extension that hides LF", CHUNKS("2;\nx\r\n{}\r\n0\r\n\r\n"), EXTENSION),
    WRONG("size of letters", CHUNKS("zz\r\n{}\r\n0\r\n\r\n"), "hexadecimal"),
    WRONG("size with 0x", CHUNKS("0x2\r\n{}\r\n0\r\n\r\n"), "hexadecimal"),
    WRONG("size with a plus", CHUNKS("+2\r\n{}\r\n0\r\n\r\n"), "hexadecimal"),
    WRONG("size with a minus", CHUNKS("-2\r\n{}\r\n0\r\n\r\n"), "hexadecimal"),
    WRONG("blank before a size", CHUNKS(" 2\r\n{}\r\n0\r\n\r\n"), "hexadecimal"),
    WRONG("no size", CHUNKS("\r\n{}\r\n0\r\n\r\n"), CR),
    WRONG("size of 16 digits", CHUNKS("0000000000000002\r\n{}\r\n0\r\n\r\n"), "15 digits"),
    WRONG("size beyond 64 bits", CHUNKS("fffffffffffffffff\r\n{}\r\n"), "15 digits"),
    WRONG("chunk longer than its size", CHUNKS("2\r\n{}}\r\n0\r\n\r\n"), "longer than"),
    WRONG("chunk shorter than its size", CHUNKS("3\r\n{}\r\n0\r\n\r\n"), LF),
    WRONG("length as a trailer", CHUNKS("0\r\nContent-Length: 2\r\n\r\n"), "trailer"),
    WRONG("key as a trailer", CHUNKS("0\r\nAuthorization: Bearer a\r\n\r\n"), "trailer"),
    WRONG("folded trailer", CHUNKS("0\r\nX: a\r\n b\r\n\r\n"), "folded"),
    WRONG("NUL in a trailer", CHUNKS("0\r\nX: a\0b\r\n\r\n"), CONTROL),

    /* request lines, hosts and versions */
    WRONG("no host", "GET /livez HTTP/1.1\r\n\r\n", "Host"),
    WRONG("two hosts", GET(HOST), SINGLE),
    WRONG("host with a list", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", "Host"),
    WRONG("host in two words", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "Host"),
    WRONG("host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "Host"),
    WRONG("host with a user", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "Host"),
    WRONG("two keys", GET("Authorization: Bearer a\r\nauthorization: Bearer b\r\n"), SINGLE),
    WRONG("two types", GET("Content-Type: a/b\r\nContent-Type: a/b\r\n"), SINGLE),
    WRONG("two origins", GET("Origin: http://localhost\r\nOrigin: null\r\n"), SINGLE),
    WRONG("HTTP/0.9", "GET /livez\r\n", NO_VERSION),
    WRONG("two lines in one", "GET / HTTP/1.1GET / HTTP/1.1\r\n" HOST "\r\n", VERSION),
    WRONG("asterisk of HTTP/2", "PRI * HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "The client speaks TLS"),
    WRONG("lower-case version", "GET / http/1.1\r\n" HOST "\r\n", VERSION),
    WRONG("version of two digits", "GET / HTTP/1.10\r\n" HOST "\r\n", VERSION),
    WRONG("no minor version", "GET / HTTP/1\r\n" HOST "\r\n", CR),
    WRONG("blank behind the version", "GET / HTTP/1.1 \r\n" HOST "\r\n", VERSION),
    WRONG("two blanks", "GET  / HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("two blanks behind the target", "GET /  HTTP/1.1\r\n" HOST "\r\n", VERSION),
    WRONG("tab behind the method", "GET\t/ HTTP/1.1\r\n" HOST "\r\n", "method"),
    WRONG("blank before the method", " GET / HTTP/1.1\r\n" HOST "\r\n", METHOD),
    WRONG("blank in the target", "GET /a b HTTP/1.1\r\n" HOST "\r\n", VERSION),
    WRONG("NUL in the target", "GET /a\0b HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("UTF-8 in the target", "GET /caf\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("fragment", "GET /livez#a HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("target without a slash", "GET livez HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("absolute target of https", "GET https://localhost/ HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("absolute target of nobody", "GET http:// HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("asterisk of GET", "GET * HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("asterisk and more", "OPTIONS *a HTTP/1.1\r\n" HOST "\r\n", TARGET),
    WRONG("CONNECT", "CONNECT localhost:443 HTTP/1.1\r\n" HOST "\r\n", TARGET),
    ENDS("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", "HTTP/1.1 and HTTP/1.0"),
    ENDS("HTTP/2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", "505", "HTTP/1.1 and HTTP/1.0"),
    ENDS("HTTP/1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", "505", "HTTP/1.1 and HTTP/1.0"),
    ENDS("HTTP/0.9 by name", "GET / HTTP/0.9\r\n\r\n", "505", "HTTP/1.1 and HTTP/1.0"),
    ENDS("long target", "GET /" A20K " HTTP/1.1\r\n" HOST "\r\n", "414", "16384 bytes"),
    ENDS("long method", A20K " / HTTP/1.1\r\n" HOST "\r\n", "414", "16384 bytes"),
    ENDS("long header", GET("X: " A20K "\r\n"), "431", "--max-header-bytes"),
    ENDS("long name", GET(A20K ": 1\r\n"), "431", "--max-header-bytes"),
    ENDS("long cookie", GET("Cookie: " A4096 A4096 "\r\n"), "431", "--max-header-bytes"),
    ENDS("many headers", GET(FIELDS100), "431", "88 headers"),
    ENDS("many trailers", CHUNKS("0\r\n" FIELDS100 "\r\n"), "431", "88 headers"),
    ENDS("many cookies",
         GET("Cookie: " QUERY20 ";;;;;;;;;;" A16 ",,,,,,,,,,;;;;;;;;;;;;;;;;;;;;;;;"
             ";;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;"
             ";;;;;;;;;;;;;;;;;;;;;;\r\n"),
         "431", "88 headers"),
    ENDS("many query fields",
         "GET /livez?" QUERY20 QUERY20 QUERY20 QUERY20 QUERY20 " HTTP/1.1\r\n" HOST "\r\n", "431",
         "88 headers"),

    /* what stands before a refused request is answered first */
    ENDS("right, then wrong", GET("") "GET / HTTP/1.1\n", "200 400", LF),
    ENDS("two right, then wrong", POST(TWO, "{}") GET("") POST(TWO TWO, "{}"), "200 200 400",
         SINGLE),
    ENDS("slow, then wrong",
         POST("Content-Length: 24\r\n", "{\"mode\":\"later\",\"ms\":30}") "GET / HTTP/1.1\n",
         "200 400", LF),
    ENDS("stream, then wrong",
         POST("Content-Length: 30\r\n", "{\"mode\":\"stream\",\"n\":3,\"ms\":2}")
             GET("X: \x01\r\n"),
         "200 400", CONTROL),
    ENDS("right, then a wrong chunk", GET("") CHUNKS("2\r\n{}\r\nx"), "200 400", "hexadecimal"),
    ENDS("100, then a wrong chunk",
         POST("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\n"), "100? 400",
         LF),
    ENDS("rest behind a body", POST(TWO, "{}}") GET(""), "200 400", METHOD),
    ENDS("request in a short body", POST("Content-Length: 1\r\n", "{}") GET(""), "200 400", METHOD),
};
const size_t raw_request_count = sizeof raw_requests / sizeof raw_requests[0];
