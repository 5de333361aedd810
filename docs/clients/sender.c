/* A sender for acqstream in C, with libzmq only. Written from docs/protocol.md; see README.md beside this file.
 *
 *     cc -o sender sender.c -lzmq
 *     ./sender tcp://127.0.0.1:5271 NAME FRAMES HEIGHT WIDTH
 *
 * Sends uint16 frames whose pixel i of frame n is (n * 1000 + i) mod 65536. Ends with 0 only when the receipt says
 * that every frame is stored. One thing is simpler than in a real program: a lost connection is an error here.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#define SILENCE_MS 5000 /* the daemon says something every second */

static void *sock;
static char ds[64];
static char news[1 << 20]; /* the last message, a JSON text */
static long long published, limit_n, limit_bytes;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "sender: %s: %s\n", what, why);
    exit(1);
}

/* The text behind "key": in the JSON after `from`; the daemon writes JSON without blanks. */
static const char *find(const char *from, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = from ? strstr(from, quoted) : NULL;
    return at ? at + strlen(quoted) : NULL;
}

static long long number(const char *from, const char *key) {
    const char *at = find(from, key);
    if (!at) fail("a field is missing in the answer", key);
    return strtoll(at, NULL, 10);
}

static int type_is(const char *type) {
    const char *at = find(news, "t");
    return at && at[0] == '"' && !strncmp(at + 1, type, strlen(type)) && at[1 + strlen(type)] == '"';
}

static void send_part(const void *data, size_t size, int flags) {
    if (zmq_send(sock, data, size, flags) < 0) fail("cannot send", zmq_strerror(zmq_errno()));
}

/* Read one message; wait at most so long. 0 if there was none. Errors end the program here. */
static int receive(long timeout_ms) {
    zmq_pollitem_t item = {sock, 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, timeout_ms) <= 0) return 0;
    int size = zmq_recv(sock, news, sizeof news - 1, 0);
    if (size < 0) fail("cannot receive", zmq_strerror(zmq_errno()));
    if (size > (int)sizeof news - 1) fail("an answer is too long", "over 1 MiB");
    news[size] = 0;
    if (type_is("error")) fail("the daemon reports", news);
    if (type_is("warn")) fprintf(stderr, "sender: %s\n", news);
    if (type_is("ack") || type_is("opened")) {
        if (type_is("ack")) published = number(news, "published");
        const char *limit = find(news, "limit");
        limit_n = number(limit, "n");
        limit_bytes = number(limit, "bytes");
    }
    return 1;
}

static void wait_for(const char *type) {
    do {
        if (!receive(SILENCE_MS)) fail("no answer from the daemon while waiting for", type);
    } while (!type_is(type));
}

static void set(int option, int value) {
    if (zmq_setsockopt(sock, option, &value, sizeof value)) fail("socket option", zmq_strerror(zmq_errno()));
}

static void open_dataset(const char *endpoint, const char *name, long frames, long height, long width) {
    char text[2048];
    sock = zmq_socket(zmq_ctx_new(), ZMQ_DEALER);
    set(ZMQ_LINGER, 0);
    set(ZMQ_IMMEDIATE, 1);
    set(ZMQ_RECONNECT_IVL, -1);
    set(ZMQ_SNDTIMEO, SILENCE_MS); /* nothing is sent before the connection stands */
    set(ZMQ_SNDBUF, 4 << 20);
    if (zmq_connect(sock, endpoint)) fail(endpoint, zmq_strerror(zmq_errno()));
    srand((unsigned)time(NULL) ^ (unsigned)(uintptr_t)sock);
    for (int i = 0; i < 32; i++) ds[i] = "0123456789abcdef"[rand() / 7 % 16]; /* better: a random UUID */
    snprintf(text, sizeof text, "{\"t\":\"hello\",\"v\":1,\"client\":{\"name\":\"sender.c\",\"lang\":\"C\"}}");
    send_part(text, strlen(text), 0);
    wait_for("welcome");
    int size = snprintf(text, sizeof text,
        "{\"t\":\"open\",\"ds\":\"%s\",\"name\":\"%s\",\"frame\":{\"dt\":\"<u2\",\"sh\":[%ld,%ld]},\"expect\":%ld}",
        ds, name, height, width, frames);
    if (size >= (int)sizeof text) fail("name", "too long");
    send_part(text, strlen(text), 0);
    wait_for("opened");
}

static void send_frames(long frames, long height, long width) {
    size_t pixels = (size_t)height * width, bytes = pixels * 2;
    unsigned char *image = malloc(bytes);
    if (!image) fail("memory", "none left");
    for (long n = 0; n < frames; n++) {
        char header[256];
        for (size_t i = 0; i < pixels; i++) { /* little-endian on every machine */
            unsigned value = (unsigned)(n * 1000 + i) & 0xffff;
            image[2 * i] = value & 0xff;
            image[2 * i + 1] = value >> 8;
        }
        while (receive(0)) {} /* take the news; then wait until the frame is inside the window */
        while (n >= limit_n || (long long)bytes * (n + 1) > limit_bytes)
            if (!receive(SILENCE_MS)) fail("the daemon is silent", "is it still there?");
        snprintf(header, sizeof header,
            "{\"t\":\"frame\",\"ds\":\"%s\",\"n\":%ld,\"dt\":\"<u2\",\"sh\":[%ld,%ld],\"ax\":{\"time\":%ld}}",
            ds, n, height, width, n);
        send_part(header, strlen(header), ZMQ_SNDMORE);
        send_part(image, bytes, 0);
    }
    free(image);
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage", "sender ENDPOINT NAME FRAMES HEIGHT WIDTH");
    long frames = atol(argv[3]), height = atol(argv[4]), width = atol(argv[5]);
    if (frames < 1 || height < 1 || width < 1) fail("usage", "numbers must be positive");
    open_dataset(argv[1], argv[2], frames, height, width);
    send_frames(frames, height, width);
    char close[256];
    snprintf(close, sizeof close, "{\"t\":\"close\",\"ds\":\"%s\",\"n\":%ld,\"status\":\"completed\"}", ds, frames);
    send_part(close, strlen(close), 0);
    wait_for("closed");
    const char *receipt = find(news, "receipt"), *status = find(receipt, "status");
    if (published != frames || number(receipt, "stored") != frames || !status || strncmp(status, "\"completed\"", 11))
        fail("the run is not complete", news);
    printf("%s\n", news);
    return 0;
}
