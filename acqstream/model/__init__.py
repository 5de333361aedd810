"""Values that all layers share: axes, pixel type, frame header, specification, cursors, receipt. No I/O."""
