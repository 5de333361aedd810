import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.zeromq.SocketType;
import org.zeromq.ZContext;
import org.zeromq.ZMQ;

/**
 * A sender for acqstream in Java 8 or newer, with JeroMQ 0.5 only. Written from docs/protocol.md; see README.md here.
 *
 * <pre>java -cp jeromq.jar Sender.java tcp://127.0.0.1:5271 NAME FRAMES HEIGHT WIDTH</pre>
 *
 * Sends uint16 frames whose pixel i of frame n is (n * 1000 + i) mod 65536. Ends with 0 only when the receipt says that
 * every frame is stored. One thing is simpler than in a real program: a lost connection is an error here.
 */
public final class Sender {
    private static final int SILENCE_MS = 5_000; // the daemon says something every second

    private final ZMQ.Socket socket;
    private final String ds = UUID.randomUUID().toString();
    private String news = ""; // the last message, a JSON text
    private long published;
    private long limitNumber;
    private long limitBytes;

    private Sender(ZMQ.Socket socket) {
        this.socket = socket;
    }

    public static void main(String[] arguments) {
        if (arguments.length != 5) {
            System.err.println("usage: Sender ENDPOINT NAME FRAMES HEIGHT WIDTH");
            System.exit(2);
        }
        try (ZContext context = new ZContext()) {
            ZMQ.Socket socket = context.createSocket(SocketType.DEALER);
            socket.setLinger(0);
            socket.setImmediate(true);
            socket.setReconnectIVL(-1);
            socket.setSendBufferSize(4 << 20);
            socket.setSendTimeOut(SILENCE_MS); // nothing is sent before the connection stands
            socket.connect(arguments[0]);
            int frames = Integer.parseInt(arguments[2]);
            int height = Integer.parseInt(arguments[3]);
            int width = Integer.parseInt(arguments[4]);
            System.out.println(new Sender(socket).run(arguments[1], frames, height, width));
        } catch (RuntimeException error) {
            System.err.println("Sender: " + error.getMessage());
            System.exit(1);
        }
    }

    /** Send everything; the `closed` message with the receipt. */
    private String run(String name, int frames, int height, int width) {
        send("{\"t\":\"hello\",\"v\":1,\"client\":{\"name\":\"Sender.java\",\"lang\":\"Java\"}}", null);
        waitFor("welcome");
        send(String.format("{\"t\":\"open\",\"ds\":\"%s\",\"name\":\"%s\",\"frame\":{\"dt\":\"<u2\",\"sh\":[%d,%d]},"
            + "\"expect\":%d}", ds, name, height, width, frames), null);
        waitFor("opened");
        for (int n = 0; n < frames; n++) {
            sendFrame(n, height, width);
        }
        send(String.format("{\"t\":\"close\",\"ds\":\"%s\",\"n\":%d,\"status\":\"completed\"}", ds, frames), null);
        waitFor("closed");
        boolean completed = news.contains("\"status\":\"completed\"");
        if (!completed || published != frames || number("stored") != frames) {
            throw new IllegalStateException("the run is not complete: " + news);
        }
        return news;
    }

    private void sendFrame(int n, int height, int width) {
        int pixels = height * width;
        // Java's buffers are big-endian unless told otherwise; the wire is little-endian.
        ByteBuffer image = ByteBuffer.allocate(2 * pixels).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < pixels; i++) {
            image.putShort((short) (n * 1000 + i));
        }
        while (receive(0)) {
            // the news that came in meanwhile; then wait until the frame is inside the window
        }
        while (n >= limitNumber || 2L * pixels * (n + 1) > limitBytes) {
            if (!receive(SILENCE_MS)) {
                throw new IllegalStateException("the daemon is silent");
            }
        }
        send(String.format("{\"t\":\"frame\",\"ds\":\"%s\",\"n\":%d,\"dt\":\"<u2\",\"sh\":[%d,%d],\"ax\":{\"time\":%d}}",
            ds, n, height, width, n), image.array());
    }

    private void send(String header, byte[] payload) {
        byte[] raw = header.getBytes(StandardCharsets.UTF_8);
        boolean sent = payload == null ? socket.send(raw, 0) : socket.send(raw, ZMQ.SNDMORE) && socket.send(payload, 0);
        if (!sent) {
            throw new IllegalStateException("cannot send: is the daemon there?");
        }
    }

    private void waitFor(String type) {
        do {
            if (!receive(SILENCE_MS)) {
                throw new IllegalStateException("no answer from the daemon while waiting for " + type);
            }
        } while (!isType(type));
    }

    /** Read one message, waiting at most so long; false if there was none. */
    private boolean receive(int timeoutMs) {
        socket.setReceiveTimeOut(timeoutMs);
        byte[] raw = socket.recv(0);
        if (raw == null) {
            return false;
        }
        news = new String(raw, StandardCharsets.UTF_8);
        if (isType("error")) {
            throw new IllegalStateException("the daemon reports " + news);
        } else if (isType("warn")) {
            System.err.println("Sender: " + news);
        } else if (isType("ack") || isType("opened")) {
            published = isType("ack") ? number("published") : 0;
            limitNumber = number("limit\":\\{[^}]*\"n");
            limitBytes = number("limit\":\\{[^}]*\"bytes");
        }
        return true;
    }

    private boolean isType(String type) {
        return Pattern.compile("^\\{[^{}]*\"t\":\"" + type + "\"").matcher(news).find();
    }

    /** The number behind "key":, the daemon writes JSON without blanks. A program with a JSON parser takes that. */
    private long number(String key) {
        Matcher found = Pattern.compile("\"" + key + "\":(-?\\d+)").matcher(news);
        if (!found.find()) {
            throw new IllegalStateException("no " + key + " in " + news);
        }
        return Long.parseLong(found.group(1));
    }
}
