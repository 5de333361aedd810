import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HashSet;
import mmcorej.TaggedImage;
import mmcorej.org.json.JSONObject;
import org.micromanager.ndtiffstorage.EssentialImageMetadata;
import org.micromanager.ndtiffstorage.NDTiffStorage;

/**
 * Opens every dataset named on the command line with the Java reference library.
 *
 * Prints JSON lines: per dataset its summary, then per image of each resolution level the level, its axes, size, bits, the SHA-256 of its pixels (row by
 * row, little endian, RGB without a fourth byte) and its metadata; or the error that ended this dataset.
 */
public class ReadNdtiff {
  private static PrintStream out;

  public static void main(String[] folders) throws Exception {
    out = new PrintStream(System.out, false, "UTF-8"); // whatever charset the library finds as its default
    System.setOut(System.err); // the library's own words
    for (String folder : folders) {
      try {
        readDataset(folder);
      } catch (Throwable error) {
        print(new JSONObject().put("dataset", folder).put("error", error.toString()));
      }
    }
    out.flush();
    System.exit(out.checkError() ? 1 : 0); // the library's threads would keep the process
  }

  private static void readDataset(String folder) throws Exception {
    NDTiffStorage storage = new NDTiffStorage(folder);
    try {
      print(new JSONObject().put("dataset", folder).put("summary", storage.getSummaryMetadata()));
      for (HashMap<String, Object> axes : storage.getAxesSet()) {
        print(describe(storage, axes, 0).put("dataset", folder));
      }
      HashSet<HashMap<String, Object>> tiles = new HashSet<>(storage.getAxesSet());
      int levels = tiles.stream().allMatch(axes -> axes.containsKey("row")) ? storage.getNumResLevels() : 1;
      for (int level = 1; level < levels; level++) {
        tiles = parents(tiles);
        for (HashMap<String, Object> axes : tiles) {
          print(describe(storage, axes, level).put("dataset", folder));
        }
      }
    } finally {
      storage.close();
    }
  }

  /** The tiles of the next level: two rows and two columns become one. */
  private static HashSet<HashMap<String, Object>> parents(HashSet<HashMap<String, Object>> tiles) {
    HashSet<HashMap<String, Object>> parents = new HashSet<>();
    for (HashMap<String, Object> axes : tiles) {
      HashMap<String, Object> parent = new HashMap<>(axes);
      for (String name : new String[] {"row", "column"}) {
        parent.put(name, Math.floorDiv((Integer) axes.get(name), 2));
      }
      parents.add(parent);
    }
    return parents;
  }

  private static JSONObject describe(NDTiffStorage storage, HashMap<String, Object> axes, int level)
      throws Exception {
    TaggedImage image = storage.getImage(axes, level);
    EssentialImageMetadata essential = storage.getEssentialImageMetadata(axes, level);
    JSONObject line = new JSONObject().put("level", level);
    line.put("axes", new JSONObject(axes));
    line.put("width", essential.width).put("height", essential.height);
    line.put("bits", essential.bitDepth).put("rgb", essential.rgb);
    line.put("sha256", sha256(bytesOf(image.pix, essential.rgb)));
    return line.put("metadata", image.tags);
  }

  /** Pixels as in the file. The library hands RGB out as B, G, R, A. */
  private static byte[] bytesOf(Object pixels, boolean rgb) {
    if (pixels instanceof short[]) {
      short[] values = (short[]) pixels;
      ByteBuffer buffer = ByteBuffer.allocate(2 * values.length).order(ByteOrder.LITTLE_ENDIAN);
      buffer.asShortBuffer().put(values);
      return buffer.array();
    }
    byte[] values = (byte[]) pixels;
    if (!rgb) {
      return values;
    }
    byte[] triples = new byte[values.length / 4 * 3];
    for (int i = 0; i < values.length / 4; i++) {
      for (int sample = 0; sample < 3; sample++) {
        triples[3 * i + sample] = values[4 * i + 2 - sample];
      }
    }
    return triples;
  }

  private static String sha256(byte[] bytes) throws Exception {
    StringBuilder text = new StringBuilder();
    for (byte value : MessageDigest.getInstance("SHA-256").digest(bytes)) {
      text.append(String.format("%02x", value));
    }
    return text.toString();
  }

  private static void print(JSONObject line) {
    out.println(line.toString());
  }
}
