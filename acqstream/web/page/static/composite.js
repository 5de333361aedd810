// Puts grey pictures of channels together, each in its colour: the sums of red, of green and of blue.

let tinted = null; // one canvas for all pictures

export function drawComposite(canvas, pictures) {
  const { width, height } = pictures[0].image;
  const context = sized(canvas, width, height).getContext("2d");
  context.globalCompositeOperation = "source-over";
  if (pictures.length === 1 && !pictures[0].color) {
    context.drawImage(pictures[0].image, 0, 0);
    return;
  }
  context.fillStyle = "#000";
  context.fillRect(0, 0, width, height);
  context.globalCompositeOperation = "lighter";
  for (const { image, color } of pictures) context.drawImage(tint(image, color, width, height), 0, 0);
}

function tint(image, color, width, height) {
  tinted ??= document.createElement("canvas");
  const context = sized(tinted, width, height).getContext("2d");
  context.globalCompositeOperation = "source-over";
  context.drawImage(image, 0, 0, width, height);
  context.globalCompositeOperation = "multiply";
  context.fillStyle = color;
  context.fillRect(0, 0, width, height);
  return tinted;
}

function sized(canvas, width, height) {
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  return canvas;
}
