import ij.CompositeImage;
import ij.ImagePlus;
import ij.process.ColorProcessor;
import ij.process.LUT;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import loci.common.DebugTools;
import loci.plugins.BF;
import loci.plugins.in.ImporterOptions;

/** Opens files in ImageJ with Bio-Formats, as its menu does, and prints a line of JSON for each image. */
public final class OpenInImageJ {
    private OpenInImageJ() {}

    /** Arguments: a color mode of the importer ("" for its default) and a path, in turn. */
    public static void main(String[] words) throws Exception {
        DebugTools.setRootLevel("ERROR");
        for (int at = 0; at < words.length; at += 2) {
            ImporterOptions options = new ImporterOptions();
            options.setId(words[at + 1]);
            options.setOpenAllSeries(true);
            if (!words[at].isEmpty()) {
                options.setColorMode(words[at]);
            }
            for (ImagePlus image : BF.openImagePlus(options)) {
                System.out.println(describe(words[at], words[at + 1], image));
            }
        }
        System.exit(0);
    }

    private static String describe(String mode, String path, ImagePlus image) throws Exception {
        List<String> planes = new ArrayList<>();
        List<String> ranges = new ArrayList<>();
        List<String> colors = new ArrayList<>();
        for (int t = 1; t <= image.getNFrames(); t++) {
            for (int c = 1; c <= image.getNChannels(); c++) {
                for (int z = 1; z <= image.getNSlices(); z++) {
                    Object pixels = image.getStack().getProcessor(image.getStackIndex(c, z, t)).getPixels();
                    planes.add("[[" + (t - 1) + "," + (c - 1) + "," + (z - 1) + "],\"" + digest(pixels) + "\"]");
                }
            }
        }
        for (int c = 1; c <= image.getNChannels(); c++) {
            image.setPositionWithoutUpdate(c, 1, 1);
            LUT table = image instanceof CompositeImage ? ((CompositeImage) image).getChannelLut(c)
                : image.getProcessor().getLut();
            colors.add(String.format("\"%06x\"", table == null ? 0 : table.getRGB(255) & 0xffffff));
            ranges.add("[" + image.getDisplayRangeMin() + "," + image.getDisplayRangeMax() + "]");
        }
        image.setPositionWithoutUpdate(1, 1, 1);
        int[] shown = (int[]) new ColorProcessor(image.getImage()).getPixels();
        List<String> screen = new ArrayList<>();
        for (int value : shown) {
            screen.add(String.valueOf(value & 0xffffff));
        }
        int display = image instanceof CompositeImage ? ((CompositeImage) image).getMode() : 0;
        return "{\"path\":\"" + path + "\",\"asked\":\"" + mode + "\",\"mode\":" + display + ",\"width\":" + image.getWidth()
            + ",\"colors\":" + colors + ",\"ranges\":" + ranges + ",\"planes\":" + planes + ",\"screen\":" + screen + "}";
    }

    private static String digest(Object pixels) throws Exception {
        java.nio.ByteBuffer bytes;
        if (pixels instanceof short[]) {
            short[] values = (short[]) pixels;
            bytes = java.nio.ByteBuffer.allocate(2 * values.length).order(java.nio.ByteOrder.LITTLE_ENDIAN);
            bytes.asShortBuffer().put(values);
        } else if (pixels instanceof byte[]) {
            bytes = java.nio.ByteBuffer.wrap((byte[]) pixels);
        } else {
            return "";
        }
        StringBuilder text = new StringBuilder();
        for (byte value : MessageDigest.getInstance("SHA-256").digest(bytes.array())) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }
}
