import bdv.ViewerImgLoader;
import bdv.ViewerSetupImgLoader;
import bdv.spimdata.SpimDataMinimal;
import bdv.spimdata.XmlIoSpimDataMinimal;
import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.Arrays;
import mpicbg.spim.data.generic.sequence.BasicViewSetup;
import mpicbg.spim.data.sequence.TimePoint;
import net.imglib2.RandomAccessibleInterval;
import net.imglib2.type.numeric.integer.UnsignedShortType;
import net.imglib2.view.Views;
import org.janelia.saalfeldlab.n5.DataBlock;
import org.janelia.saalfeldlab.n5.DatasetAttributes;
import org.janelia.saalfeldlab.n5.N5FSReader;

/**
 * Opens every path named on the command line: an XML file with BigDataViewer, anything else as an N5 dataset.
 *
 * Prints JSON lines: of a dataset dimensions, type, compression and the SHA-256 of its items (x fastest, little endian,
 * blocks that are not there as zeros); of an XML file a line for each setup, time point and level (uint16 only); or the
 * error that ended this path.
 */
public class ReadN5 {
  private static PrintStream out;

  public static void main(String[] paths) throws Exception {
    out = new PrintStream(System.out, false, "UTF-8");
    System.setOut(System.err); // the libraries' own words
    for (String path : paths) {
      try {
        if (path.endsWith(".xml")) {
          readBigDataViewer(path);
        } else {
          readDataset(path);
        }
      } catch (Throwable error) {
        JsonObject line = new JsonObject();
        line.addProperty("error", error.toString());
        print(path, line);
      }
    }
    out.flush();
    System.exit(out.checkError() ? 1 : 0); // BigDataViewer's threads would keep the process
  }

  private static void readDataset(String path) throws Exception {
    N5FSReader reader = new N5FSReader(path);
    DatasetAttributes attributes = reader.getDatasetAttributes("");
    long[] dimensions = attributes.getDimensions();
    int[] blockSize = attributes.getBlockSize();
    int itemBytes = 0;
    byte[] array = null;
    long[] position = new long[dimensions.length];
    do {
      DataBlock<?> block = reader.readBlock("", attributes, position);
      if (block == null) {
        continue;
      }
      byte[] items = bytesOf(block.getData());
      if (array == null) {
        itemBytes = items.length / block.getNumElements();
        array = new byte[itemBytes * (int) Arrays.stream(dimensions).reduce(1, (a, b) -> a * b)];
      }
      place(items, block.getSize(), itemBytes, array, dimensions, blockSize, position);
    } while (next(position, dimensions, blockSize));
    JsonObject line = new JsonObject();
    line.add("dimensions", new Gson().toJsonTree(dimensions));
    line.addProperty("type", attributes.getDataType().toString());
    line.addProperty("compression", attributes.getCompression().getType());
    line.addProperty("sha256", sha256(array == null ? new byte[0] : array));
    print(path, line);
  }

  /** The rows of a block go to their places in the array; what lies beyond it is left out. */
  private static void place(
      byte[] items, int[] size, int itemBytes, byte[] array, long[] dimensions, int[] blockSize, long[] position) {
    int[] at = new int[size.length];
    for (int row = 0; row < items.length; row += size[0] * itemBytes) {
      long index = 0;
      boolean isInside = true;
      for (int d = size.length - 1; d >= 0; d--) {
        long place = position[d] * blockSize[d] + at[d];
        isInside &= place < dimensions[d];
        index = index * dimensions[d] + place;
      }
      if (isInside) {
        long width = Math.min(size[0], dimensions[0] - position[0] * blockSize[0]);
        System.arraycopy(items, row, array, (int) index * itemBytes, (int) width * itemBytes);
      }
      for (int d = 1; d < size.length && ++at[d] == size[d]; d++) {
        at[d] = 0;
      }
    }
  }

  private static boolean next(long[] position, long[] dimensions, int[] blockSize) {
    for (int d = 0; d < position.length; d++) {
      if (++position[d] * blockSize[d] < dimensions[d]) {
        return true;
      }
      position[d] = 0;
    }
    return false;
  }

  private static byte[] bytesOf(Object data) {
    if (data instanceof byte[]) {
      return (byte[]) data;
    }
    if (data instanceof short[]) {
      ByteBuffer buffer = buffer(2 * ((short[]) data).length);
      buffer.asShortBuffer().put((short[]) data);
      return buffer.array();
    }
    if (data instanceof int[]) {
      ByteBuffer buffer = buffer(4 * ((int[]) data).length);
      buffer.asIntBuffer().put((int[]) data);
      return buffer.array();
    }
    if (data instanceof long[]) {
      ByteBuffer buffer = buffer(8 * ((long[]) data).length);
      buffer.asLongBuffer().put((long[]) data);
      return buffer.array();
    }
    if (data instanceof float[]) {
      ByteBuffer buffer = buffer(4 * ((float[]) data).length);
      buffer.asFloatBuffer().put((float[]) data);
      return buffer.array();
    }
    ByteBuffer buffer = buffer(8 * ((double[]) data).length);
    buffer.asDoubleBuffer().put((double[]) data);
    return buffer.array();
  }

  private static ByteBuffer buffer(int bytes) {
    return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static void readBigDataViewer(String path) throws Exception {
    SpimDataMinimal data = new XmlIoSpimDataMinimal().load(path);
    ViewerImgLoader loader = (ViewerImgLoader) data.getSequenceDescription().getImgLoader();
    for (BasicViewSetup setup : data.getSequenceDescription().getViewSetupsOrdered()) {
      ViewerSetupImgLoader<?, ?> images = loader.getSetupImgLoader(setup.getId());
      for (TimePoint time : data.getSequenceDescription().getTimePoints().getTimePointsOrdered()) {
        for (int level = 0; level < images.numMipmapLevels(); level++) {
          JsonObject line = new JsonObject();
          line.addProperty("setup", setup.getId());
          line.addProperty("name", setup.getName());
          line.addProperty("timepoint", time.getId());
          line.addProperty("level", level);
          line.add("factors", new Gson().toJsonTree(images.getMipmapResolutions()[level]));
          if (setup.hasVoxelSize()) {
            double[] size = new double[3];
            setup.getVoxelSize().dimensions(size);
            line.add("voxel_size", new Gson().toJsonTree(size));
            line.addProperty("unit", setup.getVoxelSize().unit());
          }
          describe(images.getImage(time.getId(), level), line);
          print(path, line);
        }
      }
    }
  }

  @SuppressWarnings("unchecked")
  private static void describe(RandomAccessibleInterval<?> image, JsonObject line) throws Exception {
    RandomAccessibleInterval<UnsignedShortType> pixels = (RandomAccessibleInterval<UnsignedShortType>) image;
    line.add("dimensions", new Gson().toJsonTree(pixels.dimensionsAsLongArray()));
    ByteBuffer buffer = buffer((int) (2 * Views.flatIterable(pixels).size()));
    for (UnsignedShortType pixel : Views.flatIterable(pixels)) {
      buffer.putShort((short) pixel.get());
    }
    line.addProperty("sha256", sha256(buffer.array()));
  }

  private static String sha256(byte[] data) throws Exception {
    StringBuilder text = new StringBuilder();
    for (byte part : MessageDigest.getInstance("SHA-256").digest(data)) {
      text.append(String.format("%02x", part));
    }
    return text.toString();
  }

  private static void print(String path, JsonObject line) {
    line.addProperty("path", path);
    out.println(line);
  }
}
