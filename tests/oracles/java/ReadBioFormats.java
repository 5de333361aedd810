import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import loci.common.DebugTools;
import loci.common.services.ServiceFactory;
import loci.formats.ImageReader;
import loci.formats.meta.IMetadata;
import loci.formats.services.OMEXMLService;

/** Prints what Bio-Formats finds in files: a line of JSON for each image and resolution level. */
public final class ReadBioFormats {
    private ReadBioFormats() {}

    public static void main(String[] paths) throws Exception {
        DebugTools.setRootLevel("ERROR");
        IMetadata metadata = new ServiceFactory().getInstance(OMEXMLService.class).createOMEXMLMetadata();
        for (String path : paths) {
            try (ImageReader reader = new ImageReader()) {
                reader.setFlattenedResolutions(false);
                reader.setMetadataStore(metadata);
                reader.setId(path);
                for (int image = 0; image < reader.getSeriesCount(); image++) {
                    reader.setSeries(image);
                    for (int level = 0; level < reader.getResolutionCount(); level++) {
                        reader.setResolution(level);
                        System.out.println(describe(path, reader, metadata, image, level));
                    }
                }
            }
        }
    }

    private static String describe(String path, ImageReader reader, IMetadata metadata, int image, int level)
            throws Exception {
        List<String> channels = new ArrayList<>();
        for (int channel = 0; channel < metadata.getChannelCount(image); channel++) {
            channels.add(quote(metadata.getChannelName(image, channel)));
        }
        List<String> sums = new ArrayList<>();
        for (int plane = 0; plane < reader.getImageCount(); plane++) {
            int[] at = reader.getZCTCoords(plane);
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(reader.openBytes(plane));
            StringBuilder text = new StringBuilder();
            for (byte value : digest) {
                text.append(String.format("%02x", value));
            }
            sums.add("[[" + at[2] + "," + at[1] + "," + at[0] + "]," + quote(text.toString()) + "]");
        }
        Object pixel = metadata.getPixelsPhysicalSizeX(image);
        Double side = pixel == null ? null : metadata.getPixelsPhysicalSizeX(image).value().doubleValue();
        return "{\"path\":" + quote(path) + ",\"image\":" + image + ",\"level\":" + level
            + ",\"name\":" + quote(metadata.getImageName(image)) + ",\"channels\":" + channels
            + ",\"shape\":[" + reader.getSizeT() + "," + reader.getEffectiveSizeC() + "," + reader.getSizeZ() + ","
            + reader.getSizeY() + "," + reader.getSizeX() + "],\"little\":" + reader.isLittleEndian()
            + ",\"interleaved\":" + reader.isInterleaved() + ",\"pixel\":" + side
            + ",\"plates\":" + metadata.getPlateCount() + ",\"planes\":" + sums + "}";
    }

    private static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            quoted.append(letter < 32 || letter > 126 || letter == '"' || letter == '\\'
                ? String.format("\\u%04x", (int) letter) : String.valueOf(letter));
        }
        return quoted.append('"').toString();
    }
}
